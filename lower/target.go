package lower

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/predict"
)

// DecodeTokens is the largest step that the decode phase takes.
const DecodeTokens = 1

// normTokens is the largest step whose products in tiles may normalise their input: two
// tiles of tokens.
const normTokens = 64

// Target is a machine that Plans are made for: what passes read of it, and how a Plan is laid
// out for it.
type Target struct {
	ir.Target
	// GPU reports that dispatches are a GPU's, but for matrix products that are placed on the
	// CPU beside it, which sees the same memory. Otherwise all are a CPU's.
	GPU bool
	// Launches reports that kernels run in the threadgroups that the Plan cuts them into. What
	// they are is then chosen by size, and the Plan notes why. Kernels that cut their work
	// themselves take the Plan's only where they are emulated.
	Launches bool
	// Rearranges reports that the device may keep a matrix in an order of its own.
	Rearranges bool
	// Emulates reports that kernels which are not written for the target's processor run there
	// from their Metal source.
	Emulates bool
	// FirstBuffer is the most dispatches of the first command buffer, 0 where there are none: a
	// processor that obeys one step at a time has nothing to be handed early. The next may have
	// BufferGrowth times as many. BufferTime, in µs on the slowest chip, is what none of several
	// dispatches is predicted to exceed.
	FirstBuffer, BufferGrowth int
	BufferTime                float64
	// SplitContext is the context length beyond which the attention of single tokens
	// is cut along the keys, to keep many cores busy; 0 for never. SplitKeys is the number of keys
	// of a part. Where the two are equal, no context is cut in one step and whole in another,
	// however long those beside it are.
	SplitContext, SplitKeys int64

	chip  *predict.Chip // that choices by size are made for; nil: none in particular
	costs predict.Costs // Costs, as a value
}

// targets are the machines that smelt compiles for. All run the kernels of package
// kernels; they differ in the rest.
var targets = map[string]Target{
	// A GPU is handed its work in command buffers, cut so that it is never without work and
	// never long at it. The first is short and starts while the rest is encoded. The next
	// may hold three times as many dispatches, since none takes less than that many times as
	// long to run as to encode. A GPU that others wait for kills buffers that take seconds.
	"metal": {
		Target: ir.Target{Name: "metal", Act: dtype.F16},
		GPU:    true, Launches: true, FirstBuffer: 16, BufferGrowth: 3, BufferTime: 100e3, SplitContext: tunings[0].split, SplitKeys: tunings[0].partition,
	},
	// A CPU that decodes streams through all weights for every token, and gains more from an
	// order made for its vectors than the copy costs. A GPU reads the file's rows, whose
	// pages it shares with the page cache.
	"cpu": {Target: ir.Target{Name: "cpu", Act: dtype.F32}, Emulates: true, Rearranges: true},
}

// Targets lists the names that NewTarget takes.
func Targets() []string { return slices.Sorted(maps.Keys(targets)) }

// NewTarget returns what the named machine ("metal" or "cpu") can do.
func NewTarget(name string) (*Target, error) {
	t, ok := targets[name]
	if !ok {
		return nil, fmt.Errorf("no target is called %q (%s)", name, strings.Join(Targets(), ", "))
	}
	for op, rows := range instances {
		t.Kernels[op] = nativeWhere(rows, !t.Emulates)
	}
	for _, op := range []ir.Op{ir.OpRopeQKVWriteAttention, ir.OpHeadNormRopeKVWriteAttention} {
		// A processor that would emulate it has kernels for what it is made of.
		t.Kernels[op] = slices.DeleteFunc(t.Kernels[op], func(row ir.Instance) bool { return !row.Native })
	}
	t.MaxHead = kernels.MaxHead
	t.Gated, t.Gathers = true, !t.Emulates
	t.Tune(nil)
	t.FewNorms, t.ManyNorms = []ir.NormKind{ir.RMSNorm, ir.LayerNorm}, []ir.NormKind{ir.RMSNorm}
	t.NormTokens, t.NormColumns, t.NormsApart = t.FewTokens, kernels.MatColumns, t.Launches
	if t.Launches { // a CPU's threads normalise once for all
		t.NormTokens = normTokens
	}
	return &t, nil
}

// Tune makes a target choose by size for a chip, or for no chip in particular where there
// is none.
func (t *Target) Tune(chip *predict.Chip) {
	m := machineOf(chip)
	t.chip, t.costs, t.FewTokens = chip, predict.Costs{}, m.vecTokens
	if chip != nil {
		t.costs.Rates = chip.Rates()
	}
	if t.Launches {
		t.costs.Groups, t.costs.Heads, t.costs.Elements = m.attending*m.cores, kernels.MaxHeads, attentionElements
	}
	t.Costs = t.costs
	if t.SplitContext > 0 {
		t.SplitContext, t.SplitKeys = m.splitContext(), m.partitionKeys()
	}
}

// CutAlike makes a target cut contexts as soon as they have more keys than a part, for steps of
// several sequences: what is cut does not depend then on which of them is the longest. Such
// steps have threadgroups enough for parts that leave shorter contexts whole.
func (t *Target) CutAlike() {
	if t.SplitContext == 0 {
		return
	}
	t.SplitKeys = max(t.SplitKeys, 512)
	t.SplitContext = t.SplitKeys
}

// UseSameBits makes a target use one family of kernels for all rows, however many a step has: of
// products linear_mat, after norms of their own, and of attention attention_vec, which loads
// keys once for a few rows and adds them up as for one; experts run in linear_vec, which adds up
// what they give. What cuts its work itself has nothing to choose.
func (t *Target) UseSameBits() {
	if !t.Launches {
		return
	}
	t.SameBits, t.NormTokens, t.FewTokens = true, 0, 0
	t.CutAlike()
}

// nativeWhere marks kernels as native, of a target that has no others.
func nativeWhere(rows []ir.Instance, all bool) []ir.Instance {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].Native = rows[i].Native || all
	}
	return rows
}

// xsplit are the families of kernels for caches of the x-split layout. Other ops that touch a
// cache have none.
var xsplit = map[ir.Op][]string{
	ir.OpCacheWrite: {"reshape_and_cache"}, ir.OpCopyBlocks: {"copy_blocks"}, ir.OpAttention: {"paged_attention_v1", "paged_attention_v2"},
}

// XSplitBlock is how many slots a block of the x-split layout has where nobody asks for another
// number: vLLM's.
const XSplitBlock = 16

// UseXSplit gives a target the caches of vLLM and Aphrodite, and what there is for them instead
// of its own kernels.
func (t *Target) UseXSplit() {
	t.XSplit = true
	for op := range t.Kernels {
		if names, ok := xsplit[ir.Op(op)]; ok {
			t.Kernels[op] = nativeWhere(common(byFamily, names), !t.Emulates)
		} else if slices.ContainsFunc(t.Kernels[op], func(row ir.Instance) bool { return row.Cache != dtype.Invalid }) || ir.Op(op) == ir.OpCacheRead {
			t.Kernels[op] = nil
		}
	}
}

// CheckXSplit reports blocks and types that the kernels of the x-split layout do not take.
func CheckXSplit(act, cache dtype.Type, block int) error {
	switch {
	case cache != act:
		return fmt.Errorf("the x-split layout has caches of the activations' type: %s beside %s", cache, act)
	case block != 8 && block != 16 && block != 32:
		return fmt.Errorf("the x-split layout has blocks of 8, 16 or 32 slots, not %d", block)
	}
	return nil
}

// Emulated reports whether the device of a target runs a kernel from its Metal source, for
// want of one written for it.
func Emulated(target, kernel string) bool {
	k, ok := kernels.Lookup(kernel)
	return targets[target].Emulates && ok && !k.Native
}

// TileType is the element type of the tiles that a kernel for products of many tokens
// multiplies; Invalid of other kernels.
func TileType(kernel string) dtype.Type {
	if k, ok := kernels.Lookup(kernel); ok && (k.Family == linearMat || k.Family == normLinearMat) {
		return elementTypes[kernels.MatTile(k)]
	}
	return dtype.Invalid
}

// CacheTypes lists the element types that a KV cache may have: those that attention has
// kernels for, beside activations in float.
func CacheTypes() []dtype.Type {
	return slices.DeleteFunc(dtype.All(), func(t dtype.Type) bool {
		return !slices.ContainsFunc(instances[ir.OpAttention], func(row ir.Instance) bool {
			return row.Types == ir.Types{In: dtype.F32, Out: dtype.F32, Cache: t}
		})
	})
}

// The families of products.
const (
	linearVec = "linear_vec"
	linearMat = "linear_mat"
	// RMSNorm and linear_mat.
	normLinearMat = "norm_linear_mat"
)

// families are the families of kernels that compute an op, where that is not the one of
// its name.
var families = map[ir.Op][]string{
	ir.OpGain:   {"mul"},
	ir.OpLinear: {linearVec, linearMat}, ir.OpFusedLinear: {linearVec, linearMat},
	ir.OpExpertLinear: {linearVec, linearMat}, ir.OpRoutedLinear: {linearVec, linearMat},
	ir.OpAttention: {"attention_vec", "attention_tile"}, ir.OpSlice: {"transpose"},
	ir.OpQKVWrite:              {"rope_qkv_write"},
	ir.OpGatedShortConv:        {"short_conv"},
	ir.OpRopeQKVWriteAttention: {"attention_write"}, ir.OpHeadNormRopeKVWriteAttention: {"attention_write"},
}

// byFamily are the instances of each family.
var byFamily = func() map[string][]ir.Instance {
	table, all := map[string][]ir.Instance{}, kernels.All()
	for i := range all {
		k := &all[i]
		table[k.Family] = append(table[k.Family], instanceOf(k))
	}
	return table
}()

// instances are the kernels of each op, by the types that they are instances of.
var instances = func() (table [ir.NumOps][]ir.Instance) {
	for op := range table {
		names, ok := families[ir.Op(op)]
		if !ok {
			names = []string{ir.Op(op).String()}
		}
		table[op] = common(byFamily, names)
	}
	for i := range table[ir.OpGain] { // whose weights are a matrix in files, and activations to the kernel
		table[ir.OpGain][i].Weights = dtype.SetOf(table[ir.OpGain][i].In)
	}
	return table
}()

// common returns the instances that all of some families have.
func common(byFamily map[string][]ir.Instance, names []string) []ir.Instance {
	rows := slices.Clone(byFamily[names[0]])
	for _, name := range names[1:] {
		rows = slices.DeleteFunc(rows, func(row ir.Instance) bool {
			return !slices.ContainsFunc(byFamily[name], func(o ir.Instance) bool { return o.Types == row.Types })
		})
		for i := range rows {
			for _, o := range byFamily[name] {
				if o.Types == rows[i].Types {
					rows[i].Weights &= o.Weights
					rows[i].Native = rows[i].Native && o.Native
				}
			}
		}
	}
	return rows
}

// elementTypes are the element types of kernels' buffers.
var elementTypes = map[kernels.Element]dtype.Type{
	kernels.Float: dtype.F32, kernels.Half: dtype.F16, kernels.Bfloat: dtype.BF16, kernels.Int: dtype.I32, kernels.Blocks: dtype.Q8_0,
}

// weightTypes are the stored types that kernels decode.
var weightTypes = dtype.Weights()

// instanceOf reads a kernel's types off its buffers.
func instanceOf(k *kernels.Kernel) ir.Instance {
	row := ir.Instance{Native: k.Native}
	for _, a := range k.Args {
		t := elementTypes[a.Element]
		switch {
		case a.Element == kernels.Bytes:
			row.Weights = dtype.SetOf(weightTypes...)
		case a.IsCache():
			row.Cache = t
		case a.Access == kernels.Read && row.In == dtype.Invalid:
			row.In = t
		case a.Access == kernels.Write && row.Out == dtype.Invalid:
			row.Out = t
		}
	}
	return row
}
