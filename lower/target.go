package lower

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
)

// DecodeTokens is the largest step that the decode phase takes.
const DecodeTokens = 1

// normTokens is the largest step whose products in tiles may normalise their input: two
// tiles of tokens.
const normTokens = 64

// targets are the machines that smelt compiles for. All run the kernels of package
// kernels; they differ in the rest.
var targets = map[string]ir.Target{
	// A GPU is handed its work in command buffers, cut so that it is never without work and
	// never long at it. The first is short and starts while the rest is encoded. The next
	// may hold three times as many dispatches, since none takes less than that many times as
	// long to run as to encode. A GPU that others wait for kills buffers that take seconds.
	"metal": {Name: "metal", Act: dtype.F16, Schedule: ir.Schedule{
		GPU: true, Launches: true, FirstBuffer: 16, BufferGrowth: 3, BufferTime: 100e3, SplitContext: tunings[0].split, SplitKeys: tunings[0].partition,
	}},
	// A CPU that decodes streams through all weights for every token, and gains more from an
	// order made for its vectors than the copy costs. A GPU reads the file's rows, whose
	// pages it shares with the page cache.
	"cpu": {Name: "cpu", Act: dtype.F32, Emulates: true, Schedule: ir.Schedule{Rearranges: true}},
}

// Targets lists the names that NewTarget takes.
func Targets() []string { return slices.Sorted(maps.Keys(targets)) }

// NewTarget returns what the named machine ("metal" or "cpu") can do in steps of
// up to maxTokens tokens.
func NewTarget(name string, maxTokens int64) (*ir.Target, error) {
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
	Tune(&t, nil)
	t.NormTokens, t.NormColumns = t.FewTokens, kernels.MatColumns
	if t.Launches { // a CPU's threads normalise once for all
		t.NormTokens = normTokens
	}
	switch {
	case maxTokens <= t.FewTokens:
		t.NormPrologue = []ir.NormKind{ir.RMSNorm, ir.LayerNorm}
	case maxTokens <= t.NormTokens:
		t.NormPrologue = []ir.NormKind{ir.RMSNorm}
	}
	t.Tokens, t.OneEach, t.Rows = maxTokens, maxTokens == 1, 1
	return &t, nil
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

// XSplit gives a target the caches of vLLM and Aphrodite, and what there is for them instead
// of its own kernels.
func XSplit(t *ir.Target) {
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
