package kernels

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Limits of launches.
const (
	MaxHead             = 512      // elements of a head, for attention and the fused writes
	MaxLatent           = 576      // elements of a row of a latent cache
	MaxSmallHead        = 256      // the same, for kernels that hold more rows of heads at once
	HeadStep            = 8        // their number is a multiple of it
	MaxThreadgroupBytes = 32 << 10 // of threadgroup memory on every Apple GPU
)

// Access is the direction in which a kernel uses a buffer.
type Access uint8

// The kinds of access. No argument is read and written, but the same memory may be bound to
// two arguments where the package doc allows it.
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

// Element is the MSL type that a buffer's pointer points to. Bytes is that of weights, in the
// blocks of their type.
type Element string

// The element types.
const (
	Float  Element = "float"
	Half   Element = "half"
	Bfloat Element = "bfloat"
	Int    Element = "int"
	Bytes  Element = "uchar"
	// Blocks is that of Q8_0 caches: a block of 32 elements.
	Blocks Element = "CacheBlock"
)

// Size returns the size of an element, or of a block of them, in bytes.
func (e Element) Size() int {
	switch e {
	case Half, Bfloat:
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
	Optional bool // may be unbound unless a function constant enables it
}

// IsCache reports whether the kernel reads the buffer as a layer's state from earlier steps:
// keys, values, or a recurrent state.
func (a *Arg) IsCache() bool { return slices.Contains(cacheArgs, a.Name) }

var cacheArgs = []string{"cache", "k_cache", "v_cache", "k_from", "v_from", "state"}

// Constant is a function constant. An optional constant that is not set is zero, false,
// or the default that its comment in the source gives.
type Constant struct {
	Index    int
	Name     string
	Type     string // "bool" or "uint"
	Optional bool
}

// Kernel is one instance of a family, from which a pipeline is made.
type Kernel struct {
	Name             string // host name
	Family           string // name without types
	File             string // of the sources
	Summary          string
	Args             []Arg      // by index, without the parameters
	Params           string     // name of the parameter struct, in params.h and here
	ParamsIndex      int        // buffer that the parameter struct is bound to
	ParamWords       int        // words of the parameter struct
	ParamNames       []string   // of each word, as in params.h; shared, read-only
	Constants        []Constant // shared by the instances of a family, read-only
	ThreadgroupBytes int        // static threadgroup memory
	MaxThreads       int        // of a threadgroup
	Grid             []Axis     // three axes, or nil if the grid depends on more than parameters
	Native           bool       // package native implements it, for every processor
	Scalar           bool       // loads elements one by one, and so at any offset

	check func(c *checker)
}

// Arg returns the buffer at an index; the parameter struct is not a buffer.
func (k *Kernel) Arg(index int) (Arg, bool) {
	for _, a := range k.Args {
		if a.Index == index {
			return a, true
		}
	}
	return Arg{}, false
}

// Named returns the buffer with a name.
func (k *Kernel) Named(arg string) (Arg, bool) {
	for _, a := range k.Args {
		if a.Name == arg {
			return a, true
		}
	}
	return Arg{}, false
}

// Constant returns the function constant with a name.
func (k *Kernel) Constant(name string) (Constant, bool) {
	for _, c := range k.Constants {
		if c.Name == name {
			return c, true
		}
	}
	return Constant{}, false
}

// Param returns the index of a named word of the parameter struct, such as "x_stride", or
// "size[2]" of an array.
func (k *Kernel) Param(name string) (word int, ok bool) {
	word = slices.Index(k.ParamNames, name)
	return word, word >= 0
}

// family is a row of the table: a template, and the instances as suffixes. In an
// argument's type, "$0" is the instance's first type and "$1" its second.
type family struct {
	name        string
	file        string
	summary     string
	instances   []string
	args        string // "index name access type", separated by semicolons; a trailing ? marks optional ones
	params      Params
	paramsIndex int
	constants   string // "index name type", likewise
	threadgroup func(e []Element) int
	maxThreads  int
	scalar      bool             // see [Kernel.Scalar]
	grid        string           // see axes; empty if it depends on more than parameters
	check       func(c *checker) // the checks that Check makes for this family only
}

var (
	single = []string{"f32", "f16"}
	double = []string{"f32_f32", "f32_f16", "f16_f32", "f16_f16"}
	blocks = []string{"f32_q8_0", "f16_q8_0"}
	cached = slices.Concat(double, blocks)
)

var suffixes = map[string]Element{"f32": Float, "f16": Half, "bf16": Bfloat, "q8": Blocks}

var families = slices.Concat(linearFamilies, rowFamilies, ropeFamilies, attentionFamilies, publishedFamilies, recurrentFamilies, replicateFamilies, sourceFamilies)

func floats(n int) func([]Element) int { return func([]Element) int { return 4 * n } }

var (
	all    = instantiate(families)
	byName = index(all)
)

// All returns every kernel, family by family.
func All() []Kernel { return all }

// Lookup returns the kernel with a host name.
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
	count := 0
	for _, f := range families {
		count += len(f.instances)
	}
	out := make([]Kernel, 0, count)
	for _, f := range families {
		names := wordNames(f.params)
		common := Kernel{Name: f.name, Family: f.name, File: f.file, Summary: f.summary,
			Params: structName(f.params), ParamsIndex: f.paramsIndex, ParamWords: len(names), ParamNames: names,
			MaxThreads: f.maxThreads, Grid: axes(f.grid, names), Scalar: f.scalar, check: f.check}
		for _, row := range rows(f.constants) {
			common.Constants = append(common.Constants,
				Constant{Index: row.index, Name: row.words[0], Type: row.words[1], Optional: row.optional})
		}
		args := rows(f.args)
		for _, instance := range f.instances {
			k := common
			var types []Element
			if instance != "" {
				k.Name += "_" + instance
				for _, s := range strings.Split(strings.Replace(instance, "q8_0", "q8", 1), "_") {
					types = append(types, suffixes[s])
				}
			}
			k.Args = make([]Arg, 0, len(args))
			for _, row := range args {
				a := Arg{Name: row.words[0], Access: accesses[row.words[1]], Element: Element(row.words[2]), Index: row.index, Optional: row.optional}
				if strings.HasPrefix(row.words[2], "$") {
					a.Element = types[row.words[2][1]-'0']
				}
				k.Args = append(k.Args, a)
			}
			k.Native = slices.Contains(natives, k.Name)
			if f.threadgroup != nil {
				k.ThreadgroupBytes = f.threadgroup(types)
			}
			out = append(out, k)
		}
	}
	return out
}

var accesses = map[string]Access{"read": Read, "write": Write}

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
		var err error
		if r.index, err = strconv.Atoi(words[0]); err != nil {
			panic(fmt.Sprintf("kernel table: %q: %v", entry, err))
		}
		r.words = words[1:]
		out = append(out, r)
	}
	return out
}
