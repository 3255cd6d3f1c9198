package kernels

import (
	"slices"
	"strings"

	"github.com/smelt-ml/smelt/ir/sym"
)

// Index describes an argument of integers by which a kernel finds memory. Unless Checked, the
// kernel relies on their values, so that a Plan may bind the argument only to what is listed here.
type Index struct {
	Checked bool     // the kernel looks at each value itself
	Inputs  []string // the inputs, whose values a device checks before a step
	Derived bool     // inputs that follow from positions as well
	Owners  bool     // inputs that the device derives from cu_seqlens
	// Made is the argument of group_by_expert that the integers come from.
	Made string
	// Sizes are parameters that must be sizes of the step, as those of the inputs are.
	Sizes map[string]sym.Sym
}

// indices are the arguments of integers, by name. A kernel only compares positions, and
// so takes any.
var indices = map[string]Index{
	"tokens":       {Checked: true},
	"expert":       {Checked: true},
	"positions":    {Inputs: []string{sym.Positions, sym.Ends}, Derived: true},
	"slots":        {Inputs: []string{sym.Slots}},
	"cu_seqlens":   {Inputs: []string{sym.CuSeqlens}, Sizes: map[string]sym.Sym{"tokens": sym.T, "seqs": sym.B}},
	"context_lens": {Inputs: []string{sym.ContextLens}},
	"states":       {Inputs: []string{sym.States}, Sizes: map[string]sym.Sym{"seqs": sym.B}},
	"block_table":  {Inputs: []string{sym.BlockTable}, Sizes: map[string]sym.Sym{"table_stride": sym.NB}},
	"index":        {Inputs: []string{sym.LogitRows}},
	"pairs":        {Inputs: []string{sym.Copies}},
	"map":          {Owners: true},
	"rows":         {Inputs: []string{sym.LogitRows}, Made: "order"},
	"starts":       {Made: "starts"},
}

// Index returns the description of an argument that the kernel reads integers from.
func (k *Kernel) Index(a *Arg) (Index, bool) {
	if a.Element != Int || a.Access != Read {
		return Index{}, false
	}
	i, ok := indices[a.Name]
	return i, ok
}

// Takes returns, in words, what the argument may be bound to.
func (i *Index) Takes() string {
	var names []string
	for _, name := range i.Inputs {
		names = append(names, "the input "+name)
	}
	if i.Derived {
		names = append(names, "what follows from positions")
	}
	if i.Owners {
		names = append(names, "owners of the device's")
	}
	if i.Made != "" {
		names = append(names, i.Made+" of "+GroupByExpert)
	}
	return strings.Join(names, ", or ")
}

// GroupByExpert is the family whose results are indices.
const GroupByExpert = "group_by_expert"

// IsKept reports whether the buffer holds a layer's state between steps, one part for each block
// of the cache or state, be it read or written.
func (a *Arg) IsKept() bool { return a.IsCache() || slices.Contains(keptArgs, a.Name) }

var keptArgs = []string{"k_slots", "v_slots", "state_out"}
