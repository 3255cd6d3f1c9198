package kernels

import (
	"fmt"
	"slices"
	"strings"
)

// Limits that launches must keep.
const (
	MaxHead             = 256      // elements of a head, for attention and the fused writes
	MaxThreadgroupBytes = 32 << 10 // of threadgroup memory on every Apple GPU
)

// Access tells what a kernel does with a buffer.
type Access uint8

// The kinds of access. No kernel reads what it writes, but a buffer may be bound twice
// where the package doc allows it.
const (
	Read Access = iota + 1
	Write
)

// String returns "read" or "write".
func (a Access) String() string {
	switch a {
	case Read:
		return "read"
	case Write:
		return "write"
	}
	return fmt.Sprintf("access(%d)", uint8(a))
}

// Element is the MSL type that a buffer's pointer points to; Bytes holds weights in the
// blocks of their type.
type Element string

// The element types.
const (
	Float Element = "float"
	Half  Element = "half"
	Int   Element = "int"
	Bytes Element = "uchar"
	// Blocks are Q8_0 of a cache: 32 elements each.
	Blocks Element = "CacheBlock"
)

// Size returns the size of an element, or of a block of them, in bytes.
func (e Element) Size() int {
	switch e {
	case Half:
		return 2
	case Bytes:
		return 1
	case Blocks:
		return 34
	}
	return 4
}

// Arg is one buffer of a kernel.
type Arg struct {
	Index    int
	Name     string
	Access   Access
	Element  Element
	Optional bool // unbound unless a function constant asks for it
}

// Constant is a function constant. An optional one that is not set means zero, false,
// or what its comment in the source says.
type Constant struct {
	Index    int
	Name     string
	Type     string // "bool" or "uint"
	Optional bool
}

// Kernel is one instance: what a pipeline is made from.
type Kernel struct {
	Name             string // host name
	Family           string // name without types
	File             string // of the sources
	Summary          string
	Args             []Arg  // by index, without the parameters
	Params           string // name of the parameter struct, in params.h and here
	ParamsIndex      int    // buffer that the parameter struct is bound to
	ParamWords       int    // words of the parameter struct
	Constants        []Constant
	ThreadgroupBytes int // static threadgroup memory
	MaxThreads       int // of a threadgroup
}

// Arg returns the buffer at an index; the parameters are none.
func (k *Kernel) Arg(index int) (Arg, bool) {
	for _, a := range k.Args {
		if a.Index == index {
			return a, true
		}
	}
	return Arg{}, false
}

// family is a row of the table: a template, and the instances as suffixes. In an
// argument's type, "$0" is the instance's first type and "$1" its second.
type family struct {
	name        string
	file        string
	summary     string
	instances   []string
	args        string // "index name access type" by semicolons; a trailing ? marks an optional one
	params      Params
	paramsIndex int
	constants   string // "index name type", likewise
	threadgroup func(e []Element) int
	maxThreads  int
}

var (
	single = []string{"f32", "f16"}
	double = []string{"f32_f32", "f32_f16", "f16_f32", "f16_f16"}
	blocks = []string{"f32_q8_0", "f16_q8_0"}
	cached = slices.Concat(double, blocks)
)

var suffixes = map[string]Element{"f32": Float, "f16": Half, "q8": Blocks}

const (
	linearArgs = "0 x read $0; 1 w0 read uchar; 2 w1 read uchar?; 3 w2 read uchar?; 4 out write $1; " +
		"6 residual read float?; 7 gain read float?"
	linearConstants = "0 fc_type0 uint; 1 fc_type1 uint?; 2 fc_type2 uint?; 3 fc_residual bool?; 4 fc_activation uint?"
	ropeConstants   = "0 fc_interleaved bool; 1 fc_factors bool?"
	writeArgs       = "0 qkv read $0; 1 positions read int; 2 slots read int; 3 factors read float?; 4 q_out write $0; " +
		"5 k_cache write $1; 6 v_cache write $1"
	attentionArgs = "0 q read $0; 1 k_cache read $1; 2 v_cache read $1; 3 positions read int; 4 cu_seqlens read int; " +
		"5 context_lens read int; 6 block_table read int; "
	unaryArgs  = "0 a read $0; 1 out write $0"
	binaryArgs = "0 a read $0; 1 b read $0; 2 out write $0"
)

var families = []family{
	{name: "embed", file: "embed.metal", summary: "rows of the embedding table by token id", instances: []string{""},
		args: "0 tokens read int; 1 table read uchar; 2 out write float", params: EmbedParams{}, paramsIndex: 3,
		constants: "0 fc_type uint", maxThreads: 32},
	{name: "rms_norm", file: "norm.metal", summary: "x · weight / sqrt(mean(x²) + eps) over rows",
		instances: []string{"f32_f32", "f32_f16", "f16_f16"},
		args:      "0 x read $0; 1 weight read float; 2 out write $1", params: NormParams{}, paramsIndex: 3,
		threadgroup: floats(8), maxThreads: 256},
	{name: "linear_vec", file: "linear_vec.metal", summary: "x·Wᵀ token by token, up to three weights side by side",
		instances: double, args: linearArgs, params: LinearParams{}, paramsIndex: 5,
		constants: linearConstants + "; 5 fc_norm bool?", maxThreads: 64},
	{name: "linear_mat", file: "linear_mat.metal", summary: "x·Wᵀ in tiles of 32 tokens × 32 columns",
		instances: double, args: linearArgs, params: LinearParams{}, paramsIndex: 5,
		constants: linearConstants, maxThreads: 128,
		threadgroup: func(e []Element) int { return 2 * 32 * 72 * e[0].Size() }},
	{name: "rope", file: "rope.metal", summary: "rotary position embedding", instances: single,
		args: "0 x read $0; 1 positions read int; 2 factors read float?; 3 out write $0", params: RopeParams{}, paramsIndex: 4,
		constants: ropeConstants, maxThreads: 32},
	{name: "rope_qkv_write", file: "rope_write.metal", summary: "RoPE of Q and K, and the cache write of K and V",
		instances: double, args: writeArgs, params: RopeWriteParams{}, paramsIndex: 7, constants: ropeConstants, maxThreads: 32},
	{name: "rope_qkv_write", file: "rope_write.metal", summary: "RoPE of Q and K, and the cache write of K and V in Q8_0",
		instances: blocks, args: writeArgs, params: RopeWriteParams{}, paramsIndex: 7, constants: ropeConstants,
		threadgroup: floats(2 * MaxHead), maxThreads: MaxHead / 2},
	{name: "head_norm_rope_kv_write", file: "rope_write.metal", summary: "head RMSNorm, RoPE of Q and K, and the cache write",
		instances: cached, args: writeArgs + "; 8 q_norm read float; 9 k_norm read float", params: RopeWriteParams{},
		paramsIndex: 7, constants: ropeConstants, maxThreads: MaxHead / 2,
		threadgroup: func(e []Element) int {
			if e[1] == Blocks {
				return 4 * (8 + 2*MaxHead)
			}
			return 4 * (8 + 2)
		}},
	{name: "attention_vec", file: "attention_vec.metal", summary: "attention of single tokens over the paged cache",
		instances: cached, args: attentionArgs + "7 out write $0?; 9 part write float?; 10 statistics write float?", params: AttentionParams{},
		paramsIndex: 8, constants: "0 fc_head uint?; 1 fc_split uint?", threadgroup: floats(8*MaxHead + 16), maxThreads: 256},
	{name: "attention_reduce", file: "attention_vec.metal", summary: "the partitions of attention_vec put together", instances: single,
		args: "0 part read float; 1 statistics read float; 2 out write $0", params: ReduceParams{}, paramsIndex: 3, maxThreads: 64},
	{name: "attention_tile", file: "attention_tile.metal", summary: "attention of 32 tokens at a time over the paged cache",
		instances: cached, args: attentionArgs + "7 out write $0", params: AttentionParams{}, paramsIndex: 8, constants: "0 fc_head uint?",
		threadgroup: func(e []Element) int { return 32*136*e[0].Size() + 4*(4*8*32+4*64+32) }, maxThreads: 128},
	{name: "cache_write", file: "cache.metal", summary: "K and V of every token into its slot", instances: cached,
		args:   "0 k read $0; 1 v read $0; 2 slots read int; 3 k_cache write $1; 4 v_cache write $1",
		params: CacheWriteParams{}, paramsIndex: 5, maxThreads: 64},
	{name: "cache_read", file: "cache.metal", summary: "the cached rows of every sequence, zeros past its length",
		instances: []string{"f32", "f16", "q8_0"}, args: "0 cache read $0; 1 context_lens read int; 2 block_table read int; 3 out write float",
		params: CacheReadParams{}, paramsIndex: 4, maxThreads: 64},
	{name: "silu", file: "elementwise.metal", summary: "a / (1 + exp(-a))", instances: single, args: unaryArgs,
		params: ElementParams{}, paramsIndex: 2, maxThreads: 256},
	{name: "scale", file: "elementwise.metal", summary: "a · value", instances: single, args: unaryArgs,
		params: ElementParams{}, paramsIndex: 2, maxThreads: 256},
	{name: "mul", file: "elementwise.metal", summary: "a · b", instances: single, args: binaryArgs,
		params: ElementParams{}, paramsIndex: 3, maxThreads: 256},
	{name: "add", file: "elementwise.metal", summary: "a + b", instances: single, args: binaryArgs,
		params: ElementParams{}, paramsIndex: 3, maxThreads: 256},
	{name: "silu_mul", file: "elementwise.metal", summary: "silu(a) · b", instances: single, args: binaryArgs,
		params: ElementParams{}, paramsIndex: 3, maxThreads: 256},
	{name: "cast", file: "elementwise.metal", summary: "rows in the other type", instances: []string{"f32_f16", "f16_f32"},
		args: "0 x read $0; 1 out write $1", params: ElementParams{}, paramsIndex: 2, maxThreads: 256},
	{name: "gather_rows", file: "elementwise.metal", summary: "the rows that an index names", instances: single,
		args: "0 x read $0; 1 index read int; 2 out write $0", params: ElementParams{}, paramsIndex: 3, maxThreads: 256},
	{name: "repeat_kv", file: "source.metal", summary: "every KV head copied for each of its query heads", instances: single,
		args: "0 x read $0; 1 out write $0", params: RepeatParams{}, paramsIndex: 2, maxThreads: 256},
	{name: "transpose", file: "source.metal", summary: "a strided tensor of three axes made dense", instances: single,
		args: "0 x read $0; 1 out write $0", params: TransposeParams{}, paramsIndex: 2, maxThreads: 64},
	{name: "matmul", file: "source.metal", summary: "a·b or a·bᵀ of a batch of matrices", instances: single,
		args: binaryArgs, params: MatmulParams{}, paramsIndex: 3, constants: "0 fc_transposed bool?",
		threadgroup: func(e []Element) int { return 2 * 32 * 40 * e[0].Size() }, maxThreads: 128},
	{name: "mask", file: "source.metal", summary: "-inf where a token does not see a key", instances: single,
		args:   "0 scores read $0; 1 positions read int; 2 cu_seqlens read int; 3 context_lens read int; 4 out write $0",
		params: MaskParams{}, paramsIndex: 5, maxThreads: 64},
	{name: "softmax", file: "source.metal", summary: "exp(x - max) / Σ over rows", instances: single,
		args: "0 x read $0; 1 out write $0", params: ElementParams{}, paramsIndex: 2, threadgroup: floats(16), maxThreads: 256},
	{name: "argmax", file: "argmax.metal", summary: "index of the largest element of each row", instances: []string{"f32"},
		args: "0 x read $0; 1 out write int", params: ElementParams{}, paramsIndex: 2, threadgroup: floats(16), maxThreads: 256},
}

func floats(n int) func([]Element) int { return func([]Element) int { return 4 * n } }

var (
	all    = instantiate(families)
	byName = index(all)
)

// All returns every kernel, family by family.
func All() []Kernel { return all }

// Lookup returns the kernel of that host name.
func Lookup(name string) (*Kernel, bool) {
	k, ok := byName[name]
	return k, ok
}

func index(all []Kernel) map[string]*Kernel {
	m := make(map[string]*Kernel, len(all))
	for i := range all {
		m[all[i].Name] = &all[i]
	}
	return m
}

func instantiate(families []family) []Kernel {
	var out []Kernel
	for _, f := range families {
		for _, instance := range f.instances {
			k := Kernel{Name: f.name, Family: f.name, File: f.file, Summary: f.summary,
				Params: structName(f.params), ParamsIndex: f.paramsIndex, ParamWords: len(Words(f.params)), MaxThreads: f.maxThreads}
			var types []Element
			if instance != "" {
				k.Name += "_" + instance
				for _, s := range strings.Split(strings.Replace(instance, "q8_0", "q8", 1), "_") {
					types = append(types, suffixes[s])
				}
			}
			for _, row := range rows(f.args) {
				a := Arg{Name: row.words[0], Element: Element(row.words[2]), Index: row.index, Optional: row.optional}
				a.Access = map[string]Access{"read": Read, "write": Write}[row.words[1]]
				if strings.HasPrefix(row.words[2], "$") {
					a.Element = types[row.words[2][1]-'0']
				}
				k.Args = append(k.Args, a)
			}
			for _, row := range rows(f.constants) {
				k.Constants = append(k.Constants,
					Constant{Index: row.index, Name: row.words[0], Type: row.words[1], Optional: row.optional})
			}
			if f.threadgroup != nil {
				k.ThreadgroupBytes = f.threadgroup(types)
			}
			out = append(out, k)
		}
	}
	return out
}

// row is one entry of a family's lists.
type row struct {
	index    int
	words    []string
	optional bool
}

func rows(list string) []row {
	var out []row
	for _, entry := range strings.Split(list, ";") {
		entry = strings.TrimSpace(entry)
		if entry == "" {
			continue
		}
		r := row{optional: strings.HasSuffix(entry, "?")}
		words := strings.Fields(strings.TrimSuffix(entry, "?"))
		if _, err := fmt.Sscan(words[0], &r.index); err != nil {
			panic(fmt.Sprintf("kernel table: %q: %v", entry, err))
		}
		r.words = words[1:]
		out = append(out, r)
	}
	return out
}
