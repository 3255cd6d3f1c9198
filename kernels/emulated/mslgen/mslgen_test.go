package mslgen

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// files returns a Reader of in-memory files.
func files(m map[string]string) Reader {
	return func(name string) ([]byte, error) {
		if s, ok := m[name]; ok {
			return []byte(s), nil
		}
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
}

func parse(src string) (*Unit, error) {
	return Parse("k/x.metal", files(map[string]string{"k/x.metal": src}))
}

const header = "#include <metal_stdlib>\nusing namespace metal;\n"

func TestSignatures(t *testing.T) {
	u, err := Parse("k/x.metal", files(map[string]string{
		"k/x.metal": `
#include <metal_stdlib>
#include "lib/p.h"
using namespace metal;
constant uint kind [[function_constant(3)]];
constant bool fast [[function_constant(0)]];
constant bool twice = is_function_constant_defined(fast) && kind > 2;
constant float unused [[function_constant(9)]];
static inline float helper(float x) { return twice ? x + x : x; }
template <typename T, uint N = 4>
[[kernel, max_total_threads_per_threadgroup(N * 0 + 128)]]
void scale(device const T *x [[buffer(0)]], device T *out [[buffer(2)]], constant Params &p [[buffer(1)]],
           threadgroup T *tmp [[threadgroup(0)]], constant float *table [[buffer(4), function_constant(fast)]],
           ushort2 at [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {
    constexpr uint rows = N * 2;
    threadgroup T a[rows][SIDE], b;
    threadgroup Params q[2];
    threadgroup float *alias = (threadgroup float *)tmp;
    out[at.x] = T(helper(float(x[at.x])));
    simdgroup_barrier(mem_flags::mem_none);
}
#define INSTANCE(T, suffix) template [[host_name("scale_" #suffix)]] kernel void scale<T>(device const T *, device T *, constant Params &, threadgroup T *, constant float *, ushort2, uint);
INSTANCE(half, f16)
INSTANCE(float, f32)
template [[host_name("scale_wide")]] kernel decltype(scale<float, 8>) scale<float, 8>;
kernel void plain(device atomic_uint &n [[buffer(0)]], uint3 g [[threads_per_grid]]) { if (kind) n; }
`,
		"k/lib/p.h": "#pragma once\n#define SIDE (1 << 3)\nstruct Params { uint n; float3 v; uchar tail; };\n",
	}))
	require.NoError(t, err)
	require.Equal(t, []string{"k/lib/p.h"}, u.Headers)
	require.Equal(t, []Constant{
		{Pos{"k/x.metal", 5}, "kind", "uint", 3}, {Pos{"k/x.metal", 6}, "fast", "bool", 0}, {Pos{"k/x.metal", 8}, "unused", "float", 9},
	}, u.Constants)
	require.Len(t, u.Kernels, 4)

	plain, half, float, wide := u.Kernels[0], u.Kernels[1], u.Kernels[2], u.Kernels[3]
	require.Equal(t, "scale_f16", half.Name)
	require.Equal(t, "scale", half.Function)
	require.Equal(t, []string{"half"}, half.TemplateArgs)
	require.Equal(t, Pos{"k/x.metal", 23}, half.Pos)
	require.Equal(t, 128, half.MaxThreads)
	require.True(t, half.Sync)
	require.Equal(t, []int{0, 3}, half.Constants)
	require.Equal(t, []int{3}, half.Required)
	at := func(line int) Pos { return Pos{"k/x.metal", line} }
	require.Equal(t, []Argument{
		{Pos: at(12), Name: "x", Kind: Buffer, Index: 0, Space: "device", Const: true, Type: "half"},
		{Pos: at(12), Name: "out", Kind: Buffer, Index: 2, Space: "device", Type: "half"},
		{Pos: at(12), Name: "p", Kind: Buffer, Index: 1, Space: "constant", Const: true, Type: "Params", Reference: true},
		{Pos: at(13), Name: "tmp", Kind: Threadgroup, Index: 0, Space: "threadgroup", Type: "half"},
		{Pos: at(13), Name: "table", Kind: Buffer, Index: 4, Space: "constant", Const: true, Type: "float"},
		{Pos: at(14), Name: "at", Kind: Position, Type: "ushort2", Attribute: "thread_position_in_grid"},
		{Pos: at(14), Name: "lane", Kind: Position, Type: "uint", Attribute: "thread_index_in_simdgroup"},
	}, half.Args)
	require.Equal(t, []Variable{
		{at(16), "a", "T[8][8]", 128}, {at(16), "b", "T", 2}, {at(17), "q", "Params[2]", 96},
	}, half.Threadgroup)
	require.Equal(t, 128+16+96, half.ThreadgroupBytes())
	require.Equal(t, 256+16+96, float.ThreadgroupBytes())
	require.Equal(t, 512+16+96, wide.ThreadgroupBytes())
	require.Equal(t, "out", half.Buffer(2).Name)
	require.Nil(t, half.Buffer(3))

	require.Equal(t, "plain", plain.Name)
	require.False(t, plain.Sync)
	require.Nil(t, plain.TemplateArgs)
	require.Equal(t, []int{3}, plain.Required)
}

func TestRefusedSources(t *testing.T) {
	kernel := func(args, body string) string {
		return header + "kernel void k(device float *x [[buffer(0)]]" + args + ") {\n" + body + "\n}\n"
	}
	for name, c := range map[string]struct{ src, want string }{
		"recursion":             {header + "float f(float x) { return x > 0 ? f(x - 1) : x; }\n", "k/x.metal:3: recursion: f calls f"},
		"mutual recursion":      {header + "float g(float x);\nfloat f(float x) { return g(x); }\nfloat g(float x) { return f(x); }", "recursion: g calls f"},
		"duplicate buffer":      {kernel(", device float *y [[buffer(0)]]", ""), "argument y has the same buffer index 0 as x"},
		"missing attribute":     {kernel(", uint i", ""), "k/x.metal:3: kernel k: argument i has no attribute"},
		"unknown attribute":     {kernel(", uint i [[thread_position]]", ""), "argument i has the unknown attribute [[thread_position]]"},
		"position type":         {kernel(", float i [[thread_position_in_grid]]", ""), "argument i of type float cannot be"},
		"position width":        {kernel(", uint2 i [[thread_index_in_simdgroup]]", ""), "argument i of type uint2 cannot be"},
		"no address space":      {kernel(", float *y [[buffer(1)]]", ""), "argument y must point to device or constant memory"},
		"threadgroup space":     {kernel(", device float *y [[threadgroup(0)]]", ""), "argument y must point to threadgroup memory"},
		"by value":              {kernel(", float y [[buffer(1)]]", ""), "argument y must be a pointer or a reference"},
		"buffer index":          {kernel(", device float *y [[buffer(31)]]", ""), "buffer index 31: at most 30"},
		"two bindings":          {kernel(", device float *y [[buffer(1), buffer(2)]]", ""), "more than one binding"},
		"returns a value":       {header + "kernel int k(device float *x [[buffer(0)]]) { return 1; }", "kernel k must return void"},
		"threadgroup in helper": {header + "void f() {\n threadgroup float s[4];\n}", "k/x.metal:4: threadgroup variable s outside a kernel function (in f)"},
		"nested threadgroup":    {kernel("", "{ threadgroup float s[4]; }"), "threadgroup variable s must be declared in the outermost block"},
		"threadgroup value":     {kernel("", "threadgroup float s = 1;"), "threadgroup variable s cannot be initialised"},
		"threadgroup size":      {kernel("", "threadgroup float s[n];"), "k/x.metal:4: threadgroup s: n is not a constant that is known here"},
		"threadgroup type":      {kernel("", "threadgroup Tile<4> s;"), "threadgroup s: the size of type Tile<4> is not known"},
		"too much memory":       {kernel("", "threadgroup float4 a[2048]; threadgroup char b;"), "kernel k: 32769 bytes of threadgroup memory"},
		"negative dimension":    {kernel("", "threadgroup float a[-1];"), "dimension -1"},
		"program variable":      {header + "float x = 1;", "program-scope variable x must be in the constant address space"},
		"constant index twice":  {header + "constant int a [[function_constant(1)]];\nconstant int b [[function_constant(1)]];", "k/x.metal:4: function constants a and b share index 1"},
		"constant index":        {header + "constant int a [[function_constant(32)]];", "function constant index 32"},
		"constant type":         {header + "constant float4 a [[function_constant(1)]];", "type float4 is not supported"},
		"hidden constant":       {header + "constant int a [[function_constant(1)]];\nvoid f(int a) {}", "parameter a hides a function constant"},
		"defined of nothing":    {kernel("", "is_function_constant_defined(x);"), "takes the name of a function constant"},
		"host name twice":       {header + "template <typename T> kernel void k(device T *x [[buffer(0)]]) {}\ntemplate [[host_name(\"a\")]] kernel void k<int>(device int *);\ntemplate [[host_name(\"a\")]] kernel void k<uint>(device uint *);", "k/x.metal:5: kernel a is already defined at k/x.metal:4"},
		"no host name":          {header + "template <typename T> kernel void k(device T *x [[buffer(0)]]) {}\ntemplate kernel void k<int>(device int *);", "explicit instantiation without"},
		"never instantiated":    {header + "template <typename T> kernel void k(device T *x [[buffer(0)]]) {}", "k/x.metal:3: kernel template k is never instantiated"},
		"deduced instance":      {header + "template <typename T> kernel void k(device T *x [[buffer(0)]]) {}\ntemplate [[host_name(\"a\")]] kernel void k(device int *);", "must spell the template arguments"},
		"not a template":        {header + "kernel void k(device int *x [[buffer(0)]]) {}\ntemplate [[host_name(\"a\")]] kernel void k<int>(device int *);", "k is not a kernel template"},
		"too many arguments":    {header + "template <typename T> kernel void k(device T *x [[buffer(0)]]) {}\ntemplate [[host_name(\"a\")]] kernel void k<int, 2>(device int *);", "takes 1 template arguments, not 2"},
		"overloaded kernel":     {header + "kernel void k(device int *x [[buffer(0)]]) {}\nkernel void k(device uint *x [[buffer(0)]]) {}", "kernel k is overloaded"},
		"twins":                 {header + "float f(device float *x) { return x[0]; }\nfloat f(threadgroup float *x) { return x[1]; }", "k/x.metal:4: f differs from the one at k/x.metal:3 in address spaces"},
		"method on device":      {header + "struct S { float a; float twice() const { return 2 * a; } };\nvoid f(device S *s) {\n s[1].twice(); }", "k/x.metal:5: method twice is called on s in device memory"},
		"method on constant":    {header + "struct S { float a; float twice() const { return 2 * a; } };\nvoid f(constant S &s) { s.twice(); }", "method twice is called on s in constant memory"},
		"method on local":       {header + "struct S { float a; float twice() const { return 2 * a; } };\nvoid f(device float *x) { device S *s = (device S *)x; s->twice(); }", "method twice is called on s in device memory"},
		"swizzle field":         {header + "struct S { float2 xy; };", "field S.xy reads as a swizzle"},
		"goto":                  {kernel("", "goto end; end:;"), "goto is not part of Metal"},
		"threads":               {header + "[[max_total_threads_per_threadgroup(2048)]] kernel void k(device int *x [[buffer(0)]]) {}", "at most 1024 threads"},
		"unbalanced":            {header + "void f() { (]; }", `k/x.metal:3: "]" where ")" was expected`},
		"never closed":          {header + "void f() {", `k/x.metal:3: "{" is never closed`},
		"comment":               {header + "/* x", "k/x.metal:3: comment without an end"},
		"string":                {header + "\"x\n", "literal without an end"},
		"include":               {"#include \"y.h\"\n", "k/x.metal:1: k/y.h: file does not exist"},
		"system header":         {"#include <cmath>\n", "k/x.metal:1: no header <cmath> in Metal"},
		"macro arguments":       {"#define F(a, b) a\nvoid f() { F(1); }", "k/x.metal:2: macro F takes 2 arguments, not 1"},
		"if":                    {"#if 1 +\n#endif", "k/x.metal:1: #if: constant expression ends early"},
		"endif":                 {"#endif", "#endif without #if"},
		"no endif":              {"\n#if 1", "k/x.metal:2: #if without #endif"},
		"error":                 {"#error no way", "k/x.metal:1: #error no way"},
		"vertex":                {header + "vertex float4 v() { return 0; }", "only kernel functions are supported"},
		"stray":                 {header + "}", `unexpected "}"`},
		"byte":                  {header + "\x01", "unexpected byte 0x01"},
		"self include":          {"#include \"x.metal\"\n", "includes nest deeper than 32"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(c.src)
			require.ErrorContains(t, err, c.want)
			var e *Error
			require.True(t, errors.As(err, &e))
			require.Positive(t, e.Line)
		})
	}
}

func TestAcceptedSources(t *testing.T) {
	for name, src := range map[string]string{
		"twins":               "float f(device float *x) { return simd_sum(x[0]); }\nfloat f(threadgroup float *x) { return simd_sum(x[0]); }",
		"overload":            "float f(float x) { return x; }\nfloat f(float2 x) { return f(x.x); }",
		"template recursion":  "template <int N> float f() { return f<N - 1>(); }\ntemplate <> float f<0>() { return 0; }",
		"conditional":         "#if defined(__METAL_VERSION__) && __METAL_VERSION__ >= 300\nconstant int a = 1;\n#elif 1\n#error x\n#else\n#error y\n#endif",
		"include guard":       "#ifndef A\n#define A\nconstant int a = 1;\n#endif",
		"variadic macro":      "#define F(x, ...) x __VA_ARGS__\nF(constant int a, = 1;)",
		"self macro":          "#define a a\nconstant int a = 1;",
		"pragma":              "void f() {\n#pragma unroll\nfor (int i = 0; i < 3; i++) { _Pragma(\"clang loop unroll(full)\") while (0) {} }\n}",
		"pointer":             "void f(threadgroup float *s) { threadgroup float4 *v = (threadgroup float4 *)s; const threadgroup float *w = s; }",
		"methods":             "struct S { float a; S() = default; S(float x) : a(x) {} float twice() const thread { return 2 * a; } template <typename T> T as() { return T(a); } };",
		"method in its space": "struct S { float a; float twice() const device { return 2 * a; } float once() const { return a; } };\nvoid f(device S *s, thread S &t) { s->twice(); t.once(); S c = *s; c.once(); s->a; }",
		"enum":                "enum class E : uint { a, b = 4, c }; enum { X = 3 };",
		"namespace":           "namespace n { constant float t[2] = {1.0, 2.0}; float f() { return t[0]; } }",
		"operator":            "struct S { float a; };\nS operator+(S a, S b) { return S{a.a + b.a}; }",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(header + src)
			require.NoError(t, err)
		})
	}
}

// TestTranslation compares the C++ of small sources with golden files: testdata/*.txtar holds
// x.metal, its headers and want.cc.
func TestTranslation(t *testing.T) {
	archives, err := filepath.Glob("testdata/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, archives)
	for _, name := range archives {
		t.Run(filepath.Base(name), func(t *testing.T) {
			a, err := txtar.ParseFile(name)
			require.NoError(t, err)
			sources := map[string]string{}
			want := -1
			for i, f := range a.Files {
				if f.Name == "want.cc" {
					want = i
				} else {
					sources["k/"+f.Name] = string(f.Data)
				}
			}
			u, err := Parse("k/x.metal", files(sources))
			require.NoError(t, err)
			got := u.CPlusPlus("k/emulated/x.gen.cc", "msl/metal_stdlib")
			require.Equal(t, string(got), string(u.CPlusPlus("k/emulated/x.gen.cc", "msl/metal_stdlib")), "writing changes the unit")
			if *update {
				if want < 0 {
					a.Files = append(a.Files, txtar.File{Name: "want.cc"})
					want = len(a.Files) - 1
				}
				a.Files[want].Data = got
				require.NoError(t, os.WriteFile(name, txtar.Format(a), 0o644))
			}
			require.GreaterOrEqual(t, want, 0, "no want.cc")
			require.Equal(t, string(a.Files[want].Data), string(got))
		})
	}
}

// By #line directives, the C++ compiler sees every statement on its line of the source.
func TestLinesAreKept(t *testing.T) {
	src := header + "#define TWICE(x) \\\n x + \\\n x\n\nkernel void k(device int *out [[buffer(0)]])\n{\n\n    out[0] = MARK(10);\n    /* a\n comment */ out[1] =\n      MARK(13); out[2] = TWICE(MARK(13));\n\n\n\n\n\n\n\n    out[3] = MARK(21);\n}\n"
	u, err := parse(src)
	require.NoError(t, err)
	file, line := "", 0
	marks := 0
	for l := range strings.Lines(string(u.CPlusPlus("k/x.gen.cc", "msl/metal_stdlib"))) {
		if n, _ := fmt.Sscanf(l, "#line %d %q", &line, &file); n == 2 {
			continue
		}
		for _, part := range strings.Split(l, "MARK(")[1:] {
			want := 0
			_, err := fmt.Sscanf(part, "%d", &want)
			require.NoError(t, err)
			require.Equal(t, Pos{"k/x.metal", want}, Pos{file, line})
			marks++
		}
		line++
	}
	require.Equal(t, 5, marks)
}

// Units share the C++ of the header that comes first, unless it differs among them.
func TestLeads(t *testing.T) {
	unit := func(name, text string) *Unit {
		u, err := Parse("k/"+name, files(map[string]string{
			"k/" + name: text + "kernel void k(device float *out [[buffer(0)]]) { out[0] = twice(1); }\n",
			"k/h.h":     "#include \"below.h\"\ninline float twice(float x) { return x * below; }\n", "k/below.h": "#ifndef BELOW\n#define BELOW 2\n#endif\nconstant float below = BELOW;\n",
			"k/abi/p.h": "struct P { uint x; };\n",
		}))
		require.NoError(t, err)
		return u
	}
	first, second := unit("a.metal", "#include \"h.h\"\n"), unit("b.metal", "#include \"abi/p.h\"\n#include \"h.h\"\n")
	shared := leads([]*Unit{first, second, unit("c.metal", "#include \"below.h\"\n#include \"h.h\"\n")})
	require.Equal(t, map[string][]byte{"k/h.h": []byte("// clang-format off\n// Code generated by mslgen from k/h.h. DO NOT EDIT.\n" +
		"#line 4 \"k/below.h\"\nstatic const float below = 2;\n#line 2 \"k/h.h\"\ninline float twice(float x) { return x * below; }\n")}, shared)
	require.Contains(t, string(second.write("k/b.gen.cc", "shim", "h.gen.h")),
		"namespace {\n#include \"abi/p.h\"\n#include \"h.gen.h\"\n#line 3 \"k/b.metal\"\nvoid k(")

	require.Empty(t, leads([]*Unit{first}))
	require.Empty(t, leads([]*Unit{first, unit("d.metal", "#define BELOW 3\n#include \"h.h\"\n")}))
}

func FuzzParse(f *testing.F) {
	seeds, err := filepath.Glob("../../*.metal")
	require.NoError(f, err)
	more, err := filepath.Glob("../testdata/*.metal")
	require.NoError(f, err)
	for _, s := range append(seeds, more...) {
		b, err := os.ReadFile(s)
		require.NoError(f, err)
		f.Add(string(b))
	}
	f.Add("#define A(x) x x\nA(A(A(A(1))))")
	f.Add("template <template <typename> class T> struct X; kernel void k<")
	f.Add("struct { int a; } b; [[x(]] ) kernel operator() (")
	f.Fuzz(func(t *testing.T, src string) {
		u, err := parse(src)
		if err != nil {
			var e *Error
			require.True(t, errors.As(err, &e), "%v", err)
			return
		}
		u.CPlusPlus("k/x.gen.cc", "msl/metal_stdlib")
	})
}
