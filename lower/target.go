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

// DecodeTokens is the maximum number of tokens of a step of the decode phase.
const DecodeTokens = 1

// normTokens is the maximum number of tokens of a step whose tiled products normalise their
// input: two tiles.
const normTokens = 64

// Target is a machine that Plans are made for: the part that passes read, and the settings that
// lower reads.
type Target struct {
	ir.Target
	// GPU reports whether dispatches run on a GPU, except for matrix products that a [Placement]
	// gives to the CPU that shares its memory. Otherwise all run on the CPU.
	GPU bool
	// Launches reports whether the device launches kernels with the Plan's grids and threadgroups,
	// as a GPU does. Lower then chooses them by size and notes the reasons in the Plan. Otherwise
	// native kernels partition their own work, and only emulated kernels use the Plan's grids.
	Launches bool
	// Rearranges reports whether the device may store a matrix in a layout of its own.
	Rearranges bool
	// Emulates reports whether the device runs kernels that are not written for its processor, by
	// emulation from their Metal source.
	Emulates bool
	// FirstBuffer is the maximum number of dispatches in the first command buffer; 0: the target
	// has no command buffers. Each further buffer may hold BufferGrowth times as many. BufferTime
	// bounds the predicted µs on the slowest chip of a buffer with several dispatches.
	FirstBuffer, BufferGrowth int
	BufferTime                float64
	// SplitContext is the context length in keys beyond which attention of single tokens is split
	// along the keys (split-K), to keep many cores busy; 0: never. SplitKeys is the number of keys
	// per partition. Where the two are equal, a context of at most SplitKeys keys has one partition
	// whatever the other contexts of the step, so that its results do not depend on them.
	SplitContext, SplitKeys int64

	chip  *predict.Chip // for choices by size; nil: no particular chip
	costs predict.Costs // Costs, as a value
}

// targets are the machines that smelt compiles for. All run the kernels of package kernels.
var targets = map[string]Target{
	// The first command buffer is short, so that the GPU starts while the CPU encodes the rest.
	// Each further buffer may hold three times as many dispatches, since running a dispatch takes
	// at least three times as long as encoding it. BufferTime is bounded because the system kills
	// buffers that occupy a shared GPU for seconds.
	"metal": {
		Target: ir.Target{Name: "metal", Act: dtype.F16},
		GPU:    true, Launches: true, FirstBuffer: 16, BufferGrowth: 3, BufferTime: 100e3, SplitContext: perFamily[0].split, SplitKeys: perFamily[0].partition,
	},
	// A decoding CPU streams through all weights for every token, so that a layout made for its
	// vectors saves more than the copy costs. A GPU reads the file's rows in place and shares
	// their pages with the page cache.
	"cpu": {Target: ir.Target{Name: "cpu", Act: dtype.F32}, Emulates: true, Rearranges: true},
}

// Targets returns the names that NewTarget accepts.
func Targets() []string { return slices.Sorted(maps.Keys(targets)) }

// NewTarget returns the target of a name, "metal" or "cpu", with choices for no particular chip.
func NewTarget(name string) (*Target, error) {
	t, ok := targets[name]
	if !ok {
		return nil, fmt.Errorf("no target is called %q (%s)", name, strings.Join(Targets(), ", "))
	}
	for op, rows := range instances {
		t.Kernels[op] = nativeWhere(rows, !t.Emulates)
	}
	for _, op := range []ir.Op{ir.OpRopeQKVWriteAttention, ir.OpHeadNormRopeKVWriteAttention, ir.OpHeadNormRopeAttention, ir.OpLatentAttention} {
		// Instead of emulating these fused ops, a CPU runs its native kernels for their parts.
		t.Kernels[op] = slices.DeleteFunc(t.Kernels[op], func(row ir.Instance) bool { return !row.Native })
	}
	t.MaxHead, t.MaxLatent, t.HeadStep = kernels.MaxHead, kernels.MaxLatent, kernels.HeadStep
	t.Gated, t.Gathers = true, !t.Emulates
	t.Tune(nil)
	t.FewNorms, t.ManyNorms = []ir.NormKind{ir.RMSNorm, ir.LayerNorm}, []ir.NormKind{ir.RMSNorm}
	t.NormTokens, t.NormColumns, t.NormsApart = t.FewTokens, kernels.MatColumns, t.Launches
	if t.Launches { // a CPU's threads normalise once for all
		t.NormTokens = normTokens
	}
	return &t, nil
}

// Tune sets the chip that lower makes choices by size for; nil: no particular chip.
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

// CutAlike makes a target split contexts of more than SplitKeys keys, at least 512, for steps of
// several sequences. How a context is split then does not depend on the longest context of the
// step. Partitions can be that large because such steps have enough threadgroups.
func (t *Target) CutAlike() {
	if t.SplitContext == 0 {
		return
	}
	t.SplitKeys = max(t.SplitKeys, 512)
	t.SplitContext = t.SplitKeys
}

// UseSameBits makes a token's results bit-identical in every step: one family of kernels computes
// all rows, whatever their number. Products run in linear_mat after separate norms, attention in
// attention_vec, which sums the same for several rows as for one, and experts in linear_vec. On
// targets without Launches it changes nothing.
func (t *Target) UseSameBits() {
	if !t.Launches {
		return
	}
	t.SameBits, t.NormTokens, t.FewTokens = true, 0, 0
	t.CutAlike()
}

// nativeWhere returns a copy of rows, with every row marked native if all is set.
func nativeWhere(rows []ir.Instance, all bool) []ir.Instance {
	rows = slices.Clone(rows)
	for i := range rows {
		rows[i].Native = rows[i].Native || all
	}
	return rows
}

// xsplit lists the families of kernels for caches of the x-split layout, by op. Other ops that
// touch a cache have no kernels for it.
var xsplit = map[ir.Op][]string{
	ir.OpCacheWrite: {"reshape_and_cache"}, ir.OpCopyBlocks: {"copy_blocks"}, ir.OpAttention: {"paged_attention_v1", "paged_attention_v2"},
}

// XSplitBlock is the default number of slots of a block in the x-split layout, the same as vLLM's.
const XSplitBlock = 16

// UseXSplit makes a target use caches of the x-split layout of vLLM and Aphrodite, and replaces
// the kernels that touch a cache by those for that layout.
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

// CheckXSplit returns an error for types and block sizes that the kernels of the x-split layout do
// not support.
func CheckXSplit(act, cache dtype.Type, block int) error {
	switch {
	case cache != act:
		return fmt.Errorf("the x-split layout has caches of the activations' type: %s beside %s", cache, act)
	case block != 8 && block != 16 && block != 32:
		return fmt.Errorf("the x-split layout has blocks of 8, 16 or 32 slots, not %d", block)
	}
	return nil
}

// Emulated reports whether the device of a target emulates a kernel from its Metal source, for
// lack of a native one.
func Emulated(target, kernel string) bool {
	k, ok := kernels.Lookup(kernel)
	return targets[target].Emulates && ok && !k.Native
}

// TileType returns the element type of the tiles that a kernel for products of many tokens
// multiplies; Invalid for other kernels.
func TileType(kernel string) dtype.Type {
	if k, ok := kernels.Lookup(kernel); ok && (k.Family == linearMat || k.Family == normLinearMat) {
		return elementTypes[kernels.MatTile(k)]
	}
	return dtype.Invalid
}

// CacheTypes lists the element types of a KV cache that attention has kernels for, with
// activations in F32.
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

// families lists the families of kernels that compute an op, where their names differ from the
// op's.
var families = map[ir.Op][]string{
	ir.OpGain:   {"mul"},
	ir.OpShift:  {"add"},
	ir.OpLinear: {linearVec, linearMat}, ir.OpFusedLinear: {linearVec, linearMat},
	ir.OpExpertLinear: {linearVec, linearMat}, ir.OpRoutedLinear: {linearVec, linearMat},
	ir.OpAttention: {"attention_vec", "attention_tile"}, ir.OpSlice: {"transpose"},
	ir.OpQKVWrite:              {"rope_qkv_write"},
	ir.OpGatedShortConv:        {"short_conv"},
	ir.OpSiLUShortConv:         {"short_conv"},
	ir.OpDeltaNet:              {"delta_net", "delta_net_pieces"},
	ir.OpGatedDeltaNet:         {"delta_net", "delta_net_pieces"},
	ir.OpMamba2:                {"mamba2", "mamba2_pieces"},
	ir.OpGatedMamba2:           {"mamba2", "mamba2_pieces"},
	ir.OpGroupNorm:             {"rms_norm"},
	ir.OpRopeQKVWriteAttention: {"attention_write"}, ir.OpHeadNormRopeKVWriteAttention: {"attention_write"},
	ir.OpHeadNormRopeAttention: {"attention_write"},
}

// byFamily lists the instances of each family.
var byFamily = func() map[string][]ir.Instance {
	table, all := map[string][]ir.Instance{}, kernels.All()
	for i := range all {
		k := &all[i]
		table[k.Family] = append(table[k.Family], instanceOf(k))
	}
	return table
}()

// instances lists the kernels of each op, by element types.
var instances = func() (table [ir.NumOps][]ir.Instance) {
	for op := range table {
		names, ok := families[ir.Op(op)]
		if !ok {
			names = []string{ir.Op(op).String()}
		}
		table[op] = common(byFamily, names)
	}
	for _, op := range []ir.Op{ir.OpGain, ir.OpShift} { // whose weights are a matrix in files, and activations to the kernel
		for i := range table[op] {
			table[op][i].Weights = dtype.SetOf(table[op][i].In)
		}
	}
	return table
}()

// common returns the instances that all the named families have.
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

// elementTypes maps the elements of kernels' buffers to element types.
var elementTypes = map[kernels.Element]dtype.Type{
	kernels.Float: dtype.F32, kernels.Half: dtype.F16, kernels.Bfloat: dtype.BF16, kernels.Int: dtype.I32, kernels.Blocks: dtype.Q8_0,
}

// weightTypes are the stored types that kernels decode.
var weightTypes = dtype.Weights()

// instanceOf returns the instance that a kernel's buffers describe.
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
