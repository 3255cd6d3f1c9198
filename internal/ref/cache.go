package ref

import (
	"fmt"
	"maps"
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/models/quant"
)

// Cache is a layer's state between steps: its KV cache, K and V being [blocks, KVHeads, Block,
// Head] each, and its recurrent states by name.
type Cache struct {
	ir.Cache
	Blocks int
	K, V   []float64
	States map[string]*State
}

// State is the recurrent states of a layer, [States, Rows, Width].
type State struct {
	ir.Recurrent
	States int
	Data   []float64
}

// NewCache returns an empty cache.
func NewCache(c ir.Cache, blocks int) *Cache {
	n := blocks * c.KVHeads * c.Block * c.Head
	cache := &Cache{Cache: c, Blocks: blocks, K: make([]float64, n)}
	cache.V = cache.K
	if !c.Latent {
		cache.V = make([]float64, n)
	}
	return cache
}

// CachesFor returns empty caches for the layers of a graph that have state, with as many recurrent states
// as blocks.
func CachesFor(f *ir.Func, blocks int) []*Cache {
	var caches []*Cache
	of := func(layer int) *Cache {
		caches = append(caches, make([]*Cache, max(0, layer+1-len(caches)))...)
		if caches[layer] == nil {
			caches[layer] = &Cache{}
		}
		return caches[layer]
	}
	for _, v := range f.Values {
		switch a := v.Attr.(type) {
		case ir.CacheAttr:
			c := of(a.Layer)
			states := c.States
			*c = *NewCache(v.Type.Cache, blocks)
			c.States = states
		case ir.StateAttr:
			c, r := of(a.Layer), v.Type.Recurrent
			if c.States == nil {
				c.States = make(map[string]*State)
			}
			c.States[a.Name] = &State{Recurrent: r, States: blocks, Data: make([]float64, blocks*r.Rows*r.Width)}
		}
	}
	return caches
}

// Clone returns a copy, to run a second graph from the same state.
func (c *Cache) Clone() *Cache {
	n := *c
	n.K, n.States = slices.Clone(c.K), maps.Clone(c.States)
	n.V = n.K
	if !c.Latent {
		n.V = slices.Clone(c.V)
	}
	for name, s := range n.States {
		copied := *s
		copied.Data = slices.Clone(s.Data)
		n.States[name] = &copied
	}
	return &n
}

// at returns the range of a head's row in K and V.
func (c *Cache) at(block, head, offset int) (from, to int) {
	from = ((block*c.KVHeads+head)*c.Block + offset) * c.Head
	return from, from + c.Head
}

// block returns the range of a block in K and V.
func (c *Cache) block(i int) (from, to int) {
	n := c.KVHeads * c.Block * c.Head
	return i * n, (i + 1) * n
}

// write stores one token's head; a negative slot is skipped.
func (c *Cache) write(slot int32, head int, k, v []float64, round bool) error {
	if slot < 0 {
		return nil
	}
	if int(slot) >= c.Blocks*c.Block {
		return fmt.Errorf("slot %d of a cache of %d blocks of %d", slot, c.Blocks, c.Block)
	}
	from, to := c.at(int(slot)/c.Block, head, int(slot)%c.Block)
	for _, part := range [][2][]float64{{c.K[from:to], k}, {c.V[from:to], v}} {
		copy(part[0], part[1])
		if round {
			if err := roundTo(c.DType, part[0]); err != nil {
				return err
			}
		}
	}
	return nil
}

// roundTo rounds a row to an element type.
func roundTo(t dtype.Type, row []float64) error {
	wide := make([]float32, len(row))
	for i, x := range row {
		wide[i] = float32(x)
	}
	stored := make([]byte, t.Bytes(int64(len(row))))
	if err := quant.Quantize(stored, wide, t); err != nil {
		return err
	}
	if err := quant.Dequantize(wide, stored, t); err != nil {
		return err
	}
	for i, x := range wide {
		row[i] = float64(x)
	}
	return nil
}

// context maps the tokens of a step to their sequences.
type context struct {
	positions, cuSeqlens, lens []int32
	sequence                   []int // of each token
}

// context checks three inputs of a step, which begin with operand i of v.
func (r *run) context(v *ir.Value, i int) (context, error) {
	c := context{positions: r.tensor(v, i).Ints, cuSeqlens: r.tensor(v, i+1).Ints, lens: r.tensor(v, i+2).Ints}
	c.sequence = make([]int, len(c.positions))
	if first, last := c.cuSeqlens[0], c.cuSeqlens[len(c.lens)]; first != 0 || int(last) != len(c.positions) {
		return c, fmt.Errorf("%s run from %d to %d over %d tokens", sym.CuSeqlens, first, last, len(c.positions))
	}
	for b := range c.lens {
		from, to := c.cuSeqlens[b], c.cuSeqlens[b+1]
		if from > to || int(to) > len(c.positions) {
			return c, fmt.Errorf("%s of sequence %d run from %d to %d", sym.CuSeqlens, b, from, to)
		}
		for t := from; t < to; t++ {
			c.sequence[t] = b
		}
	}
	return c, nil
}

// fall returns what ALiBi adds to the score of key j for head h of token t; 0 without slopes.
func (c *context) fall(slopes *Tensor, h, t, j int) float64 {
	if slopes == nil {
		return 0
	}
	return slopes.Data[h] * float64(j-int(c.positions[t]))
}

// sees reports whether token t attends to key j of sequence b: one of the last `window` keys up to
// its own, or any up to its own if window is 0.
func (c *context) sees(t, b, j, window int) bool {
	position := int(c.positions[t])
	return c.sequence[t] == b && j <= position && j < int(c.lens[b]) && (window == 0 || position-j < window)
}

// pages locates the keys of sequences in a cache.
type pages struct {
	cache    *Cache
	lens     []int32
	table    []int32 // [B,NB]
	perTable int     // NB
}

// pages checks context_lens and block_table against the cache.
func (r *run) pages(cache *Cache, lens, table *Tensor) (pages, error) {
	p := pages{cache: cache, lens: lens.Ints, table: table.Ints, perTable: table.last()}
	for b, n := range p.lens {
		if n < 0 || int(n) > p.perTable*cache.Block {
			return p, fmt.Errorf("%s of sequence %d is %d with %d blocks of %d", sym.ContextLens, b, n, p.perTable, cache.Block)
		}
		for i := range (int(n) + cache.Block - 1) / cache.Block {
			if block := p.table[b*p.perTable+i]; block < 0 || int(block) >= cache.Blocks {
				return p, fmt.Errorf("block %d of sequence %d is number %d of a cache of %d", i, b, block, cache.Blocks)
			}
		}
	}
	return p, nil
}

// key returns the range of key j of sequence b in a KV head.
func (p *pages) key(b, j, head int) (from, to int) {
	block := p.table[b*p.perTable+j/p.cache.Block]
	return p.cache.at(int(block), head, j%p.cache.Block)
}
