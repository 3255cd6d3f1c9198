package lower

import (
	"errors"
	"fmt"

	"github.com/samber/lo"

	"crypto/sha256"
	"encoding/hex"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/lower/plan"
)

// ErrUnsupported is wrapped by errors about values that no kernel computes.
var ErrUnsupported = errors.New("no kernel")

type bufferKey struct {
	kind plan.Kind
	name string
}

// tables collects the buffers that the phases share.
type tables struct {
	plan  *plan.Plan
	index map[bufferKey]int32
}

func (t *tables) buffer(b plan.Buffer) int32 {
	key := bufferKey{b.Kind, b.Name}
	if i, ok := t.index[key]; ok {
		return i
	}
	i := int32(len(t.plan.Buffers))
	t.index[key] = i
	t.plan.Buffers = append(t.plan.Buffers, b)
	return i
}

// weight returns the buffer of a tensor of the file. Vectors are bound as F32 whatever their stored
// type: they are small, and kernels then need one form.
func (t *tables) weight(v *ir.Value, matrix bool) (int32, error) {
	key := bufferKey{plan.Weight, v.Name()}
	if i, ok := t.index[key]; ok {
		return i, nil
	}
	stored, bound := v.Type.DType, v.Type.DType
	if !matrix {
		bound = dtype.F32
		if !stored.IsFloat() {
			return 0, fmt.Errorf("%w for %q, of %s", ErrUnsupported, v.Name(), stored)
		}
	}
	shape := make([]int, len(v.Type.Shape))
	elements := int64(1)
	for i, d := range v.Type.Shape {
		n, ok := d.IsConst()
		if !ok {
			return 0, fmt.Errorf("weight %q is %s: its size must be constant", v.Name(), v.Type)
		}
		shape[i], elements = int(n), elements*n
	}
	t.plan.Tensors = append(t.plan.Tensors, plan.Tensor{Name: v.Name(), DType: stored, Shape: shape})
	return t.buffer(plan.Buffer{Kind: plan.Weight, Name: v.Name(), DType: bound, Bytes: plan.Number(bound.Bytes(elements))}), nil
}

// cache returns the buffer of a layer's keys or values, with the size of one block.
func (t *tables) cache(layer int, c plan.Cache, values bool) (int32, error) {
	for len(t.plan.Caches) <= layer {
		t.plan.Caches = append(t.plan.Caches, plan.Cache{})
	}
	if have := t.plan.Caches[layer]; have != (plan.Cache{}) && have != c {
		return 0, fmt.Errorf("layer %d has caches of two shapes", layer)
	}
	t.plan.Caches[layer] = c
	kind, name := plan.CacheK, fmt.Sprintf("k.%d", layer)
	if values && !c.Latent {
		kind, name = plan.CacheV, fmt.Sprintf("v.%d", layer)
	}
	return t.buffer(plan.Buffer{Kind: kind, Name: name, DType: c.DType, Layer: layer,
		Bytes: plan.Number(c.DType.Bytes(int64(c.KVHeads) * int64(c.Block) * int64(c.Head)))}), nil
}

// state returns the buffer of a layer's recurrent states, with the size of one.
func (t *tables) state(a ir.StateAttr, r plan.Recurrent) int32 {
	for len(t.plan.Caches) <= a.Layer {
		t.plan.Caches = append(t.plan.Caches, plan.Cache{})
	}
	return t.buffer(plan.Buffer{Kind: plan.State, Name: fmt.Sprintf("%s.%d", a.Name, a.Layer), DType: dtype.F32, Layer: a.Layer, Recurrent: r,
		Bytes: plan.Number(dtype.F32.Bytes(int64(r.Rows) * int64(r.Width)))})
}

// phase lowers one range.
type phase struct {
	*tables
	f      *ir.Func
	target *Target
	chip   machine

	products Placement
	tuning   *Tuning
	decided  map[decisionKey]decided
	out      plan.Phase

	matrices map[*ir.Value]bool // weights that are bound as they are stored

	places  []place           // where each value lives, by ID
	orders  map[part][2]place // results of [phase.expertOrder], by the choice of experts
	parts   map[part]place    // tensors of tuples that are results or have several tensors
	slots   []slot            // of the arena
	fixups  []fixup           // arena bindings, whose offsets planArena sets
	lastUse []int             // index of the last value that reads each value's memory, by ID of its root
	at      int               // index of the value being lowered
	err     error
}

// part is one tensor of a tuple.
type part struct {
	id    ir.ID
	index int
}

// place is the memory of a value: a buffer, or a slot of the arena.
type place struct {
	buffer int32
	slot   int32 // -1 where buffer counts
	known  bool
}

type fixup struct{ dispatch, binding, slot int }

// fail keeps the first error of the phase.
func (p *phase) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

func (p *phase) bound(e plan.Expr) int64 { return e.Eval(&p.out.Bounds) }

// root returns the value whose memory v aliases, or v.
func root(v *ir.Value) *ir.Value {
	for v.Op.IsAlias() {
		v = v.Args[0]
	}
	return v
}

// placeResults assigns an output buffer to every tensor that the graph returns, which its kernel
// writes directly.
func (p *phase) placeResults() error {
	for _, r := range p.f.Results {
		if r.Value.Type.Kind == ir.State {
			continue
		}
		v, which := root(r.Value), partOf(r.Value)
		if v.Op.IsLeaf() || r.Value.Type.Kind != ir.Tensor {
			return fmt.Errorf("result %q is %s, which no kernel computes", r.Name, v.LongString())
		}
		if _, twice := p.parts[part{v.ID, which}]; twice || p.places[v.ID].known {
			return fmt.Errorf("result %q is a result already under another name", r.Name)
		}
		t := tensorsOf(v)[which]
		n, ok := t.Shape.Elements()
		if !ok {
			return fmt.Errorf("result %q: %s is no simple size", r.Name, t)
		}
		at := place{known: true, slot: -1, buffer: p.buffer(plan.Buffer{
			Kind: plan.Output, Name: r.Name, DType: t.DType, Bytes: Extent(n).Times(t.DType.Bytes(1)),
		})}
		if v.Type.Kind == ir.Tuple {
			p.parts[part{v.ID, which}] = at
		} else {
			p.places[v.ID] = at
		}
	}
	return nil
}

// placeOf returns the memory of a value, which it allocates at the first call.
func (p *phase) placeOf(v *ir.Value) place {
	v = root(v)
	at := &p.places[v.ID]
	if at.known {
		return *at
	}
	at.known, at.slot = true, -1
	switch v.Op {
	case ir.OpWeight:
		buffer, err := p.weight(v, p.matrices[v])
		if err != nil {
			p.fail(err)
		}
		at.buffer = buffer
	case ir.OpConst:
		data := v.Attr.(ir.ConstAttr).Data
		at.buffer = p.buffer(plan.Buffer{Kind: plan.Const, Name: constName(data), DType: v.Type.DType, Bytes: plan.Number(int64(len(data))), Data: []byte(data)})
	case ir.OpInput:
		n, _ := v.Type.Shape.Elements()
		at.buffer = p.buffer(plan.Buffer{Kind: plan.Input, Name: v.Name(), DType: v.Type.DType, Bytes: inputBytes(v, n)})
	default:
		*at = p.memory(tensorOf(v).Bytes(&p.out.Bounds))
	}
	return *at
}

// partPlace returns the memory of one of the tensors that a value computes. Each of several tensors
// has memory of its own, since their lifetimes differ.
func (p *phase) partPlace(v *ir.Value, which int) place {
	tensors, key := tensorsOf(v), part{v.ID, which}
	at, ok := p.parts[key]
	switch {
	case ok:
		return at
	case len(tensors) == 1:
		return p.placeOf(v)
	}
	p.parts[key] = p.memory(tensors[which].Bytes(&p.out.Bounds))
	return p.parts[key]
}

// memory returns a new slot of the arena, whose lifetime is from the first to the last dispatch
// that binds it.
func (p *phase) memory(bytes int64) place {
	p.slots = append(p.slots, slot{made: p.at, bytes: bytes})
	return place{known: true, slot: int32(len(p.slots) - 1), buffer: p.buffer(plan.Buffer{Kind: plan.Arena})}
}

// scratch returns memory that belongs to no value.
func (p *phase) scratch(bytes plan.Expr) place { return p.memory(p.bound(bytes)) }

func inputBytes(v *ir.Value, n ir.Dim) plan.Expr { return Extent(n).Times(v.Type.DType.Bytes(1)) }

// tensorsOf returns the types of the tensors that a value computes: one, or those of a tuple,
// without the states that fused writes also return.
func tensorsOf(v *ir.Value) []ir.Type {
	if v.Type.Kind != ir.Tuple {
		return []ir.Type{v.Type}
	}
	return lo.Filter(v.Type.Elems, func(t ir.Type, _ int) bool { return t.Kind == ir.Tensor })
}

// tensorOf returns the type of the first tensor that a value computes.
func tensorOf(v *ir.Value) ir.Type { return tensorsOf(v)[0] }

// partOf returns the index of v among the tensors of root(v).
func partOf(v *ir.Value) int {
	for v.Op.IsAlias() {
		if a, ok := v.Attr.(ir.SelectAttr); ok {
			return a.Index
		}
		v = v.Args[0]
	}
	return 0
}

// layerOf returns the layer of the cache that a state is a version of.
func layerOf(state *ir.Value) int { return first(state).Attr.(ir.CacheAttr).Layer }

// first returns the version of a cache or recurrent state at the start of the step.
func first(state *ir.Value) *ir.Value {
	for {
		if state.Op.IsLeaf() {
			return state
		}
		if i := state.Op.Writes(); i >= 0 {
			state = state.Args[i]
		} else {
			state = state.Args[0] // select
		}
	}
}

// slot is a range of the arena: the memory of one value, or of several that replace each other.
type slot struct {
	made   int   // index of the value that writes it first
	bytes  int64 // at the bounds
	merged int32 // 1 + the slot whose memory this one shares; 0: none

	first, last int // when it is first and last touched: positions or epochs of dispatches
	offset      int64
}

// constName names a constant by its content, so that equal ones share a buffer.
func constName(data string) string {
	sum := sha256.Sum256([]byte(data))
	return hex.EncodeToString(sum[:8])
}

// ownerOf returns the slot whose memory slot i shares.
func (p *phase) ownerOf(i int32) int32 {
	for p.slots[i].merged != 0 {
		i = p.slots[i].merged - 1
	}
	return i
}
