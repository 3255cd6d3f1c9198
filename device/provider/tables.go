package provider

import (
	"encoding/binary"
	"math/bits"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

// The types below mirror the structs of device.h, field by field; the build
// compares their sizes.
type (
	term struct {
		mul, add, div int64
		power         [device.Symbols]uint8
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
		bounds                    [device.Symbols]int64
	}
)

const (
	accessRead = 1 << iota
	accessWrite
	accessWhole
)

// tables holds a flattened Plan, the arrays of smelt_tables.
type tables struct {
	terms       []term
	values      []value
	arguments   []argument
	words       []uint32
	constants   []uint32
	dispatches  []dispatch
	phases      []phase
	names       []byte
	kernelNames []uint32
	labels      []uint32 // offsets in names, by dispatch

	kernelAt  map[string]uint32
	numberAt  map[int64]uint32
	valueAt   map[string]uint32
	constAt   map[[device.MaxConstants + 1]uint32]uint32
	keyBuffer []byte
}

// flatten returns the tables of a valid Plan.
func flatten(p *plan.Plan) *tables {
	t := &tables{
		kernelAt: map[string]uint32{}, numberAt: map[int64]uint32{},
		valueAt: map[string]uint32{}, constAt: map[[device.MaxConstants + 1]uint32]uint32{},
	}
	for i, name := range device.Kernels(p) {
		t.kernelAt[name] = uint32(i)
		t.kernelNames = append(t.kernelNames, t.name(name))
	}
	for i := range p.Phases {
		t.addPhase(p, &p.Phases[i])
	}
	return t
}

func (t *tables) addPhase(p *plan.Plan, ph *plan.Phase) {
	flat := phase{firstDispatch: uint32(len(t.dispatches)), dispatches: uint32(len(ph.Dispatches))}
	copy(flat.bounds[:], ph.Bounds[:])
	starts := make(map[int]bool, len(ph.CommandBuffers))
	for _, i := range ph.CommandBuffers {
		starts[i] = true
	}
	for i := range ph.Dispatches {
		t.addDispatch(p, &ph.Dispatches[i], starts[i])
	}
	t.phases = append(t.phases, flat)
}

func (t *tables) addDispatch(p *plan.Plan, d *plan.Dispatch, start bool) {
	flat := dispatch{
		kernel: t.kernelAt[d.Kernel], paramsAt: d.ParamsAt, group: d.Group, barrier: bit(d.Barrier), commandBuffer: bit(start),
		onCPU:         bit(d.OnCPU),
		hints:         hintsOf(d),
		firstArgument: uint32(len(t.arguments)), arguments: uint32(len(d.Bindings)),
		firstWord: uint32(len(t.words)), words: uint32(len(d.Params)),
	}
	flat.firstConstant, flat.constantsSet = t.constantSet(d.Constants)
	for i, e := range d.Grid {
		flat.grid[i] = t.value(e)
	}
	for _, e := range d.Params {
		t.words = append(t.words, t.value(e))
	}
	for _, b := range d.Bindings {
		a := argument{offset: b.Offset, index: b.Index, buffer: uint32(b.Buffer), bytes: t.value(b.Bytes)}
		a.access = bit(b.Read)*accessRead | bit(b.Write)*accessWrite
		if p.Buffers[b.Buffer].Kind.Kept() {
			a.access |= accessWhole // the Plan has the size of one block only
		}
		t.arguments = append(t.arguments, a)
	}
	t.dispatches = append(t.dispatches, flat)
	t.labels = append(t.labels, t.name(d.Label()))
}

func hintsOf(d *plan.Dispatch) (hints [kernels.NumHints]uint32) {
	copy(hints[:], d.Hints)
	return hints
}

func bit(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// name stores a zero-terminated string and returns its offset.
func (t *tables) name(text string) uint32 {
	at := uint32(len(t.names))
	t.names = append(append(t.names, text...), 0)
	return at
}

func (t *tables) constantSet(list []plan.Constant) (first, set uint32) {
	var key [device.MaxConstants + 1]uint32
	for _, c := range list {
		key[c.Index] = c.Bits
		set |= 1 << c.Index
	}
	key[device.MaxConstants] = set
	first, ok := t.constAt[key]
	if !ok {
		first = uint32(len(t.constants))
		t.constAt[key] = first
		t.constants = append(t.constants, key[:device.MaxConstants]...)
	}
	return first, set
}

// value returns the row of an expression; equal expressions share a row.
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

// maskOf returns a bit mask of processors in words of C's unsigned long.
func maskOf(cpus []int) []uint {
	var mask []uint
	for _, cpu := range cpus {
		for len(mask) <= cpu/bits.UintSize {
			mask = append(mask, 0)
		}
		mask[cpu/bits.UintSize] |= 1 << (cpu % bits.UintSize)
	}
	return mask
}
