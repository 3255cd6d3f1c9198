package lower

import (
	"fmt"
	"math/bits"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"
)

// What finding a threadgroup's sequence costs. A search in cu_seqlens is a chain of loads, each
// of which waits for the one before, of which a map needs the first alone. In the article on
// vllm-metal's attention the loads that a map spares take 8 to 11 % of decoding 64 to 1,024
// sequences of 128 keys with 16 heads, which are 0.05 to 0.06 µs of one of 14 cores each.
// What the map costs is its entries, which the host writes once for all layers: a nanosecond
// each, with the copy to where the device reads them.
const (
	searchLoad = 0.05
	mapEntry   = 0.001
)

// found is how a dispatch learns which sequences its threadgroups serve.
type found struct {
	owners *plan.Owners // nil where it searches
	how    string       // for a choice; "" where there is one sequence
	why    string
}

// find chooses between search and map for so many heads of threadgroups of a tile each.
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

// searched is find for a kernel that has no map.
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

// owners binds a map of what cu_seqlens holds.
func (e emitter) owners(o *plan.Owners, cuSeqlens *ir.Value) {
	if o == nil {
		return
	}
	e.p.placeOf(cuSeqlens) // an input of the plan, whether or not a kernel reads it
	buffer := e.p.buffer(plan.Buffer{Kind: plan.Input, Name: o.Name(), DType: dtype.I32, Bytes: o.Bytes(), Owners: o})
	e.constant("fc_map", 1)
	e.bind("map", place{buffer: buffer, slot: -1}, plan.Binding{Bytes: o.Bytes(), Read: true})
}
