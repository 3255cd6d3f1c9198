package lower

import (
	"slices"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

// choice is a setting of a Plan that is chosen by size, or by measurement on the device: its
// fields, and their possible values at a site. Lowering decides it with [phase.decide]; a
// measurement tries the settings of a [plan.Site].
type choice struct {
	name   string
	fields []string
	// exact reports whether all settings give bit-identical results, by the kernels' laws. Tunings
	// keep winners of exact choices only, whatever another one saves.
	exact    bool
	settings func(sizes) []plan.Setting
}

// sizes are the inputs of a choice at a site.
type sizes struct {
	shape        string
	stored, act  dtype.Type
	tokens, k, n int64
	shared, head int64 // query heads per KV head, and elements per head
}

// The choices.
var (
	// Rows of the weights that a simdgroup of linear_vec owns, and simdgroups of a threadgroup.
	vecLaunch = &choice{"linear_vec", []string{"rows", "simdgroups"}, true, func(at sizes) (all []plan.Setting) {
		for rows := int64(2); rows <= mostRows(at.stored, at.tokens); rows *= 2 {
			for simdgroups := int64(2); simdgroups <= 8; simdgroups *= 2 {
				all = append(all, plan.Setting{"rows": rows, "simdgroups": simdgroups})
			}
		}
		return all
	}}
	// Tokens of a tile of linear_mat.
	matTile = &choice{"linear_mat", []string{"tile"}, true, func(at sizes) []plan.Setting {
		if at.act.Bytes(1) != 2 {
			return only("tile", 32)
		}
		return only("tile", 32, 64)
	}}
	// Whether products of few tokens run as mat-vec or in tiles. The two sum in different orders.
	vecOrMat = &choice{"product", []string{"vec"}, false, func(at sizes) []plan.Setting {
		if at.tokens < 2 || at.tokens > 32 {
			return nil
		}
		return only("vec", 0, 1)
	}}
	// Keys per partition of attention (split-K); attention_reduce combines the partitions' sums.
	partition = &choice{"partition", []string{"keys"}, false, func(sizes) []plan.Setting {
		return only("keys", 256, 512, 1024)
	}}
	// Query heads per threadgroup of attention, which read the keys of their KV head once.
	sharedHeads = &choice{"shared_heads", []string{"heads"}, true, func(at sizes) (all []plan.Setting) {
		for n := int64(1); n == 1 || n < 2*at.shared && n <= kernels.MaxHeads && n*at.head <= kernels.MaxQueries; n *= 2 {
			all = append(all, plan.Setting{"heads": n})
		}
		return all
	}}
	// Hints to the CPU's native kernels; 0 leaves the choice to the kernel.
	streams = hinted(kernels.HintStreams, func(at sizes) []plan.Setting {
		if at.tokens > 1 {
			return nil
		}
		return only("streams", 0, 1)
	})
	ahead = hinted(kernels.HintAhead, func(at sizes) []plan.Setting {
		if at.tokens > 3 {
			return nil
		}
		return only("ahead", 0, 64, 1024, 4096, 8192)
	})
	piece = hinted(kernels.HintPiece, func(at sizes) []plan.Setting {
		if at.tokens < 4 {
			return nil
		}
		values := []int64{0, 512, 2048}
		if at.stored.IsQuantized() {
			values = []int64{0, 256, 512}
		}
		return only("piece", slices.DeleteFunc(values, func(n int64) bool { return n >= at.k })...)
	})
	pairs = hinted(kernels.HintPairs, func(at sizes) []plan.Setting {
		if at.tokens > 1 || at.stored != dtype.Q6_K {
			return nil
		}
		return only("pairs", 0, 1, 2)
	})
	// Whether the device stores a matrix in a layout of its own: a CPU does unless that was measured
	// to be slower, a GPU only where it was measured to be faster.
	layout = &choice{"layout", []string{"rearranged"}, true, func(sizes) []plan.Setting { return only("rearranged", 0, 1) }}
)

// choices is the table.
var choices = []*choice{vecLaunch, matTile, vecOrMat, partition, sharedHeads, streams, ahead, piece, pairs, layout}

// Choices returns the names of the choices that can be measured.
func Choices() []string {
	names := make([]string, len(choices))
	for i, c := range choices {
		names[i] = c.name
	}
	return names
}

func choiceNamed(name string) *choice {
	if i := slices.IndexFunc(choices, func(c *choice) bool { return c.name == name }); i >= 0 {
		return choices[i]
	}
	return nil
}

// hinted returns the choice of a hint to native kernels.
func hinted(h kernels.Hint, settings func(sizes) []plan.Setting) *choice {
	return &choice{h.String(), []string{h.String()}, true, settings}
}

// mostRows returns the maximum number of weight rows per simdgroup of linear_vec.
func mostRows(stored dtype.Type, tokens int64) int64 {
	if tokens > 1 {
		return 2
	}
	return stored.Row().VecRows
}

// only returns the settings of a choice's only field.
func only(field string, values ...int64) (all []plan.Setting) {
	for _, v := range values {
		all = append(all, plan.Setting{field: v})
	}
	return all
}

// decision is the result of a choice at a site.
type decision struct {
	plan.Setting
	why      string
	measured bool
}

// decisionKey identifies a decision within a phase. Layers of the same shape share it.
type decisionKey struct {
	*choice
	kernel, shape string
}

// decided is a decision and the index of its site; -1 where the choice has one setting at most.
type decided struct {
	decision
	site int
}

// site returns the site of the choice at a kernel and sizes, with by as the setting taken.
func (c *choice) site(kernel string, at sizes, by plan.Setting) plan.Site {
	return plan.Site{Choice: c.name, Kernel: kernel, Shape: at.shape, Taken: by, Settings: c.settings(at), Exact: c.exact}
}
