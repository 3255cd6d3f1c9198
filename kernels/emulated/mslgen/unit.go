// Package mslgen reads Metal Shading Language sources and writes the C++ that
// executes them on the CPU.
//
// It is a translator, not a compiler: a tokenizer and preprocessor with MSL's
// predefined macros, a parser of declarations (function bodies stay tokens), a few
// checks that a C++ compiler would not make (recursion, threadgroup variables outside
// kernels, an argument without attribute, threadgroup memory over 32 KB), and a writer
// that rewrites only what differs between MSL and C++ and keeps every token on its
// line, so that crashes and debuggers name the .metal source:
//
//   - address spaces and attributes go; `constant` stays as const
//   - 2.0 is a float, 2.0h a half, char is signed
//   - v.xyz is a call of a member template, v.xy = … of one that returns a reference
//   - function constants become calls that read the running launch
//   - threadgroup variables become references into the threadgroup's memory
//   - every kernel, and every instantiation with a host name, gets a thunk that
//     calls it for one thread
//   - a header with which several units of a package begin is written once, as a .gen.h
//     that they include, if its C++ is the same in each
//
// It returns an [*Error] with file and line for anything that it does not support.
package mslgen

// Unit is one .metal file with everything it includes.
type Unit struct {
	Path      string
	Headers   []string // quoted includes, resolved
	Constants []Constant
	Kernels   []*Kernel // in source order

	lead    string // the header whose tokens come first, or ""
	leadEnd int    // the number of tokens up to its end
	parser  *parser
}

// Constant is a program-scope variable with [[function_constant(Index)]].
type Constant struct {
	Pos
	Name  string
	Type  string
	Index int
}

// Kernel is one pipeline function: a plain kernel, or an instantiation of a kernel
// template under its host name.
type Kernel struct {
	Pos
	Name         string   // host name
	Function     string   // name in the source
	TemplateArgs []string // empty for a plain kernel
	MaxThreads   int      // [[max_total_threads_per_threadgroup]], or 0
	Args         []Argument
	Threadgroup  []Variable // static threadgroup variables
	Constants    []int      // function constants that it reads, directly or through helpers
	Required     []int      // those of them that is_function_constant_defined never tests
	Sync         bool       // threads synchronise: barriers, simdgroup operations, waiting on atomics
}

// ThreadgroupBytes returns the static threadgroup memory in bytes, with each variable
// aligned to 16 bytes.
func (k *Kernel) ThreadgroupBytes() int {
	n := 0
	for _, v := range k.Threadgroup {
		n = (n+15)&^15 + v.Bytes
	}
	return n
}

// Buffer returns the argument bound to [[buffer(index)]], or nil.
func (k *Kernel) Buffer(index int) *Argument {
	for i := range k.Args {
		if k.Args[i].Kind == Buffer && k.Args[i].Index == index {
			return &k.Args[i]
		}
	}
	return nil
}

// ArgKind is the source of a kernel argument's value.
type ArgKind uint8

const (
	Buffer      ArgKind = iota // [[buffer(i)]]
	Threadgroup                // [[threadgroup(i)]]: dynamic threadgroup memory
	Position                   // [[thread_position_in_grid]] and similar attributes
)

func (k ArgKind) String() string { return [...]string{"buffer", "threadgroup", "position"}[k] }

// Argument is one parameter of a kernel.
type Argument struct {
	Pos
	Name      string
	Kind      ArgKind
	Index     int    // of buffer and threadgroup arguments
	Space     string // device, constant or threadgroup
	Const     bool   // the pointee is const (constant memory always is)
	Type      string // of the pointee, or of the position
	Reference bool
	Attribute string // of a position, e.g. thread_position_in_grid
}

// Variable is a threadgroup variable in a kernel body.
type Variable struct {
	Pos
	Name  string
	Type  string
	Bytes int
}

// Limits of the targeted Metal devices.
const (
	MaxThreadgroupBytes = 32 << 10
	MaxThreads          = 1024
	MaxBuffers          = 31
	MaxConstants        = 32
	MaxDynamic          = 4 // [[threadgroup(i)]] arguments, by kernels/abi/abi.h
)

// Parse parses the file at path; read provides it and everything that it includes.
func Parse(path string, read Reader) (*Unit, error) {
	p := &preprocessor{read: read, once: map[string]bool{}, macros: map[string]*macro{
		"__METAL__":         {body: []token{{kind: number, text: "1"}}},
		"__METAL_VERSION__": {body: []token{{kind: number, text: "310"}}},
		"__cplusplus":       {body: []token{{kind: number, text: "201402L"}}},
	}}
	if err := p.file(path, Pos{path, 1}); err != nil {
		return nil, err
	}
	u := &Unit{Path: path, Headers: p.headers, lead: p.lead, leadEnd: p.leadEnd}
	u.parser = newParser(u, p.out)
	if err := u.parser.parse(); err != nil {
		return nil, err
	}
	if err := u.parser.check(); err != nil {
		return nil, err
	}
	return u, nil
}
