package lower

import (
	"fmt"
	"math/bits"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"
)

// The costs in µs of finding a threadgroup's sequence. A binary search in cu_seqlens is a chain of
// dependent loads, of which a map needs only one. In the article on vllm-metal's attention, the
// other loads take 8 to 11 % of decoding 64 to 1,024 sequences of 128 keys with 16 heads, which is
// 0.05 to 0.06 µs of one of 14 cores per load. A map costs 1 ns per entry, which the host writes
// and copies once for all layers.
const (
	searchLoad = 0.05
	mapEntry   = 0.001
)

// found is the method by which a dispatch's threadgroups find their sequences.
type found struct {
	owners *plan.Owners // nil where it searches
	how    string       // the method in words, for a choice; "" with one sequence
	why    string
}

// find chooses between search and map for threadgroups that each process tile tokens of a sequence,
// with heads threadgroups per tile.
func (p *phase) find(tile, heads int64) found {
	seqs := p.out.Bounds[sym.B]
	if seqs <= 1 {
		return found{}
	}
	all := &plan.Owners{Tile: tile, Least: 1, Most: plan.MaxTokens}
	entries := p.bound(all.Count())
	loads := int64(bits.Len64(uint64(seqs - 1)))
	search := float64(p.layers()*heads*entries*(loads-1)) * searchLoad / float64(p.chip.cores)
	by := float64(entries) * mapEntry
	figures := fmt.Sprintf("%d loads a threadgroup cost %.1f µs a step, a map of %d %.1f µs, on %s", loads, search, entries, by, &p.chip)
	if !p.target.Launches || search <= by {
		return found{nil, "sequences by search", figures}
	}
	return found{all, "sequences by map", figures}
}

// searched is find for a kernel that can only search.
func (p *phase) searched() found {
	if p.out.Bounds[sym.B] <= 1 {
		return found{}
	}
	return found{how: "sequences by search", why: "the kernel takes no map"}
}

// layers counts the layers that have a cache.
func (p *phase) layers() (n int64) {
	for _, v := range p.f.Values {
		n += int64(bit(v.Op == ir.OpCache))
	}
	return n
}

// owners binds a map from tokens or tiles to sequences, which the device derives from cu_seqlens.
func (e emitter) owners(o *plan.Owners, cuSeqlens *ir.Value) {
	if o == nil {
		return
	}
	e.p.placeOf(cuSeqlens) // an input of the plan, whether or not a kernel reads it
	buffer := e.p.buffer(plan.Buffer{Kind: plan.Input, Name: o.Name(), DType: dtype.I32, Bytes: o.Bytes(), Owners: o})
	e.constant("fc_map", 1)
	e.bind("map", place{buffer: buffer, slot: -1}, plan.Binding{Bytes: o.Bytes(), Read: true})
}
