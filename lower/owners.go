package lower

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
)

// Owners says what an Input holds that nobody gives: the device writes it before a step, from
// cu_seqlens. It has the sequence of each token, or, where Tile is more than 1, of each tile of
// so many tokens of a sequence, counted as kernels/paged.h does. Tiles that no sequence fills
// have −1, and so have all of a sequence that brings fewer tokens than Least or more than Most:
// a kernel leaves those to another one.
type Owners struct{ Tile, Least, Most int64 }

// Fill writes them.
func (o *Owners) Fill(to, cuSeqlens []int32) {
	for i := range to {
		to[i] = -1
	}
	for seq := range len(cuSeqlens) - 1 {
		first, n := int64(cuSeqlens[seq]), int64(cuSeqlens[seq+1]-cuSeqlens[seq])
		if n < o.Least || n > o.Most {
			continue
		}
		if o.Tile > 1 {
			first, n = first/o.Tile+int64(seq), ceilDiv(n, o.Tile)
		}
		for i := range n {
			to[first+i] = int32(seq)
		}
	}
}

func (o *Owners) name() string {
	switch {
	case o.Most < maxTokens:
		return fmt.Sprintf("owners.%d.upto%d", o.Tile, o.Most)
	case o.Least > 1:
		return fmt.Sprintf("owners.%d.from%d", o.Tile, o.Least)
	}
	return fmt.Sprintf("owners.%d", o.Tile)
}

// maxTokens stands for no bound on the tokens of a sequence.
const maxTokens = math.MaxInt32

// count is how many there are: what a grid has of them, and for tiles a few more.
func (o *Owners) count() Expr {
	tokens := ir.Var(sym.T)
	if o.Tile == 1 {
		return Extent(tokens)
	}
	return over(tokens, o.Tile).Plus(Extent(ir.Var(sym.B)))
}

// bytes is the memory of so many, which rounds up where a quarter of it would.
func (o *Owners) bytes() Expr {
	tokens, _ := ir.Var(sym.T).Times(ir.Const(4))
	if o.Tile == 1 {
		return Extent(tokens)
	}
	return over(tokens, o.Tile).Plus(Number(4)).Plus(Extent(ir.Var(sym.B)).Times(4))
}

func (b *Buffer) validateOwners(p *Plan) error {
	o := b.Owners
	seqlens := func() bool {
		for i := range p.Buffers {
			if p.Buffers[i].Kind == Input && p.Buffers[i].Name == sym.CuSeqlens {
				return true
			}
		}
		return false
	}
	switch {
	case b.Kind != Input || b.DType != dtype.I32:
		return errors.New("it has owners, and is no input of integers")
	case o.Tile < 1 || o.Tile > math.MaxInt16 || o.Least < 1 || o.Most < o.Least || o.Most > maxTokens:
		return fmt.Errorf("owners %+v", *o)
	case !seqlens():
		return fmt.Errorf("owners without %s", sym.CuSeqlens)
	case b.Bytes.String() != o.bytes().String():
		return fmt.Errorf("%s bytes of owners, want %s", b.Bytes, o.bytes())
	}
	return nil
}

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
	owners *Owners // nil where it searches
	how    string  // for a choice; "" where there is one sequence
	why    string
}

// find chooses between search and map for so many heads of threadgroups of a tile each.
func (p *phase) find(tile, heads int64) found {
	seqs := p.out.Bounds[sym.B]
	if seqs <= 1 {
		return found{}
	}
	all := &Owners{Tile: tile, Least: 1, Most: maxTokens}
	entries := p.bound(all.count())
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
func (e emitter) owners(o *Owners, cuSeqlens *ir.Value) {
	if o == nil {
		return
	}
	e.p.placeOf(cuSeqlens) // an input of the plan, whether or not a kernel reads it
	buffer := e.p.buffer(Buffer{Kind: Input, Name: o.name(), DType: dtype.I32, Bytes: o.bytes(), Owners: o})
	e.constant("fc_map", 1)
	e.bind("map", place{buffer: buffer, slot: -1}, Binding{Bytes: o.bytes(), Read: true})
}
