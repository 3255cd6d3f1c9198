package device

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

// symbols is SMELT_SYMBOLS.
const symbols = 8

// The types below mirror the structs of device.h, field by field; the build
// compares their sizes.
type (
	term struct {
		mul, add, div int64
		power         [symbols]uint8
	}
	value struct {
		constant         int64
		firstTerm, terms uint32
	}
	argument struct {
		offset               int64
		index, buffer, bytes uint32
		access               uint32
	}
	dispatch struct {
		kernel                   uint32
		constantsSet             uint32
		firstConstant            uint32
		firstArgument, arguments uint32
		firstWord, words         uint32
		paramsAt                 uint32
		grid, group              [3]uint32
		barrier, commandBuffer   uint32
		hints                    [kernels.NumHints]uint32
		onCPU                    uint32
	}
	phase struct {
		firstDispatch, dispatches uint32
		bounds                    [symbols]int64
	}
	stepRecord struct {
		phase, slot, profile, seed uint32
		sizes                      [symbols]int64
	}
	matrix struct {
		rows, columns uint64
		dtype, stack  uint32
	}
	counts      struct{ dispatches, barriers, commandBuffers, rearranged uint32 }
	kernelCount struct{ dispatches, native uint32 }
)

// counters is what a step executed; kernels is by index of the executable's kernels.
type counters struct {
	counts
	kernels []kernelCount
}

const (
	accessRead = 1 << iota
	accessWrite
	accessWhole
)

const constantWords = 32

// tables is a Plan, flattened: what smelt_tables points to.
type tables struct {
	terms       []term
	values      []value
	arguments   []argument
	words       []uint32
	constants   []uint32
	dispatches  []dispatch
	phases      []phase
	matrices    []matrix // by buffer
	names       []byte
	kernelNames []uint32
	labels      []uint32 // offsets in names, by dispatch
	buffers     int

	kernels   []string
	kernelAt  map[string]uint32
	numberAt  map[int64]uint32
	valueAt   map[string]uint32
	constAt   map[[constantWords + 1]uint32]uint32
	keyBuffer []byte
}

// maxValue bounds what an expression may be at the bounds: far above any size and
// far from overflow.
const maxValue = 1 << 56

// flatten makes the tables of a valid Plan.
func flatten(p *plan.Plan) (*tables, error) {
	t := &tables{
		buffers: len(p.Buffers), kernelAt: map[string]uint32{}, numberAt: map[int64]uint32{},
		valueAt: map[string]uint32{}, constAt: map[[constantWords + 1]uint32]uint32{},
	}
	t.addMatrices(p)
	for i := range p.Phases {
		if err := t.addPhase(p, &p.Phases[i]); err != nil {
			return nil, fmt.Errorf("phase %s: %w", p.Phases[i].Name, err)
		}
	}
	return t, nil
}

func (t *tables) addPhase(p *plan.Plan, ph *plan.Phase) error {
	flat := phase{firstDispatch: uint32(len(t.dispatches)), dispatches: uint32(len(ph.Dispatches))}
	copy(flat.bounds[:], ph.Bounds[:])
	starts := make(map[int]bool, len(ph.CommandBuffers))
	for _, i := range ph.CommandBuffers {
		starts[i] = true
	}
	for i := range ph.Dispatches {
		if err := t.addDispatch(p, ph, &ph.Dispatches[i], starts[i]); err != nil {
			return fmt.Errorf("dispatch %d (%s): %w", i, ph.Dispatches[i].Label(), err)
		}
	}
	t.phases = append(t.phases, flat)
	return nil
}

func (t *tables) addDispatch(p *plan.Plan, ph *plan.Phase, d *plan.Dispatch, start bool) error {
	flat := dispatch{
		kernel: t.kernel(d.Kernel), paramsAt: d.ParamsAt, group: d.Group, barrier: flag(d.Barrier), commandBuffer: flag(start),
		onCPU:         flag(d.OnCPU),
		hints:         hintsOf(d),
		firstArgument: uint32(len(t.arguments)), arguments: uint32(len(d.Bindings)),
		firstWord: uint32(len(t.words)), words: uint32(len(d.Params)),
	}
	flat.firstConstant, flat.constantsSet = t.constantSet(d.Constants)
	var err error
	add := func(e plan.Expr) uint32 {
		if err == nil {
			err = boundedBy(e, &ph.Bounds)
		}
		return t.value(e)
	}
	for i, e := range d.Grid {
		flat.grid[i] = add(e)
	}
	for _, e := range d.Params {
		t.words = append(t.words, add(e))
	}
	for _, b := range d.Bindings {
		a := argument{offset: b.Offset, index: b.Index, buffer: uint32(b.Buffer), bytes: add(b.Bytes)}
		a.access = flag(b.Read)*accessRead | flag(b.Write)*accessWrite
		if p.Buffers[b.Buffer].Kind.Kept() {
			a.access |= accessWhole // the Plan knows the size of one block only
		}
		t.arguments = append(t.arguments, a)
	}
	t.dispatches = append(t.dispatches, flat)
	t.labels = append(t.labels, t.name(d.Label()))
	return err
}

func hintsOf(d *plan.Dispatch) (hints [kernels.NumHints]uint32) {
	copy(hints[:], d.Hints)
	return hints
}

func (t *tables) addMatrices(p *plan.Plan) {
	t.matrices = make([]matrix, len(p.Buffers))
	tensors := make(map[string]*plan.Tensor, len(p.Tensors))
	for i := range p.Tensors {
		tensors[p.Tensors[i].Name] = &p.Tensors[i]
	}
	for i := range p.Buffers {
		if b := &p.Buffers[i]; b.Rearrange {
			shape := tensors[b.Name].Shape
			last, stack := len(shape)-1, 1
			for _, n := range shape[:last-1] {
				stack *= n
			}
			t.matrices[i] = matrix{rows: uint64(stack * shape[last-1]), columns: uint64(shape[last]), dtype: uint32(b.DType), stack: uint32(stack)}
		}
	}
}

func flag(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

func (t *tables) kernel(name string) uint32 {
	i, ok := t.kernelAt[name]
	if !ok {
		i = uint32(len(t.kernels))
		t.kernelAt[name] = i
		t.kernels = append(t.kernels, name)
		t.kernelNames = append(t.kernelNames, t.name(name))
	}
	return i
}

// name stores a text for C and returns its offset.
func (t *tables) name(text string) uint32 {
	at := uint32(len(t.names))
	t.names = append(append(t.names, text...), 0)
	return at
}

func (t *tables) constantSet(list []plan.Constant) (first, set uint32) {
	var key [constantWords + 1]uint32
	for _, c := range list {
		key[c.Index] = c.Bits
		set |= 1 << c.Index
	}
	key[constantWords] = set
	first, ok := t.constAt[key]
	if !ok {
		first = uint32(len(t.constants))
		t.constAt[key] = first
		t.constants = append(t.constants, key[:constantWords]...)
	}
	return first, set
}

// value returns the row of an expression; equal ones share one.
func (t *tables) value(e plan.Expr) uint32 {
	if n, ok := e.IsConst(); ok {
		i, ok := t.numberAt[n]
		if !ok {
			i = t.addValue(e)
			t.numberAt[n] = i
		}
		return i
	}
	key := binary.AppendVarint(t.keyBuffer[:0], e.Constant)
	for i := range e.Terms {
		u := &e.Terms[i]
		key = binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(key, u.Mul), u.Add), u.Div)
		key = append(key, u.Pow[:]...)
	}
	t.keyBuffer = key
	i, ok := t.valueAt[string(key)]
	if !ok {
		i = t.addValue(e)
		t.valueAt[string(key)] = i
	}
	return i
}

func (t *tables) addValue(e plan.Expr) uint32 {
	v := value{constant: e.Constant, firstTerm: uint32(len(t.terms)), terms: uint32(len(e.Terms))}
	for _, u := range e.Terms {
		flat := term{mul: u.Mul, add: u.Add, div: u.Div}
		copy(flat.power[:], u.Pow[:])
		t.terms = append(t.terms, flat)
	}
	t.values = append(t.values, v)
	return uint32(len(t.values) - 1)
}

// boundedBy checks that an expression grows with the sizes and stays far from
// overflow up to the bounds, so that what holds at the bounds holds below.
func boundedBy(e plan.Expr, bounds *sym.Sizes) error {
	sum := math.Abs(float64(e.Constant))
	for i := range e.Terms {
		u := &e.Terms[i]
		if u.Mul < 0 || u.Div < 1 {
			return fmt.Errorf("the expression %s falls with the sizes", e)
		}
		v := float64(u.Mul)
		for s, p := range u.Pow {
			v *= math.Pow(float64(bounds[s]), float64(p))
		}
		sum += v + math.Abs(float64(u.Add)) + float64(u.Div)
	}
	if sum > maxValue {
		return fmt.Errorf("the expression %s is too large at %v", e, *bounds)
	}
	return nil
}

// The symbols must fit, and Sizes must start like sizes of device.h.
var _ [symbols - sym.Count]struct{}
