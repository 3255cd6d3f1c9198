// Package lint checks .metal sources for errors of Apple's compiler, with clang-19 in its C++
// for OpenCL mode. That language shares MSL's address spaces and its restrictions (no double,
// exceptions, virtual functions, function pointers, program-scope variables); a prelude provides
// MSL's names. The package rewrites the differences first: function constants get a value, and
// kernel templates are expanded for each of their instances, so that their bodies are checked
// with real types.
//
// It checks types. mslgen checks attributes, recursion and methods called on objects in device
// memory.
package lint

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

//go:embed prelude.h
var prelude []byte

const compiler = "clang-19"

// Available reports whether the compiler is installed.
func Available() bool {
	_, err := exec.LookPath(compiler)
	return err == nil
}

// flags select the language, without doubles. A pointer without address space, an error in MSL,
// is generic here: scan reports it, because structs could not be copied without the generic
// space.
var flags = []string{
	"-x", "clcpp", "-cl-std=CLC++2021", "-target", "spir64", "-cl-no-stdinc", "-nostdinc",
	"-Xclang", "-cl-ext=+all,-cl_khr_fp64,-__opencl_c_fp64",
	"-cl-single-precision-constant", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-unused-function", "-Wno-unused-const-variable",
	"-Wno-missing-field-initializers", "-fno-color-diagnostics",
}

// Check returns the complaints about a self-contained source, one line each. Macros, NAME=VALUE,
// are applied by preprocessing first, which loses line numbers.
func Check(name, source string, macros ...string) (complaints []string, err error) {
	if source, err = preprocess(source, macros); err != nil {
		return nil, err
	}
	text, err := prepare(name, source)
	if err != nil {
		return []string{err.Error()}, nil
	}
	var tree []byte
	err = with(text, func(files []string) error {
		tree, complaints, err = run(append(append([]string{"-fsyntax-only", "-Xclang", "-ast-dump"}, flags...), files...), "")
		return err
	})
	if len(complaints) > 0 { // after errors the tree is incomplete
		return complaints, err
	}
	return append(scan(tree), loops(tree)...), err
}

// with calls f with the compiler's arguments for a prepared source.
func with(text string, f func(files []string) error) error {
	dir, err := os.MkdirTemp("", "lint")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for file, content := range map[string][]byte{"prelude.h": prelude, "source.cl": []byte(text)} {
		if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
			return err
		}
	}
	return f([]string{"-include", filepath.Join(dir, "prelude.h"), filepath.Join(dir, "source.cl")})
}

// preprocess applies macros to a source.
func preprocess(source string, macros []string) (string, error) {
	if len(macros) == 0 {
		return source, nil
	}
	args := []string{"-E", "-P", "-x", "c++"}
	for _, m := range macros {
		args = append(args, "-D"+m)
	}
	out, complaints, err := run(append(args, "-"), include.ReplaceAllString(source, ""))
	if err == nil && len(complaints) > 0 {
		err = errors.New(complaints[0])
	}
	return string(out), err
}

func run(args []string, stdin string) (stdout []byte, complaints []string, err error) {
	cmd := exec.Command(compiler, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, diagnostics bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &diagnostics
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, nil, err
	}
	for line := range strings.Lines(diagnostics.String()) {
		if strings.Contains(line, "error:") || strings.Contains(line, "warning:") {
			complaints = append(complaints, strings.TrimSpace(line))
		}
	}
	if exit != nil && len(complaints) == 0 {
		complaints = []string{diagnostics.String()}
	}
	return out.Bytes(), complaints, nil
}

var (
	unspaced     = regexp.MustCompile(`(?:ParmVarDecl|VarDecl) .* (\w+) '(?:const |volatile )?__generic `)
	programScope = regexp.MustCompile(`^\|-VarDecl.*'(?:const )?__global`)
)

// scan returns the errors in clang's syntax tree that are errors in MSL only.
func scan(tree []byte) []string {
	var out []string
	for line := range strings.Lines(string(tree)) {
		switch {
		case strings.Contains(line, "GotoStmt"):
			out = append(out, "goto")
		case programScope.MatchString(line) && !strings.Contains(line, "prelude.h"):
			out = append(out, "program-scope variable outside the constant address space: "+strings.TrimSpace(line))
		case writesGeneric(line):
			out = append(out, "pointer or reference without address space: "+strings.TrimSpace(line))
		}
	}
	return out
}

// writesGeneric reports whether a line declares a generic pointer, other than in the unnamed
// parameters of copy functions that the compiler adds to structs.
func writesGeneric(line string) bool {
	if !strings.Contains(line, "__generic") { // fast path: a tree has hundreds of thousands of lines
		return false
	}
	m := unspaced.FindStringSubmatch(line)
	return m != nil && m[1] != "used" && m[1] != "referenced" &&
		!strings.Contains(line, "implicit") && !strings.Contains(line, "&&'")
}

var (
	include       = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include[^\n]*`)
	constant      = regexp.MustCompile(`\[\[\s*function_constant\(\d+\)\s*\]\]\s*;`)
	atomic        = regexp.MustCompile(`\batomic_(uint|int|float)\b`)
	instantiation = regexp.MustCompile(`template\s*\[\[\s*host_name\(\s*"([^"]+)"\s*\)\s*\]\]\s*kernel\s+[^;]*?(\w+)<([^;<>]*)>\s*;`)
	anyHostName   = regexp.MustCompile(`template\s*\[\[\s*host_name\([^;]*;`)
	kernelHead    = regexp.MustCompile(`template\s*<([^<>]*)>\s*(?:kernel|\[\[kernel\b[^\]]*\]\])\s+void\s+(\w+)`)
)

// prepare rewrites MSL to the dialect that clang reads, keeping line numbers.
func prepare(name, s string) (string, error) {
	s = include.ReplaceAllString(s, "")
	s = constant.ReplaceAllString(s, "= {};")
	s = atomic.ReplaceAllString(s, "msl_atomic_$1")
	instances := instantiation.FindAllStringSubmatch(s, -1)
	s = anyHostName.ReplaceAllStringFunc(s, func(m string) string { return strings.Repeat("\n", strings.Count(m, "\n")) })

	var b strings.Builder
	fmt.Fprintf(&b, "#line 1 %q\n", name)
	for line := 1; ; {
		m := kernelHead.FindStringSubmatchIndex(s)
		if m == nil {
			b.WriteString(s)
			return b.String(), nil
		}
		end := closing(s, m[1])
		if end < 0 {
			return "", fmt.Errorf("%s: kernel %s is never closed", name, s[m[4]:m[5]])
		}
		b.WriteString(s[:m[0]])
		kernel := s[m[0]:end]
		line += strings.Count(s[:m[0]], "\n")
		parameters, function := strings.Split(s[m[2]:m[3]], ","), s[m[4]:m[5]]
		head := len(kernelHead.FindString(kernel))
		for _, i := range instances {
			if i[2] != function {
				continue
			}
			fmt.Fprintf(&b, "\nnamespace instance_%s {", i[1])
			for n, argument := range strings.Split(i[3], ",") {
				words := strings.Fields(parameters[n])
				kind, name := words[0], words[len(words)-1]
				if kind == "typename" || kind == "class" {
					fmt.Fprintf(&b, " typedef %s %s;", strings.TrimSpace(argument), name)
				} else {
					fmt.Fprintf(&b, " constant constexpr %s %s = %s;", kind, name, strings.TrimSpace(argument))
				}
			}
			fmt.Fprintf(&b, "\n#line %d %q\nkernel void %s%s\n}", line+strings.Count(kernel[:head], "\n"), name, i[1], kernel[head:])
		}
		line += strings.Count(kernel, "\n")
		fmt.Fprintf(&b, "\n#line %d %q\n", line, name)
		s = s[end:]
	}
}

// closing returns the index after the brace that closes the first one at or after i.
func closing(s string, i int) int {
	depth := 0
	for ; i < len(s); i++ {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}
