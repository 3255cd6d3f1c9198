package plan

import (
	"errors"
	"fmt"
	"math"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
)

// ErrPlan is wrapped by every error of Validate.
var ErrPlan = errors.New("invalid plan")

// Limits far above any real Plan; they bound the memory that a corrupted file can request.
const (
	maxBuffers = 1 << 20
	maxPhases  = 1 << 16
	maxArgs    = 31
	maxWords   = 64
	maxSize    = 1 << 46
)

// MaxValue is the largest value of an expression at the bounds of a phase: far above any size and
// far from overflow.
const MaxValue = 1 << 56

// buffered holds the targets whose devices take steps in command buffers.
var buffered = map[string]bool{"metal": true}

// Validate checks all that a device relies on: every index, size and offset, and the launches of
// the kernels in the table. Its errors wrap ErrPlan. A Plan that Lower made passes; one from a file
// may not.
func (p *Plan) Validate() error {
	p.valid = nil
	if err := p.validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrPlan, err)
	}
	p.valid = p
	return nil
}

// Valid reports whether the last Validate accepted the Plan, which must not be changed since. A
// copy of a valid Plan is not valid until it is validated itself.
func (p *Plan) Valid() bool { return p.valid == p }

func (p *Plan) validate() error {
	if p.Context <= 0 || p.Context > math.MaxInt32 {
		return fmt.Errorf("a context of %d", p.Context)
	}
	if p.Vocab < 0 || p.Vocab > math.MaxInt32 {
		return fmt.Errorf("a vocabulary of %d", p.Vocab)
	}
	if len(p.Buffers) == 0 || len(p.Buffers) > maxBuffers || len(p.Phases) == 0 || len(p.Phases) > maxPhases {
		return fmt.Errorf("%d buffers, %d phases", len(p.Buffers), len(p.Phases))
	}
	tensors := make(map[string]*Tensor, len(p.Tensors))
	for i := range p.Tensors {
		t := &p.Tensors[i]
		if tensors[t.Name] != nil {
			return fmt.Errorf("tensor %q is listed twice", t.Name)
		}
		if err := t.validate(); err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		tensors[t.Name] = t
	}
	for i := range p.Buffers {
		if err := p.validateBuffer(&p.Buffers[i], tensors); err != nil {
			return fmt.Errorf("buffer %d (%s %q): %w", i, p.Buffers[i].Kind, p.Buffers[i].Name, err)
		}
	}
	for i := range p.Phases {
		if err := p.validatePhase(&p.Phases[i]); err != nil {
			return fmt.Errorf("phase %d (%s): %w", i, p.Phases[i].Name, err)
		}
	}
	return nil
}

func (t *Tensor) validate() error {
	if t.DType == dtype.Invalid || !t.DType.Known() || len(t.Shape) == 0 || len(t.Shape) > 4 {
		return fmt.Errorf("%v of type %d", t.Shape, t.DType)
	}
	n := int64(1)
	for _, d := range t.Shape {
		if d <= 0 || int64(d) > maxSize/n {
			return fmt.Errorf("shape %v", t.Shape)
		}
		n *= int64(d)
	}
	if t.Shape[len(t.Shape)-1]%t.DType.BlockElems() != 0 {
		return fmt.Errorf("shape %v is not whole blocks of %s", t.Shape, t.DType)
	}
	return nil
}

// Elements returns the number of elements of the tensor.
func (t *Tensor) Elements() int64 {
	n := int64(1)
	for _, d := range t.Shape {
		n *= int64(d)
	}
	return n
}

func (p *Plan) validateBuffer(b *Buffer, tensors map[string]*Tensor) error {
	if kindNames[b.Kind] == "" || !b.DType.Known() {
		return fmt.Errorf("kind %d, type %d", b.Kind, b.DType)
	}
	if err := b.Bytes.validate(); err != nil {
		return err
	}
	if b.Rearrange && (b.Kind != Weight || tensors[b.Name] == nil || len(tensors[b.Name].Shape) < 2) {
		return errors.New("rearranged, and not a matrix")
	}
	if b.Lines && (b.Kind != Weight || tensors[b.Name] == nil || len(tensors[b.Name].Shape) != 2 || b.Rearrange || !kernels.HasLines(uint32(b.DType))) {
		return fmt.Errorf("%s in lines, which are of matrices of some types", b.DType)
	}
	if b.Owners != nil {
		return b.validateOwners(p)
	}
	n, constant := b.Bytes.IsConst()
	switch b.Kind {
	case Input:
		name, _ := sym.Window(b.Name)
		if want, ok := inputBytes[name]; ok && b.Bytes.String() != want.String() {
			return fmt.Errorf("%s bytes, want %s", b.Bytes, want)
		}
	case Weight:
		t := tensors[b.Name]
		if t == nil || b.DType != t.DType && !(b.DType == dtype.F32 && t.DType.IsFloat()) {
			return errors.New("the manifest has no such tensor")
		}
		if !constant || n != b.DType.Bytes(t.Elements()) {
			return fmt.Errorf("%s bytes for %v of %s", b.Bytes, t.Shape, b.DType)
		}
	case Const:
		if !constant || n != int64(len(b.Data)) {
			return fmt.Errorf("%s bytes, %d of data", b.Bytes, len(b.Data))
		}
	case CacheK, CacheV:
		if b.Layer < 0 || b.Layer >= len(p.Caches) {
			return fmt.Errorf("layer %d of %d", b.Layer, len(p.Caches))
		}
		c := p.Caches[b.Layer]
		if c.KVHeads <= 0 || c.Head <= 0 || c.Block <= 0 || c.Window < 0 || !c.DType.Known() || c.DType != b.DType {
			return fmt.Errorf("cache %+v", c)
		}
		if want := c.DType.Bytes(int64(c.KVHeads) * int64(c.Block) * int64(c.Head)); !constant || n != want {
			return fmt.Errorf("%s bytes a block, want %d", b.Bytes, want)
		}
	case State:
		r := b.Recurrent
		if b.Layer < 0 || b.Layer >= len(p.Caches) || b.DType != dtype.F32 || r.Rows <= 0 || r.Width <= 0 || int64(r.Rows) > maxSize/int64(r.Width)/4 {
			return fmt.Errorf("a state of %+v of layer %d", r, b.Layer)
		}
		if r.Block <= 0 || r.Block != p.Block() {
			return fmt.Errorf("blocks of %d tokens, beside others of %d", r.Block, p.Block())
		}
		if want := dtype.F32.Bytes(int64(r.Rows) * int64(r.Width)); !constant || n != want {
			return fmt.Errorf("%s bytes a state, want %d", b.Bytes, want)
		}
	}
	return nil
}

func (e Expr) validate() error {
	if len(e.Terms) > 8 || e.Constant > maxSize || e.Constant < -maxSize {
		return fmt.Errorf("the expression %s", e)
	}
	for _, t := range e.Terms {
		if t.Div <= 0 || t.Mul < 0 || t.Mul > maxSize || t.Add > maxSize || t.Add < -maxSize {
			return fmt.Errorf("the expression %s", e)
		}
		for _, p := range t.Pow {
			if p > 3 {
				return fmt.Errorf("the expression %s", e)
			}
		}
	}
	return nil
}

// validateAt checks an expression whose value is at most MaxValue at the bounds. It grows with the
// sizes, so that every check that passes at the bounds passes at smaller sizes.
func (e Expr) validateAt(bounds *sym.Sizes) error {
	if err := e.validate(); err != nil {
		return err
	}
	sum := math.Abs(float64(e.Constant))
	for i := range e.Terms {
		t := &e.Terms[i]
		v := float64(t.Mul)
		for s, p := range t.Pow {
			for ; p > 0; p-- {
				v *= float64(bounds[s])
			}
		}
		sum += v + math.Abs(float64(t.Add)) + float64(t.Div)
	}
	if sum > MaxValue {
		return fmt.Errorf("the expression %s is too large at %v", e, *bounds)
	}
	return nil
}

func (p *Plan) validatePhase(ph *Phase) error {
	for i, n := range ph.Bounds {
		if least := ph.Least[i]; least < 0 || n < least || n > math.MaxInt32 {
			return fmt.Errorf("steps of %s = %d to %d", sym.Sym(i), least, n)
		}
	}
	if ph.Bounds[sym.T] > 0 == (ph.Bounds[sym.C] > 0) || ph.Least[sym.T]+ph.Least[sym.C] < 1 || ph.Bounds[sym.Smax] < 1 {
		return fmt.Errorf("steps of %d tokens over contexts of up to %d, and %d copies of blocks", ph.Least[sym.T], ph.Bounds[sym.Smax], ph.Least[sym.C])
	}
	if l := ph.Longest; l.Min < min(1, ph.Bounds[sym.T]) || l.Max < l.Min || l.Max > math.MaxInt32 {
		return fmt.Errorf("sequences of %d to %d tokens", l.Min, l.Max)
	}
	next := 0
	for _, c := range ph.CommandBuffers {
		if c < next || c >= len(ph.Dispatches) || next == 0 && c != 0 {
			return fmt.Errorf("command buffers start at %v", ph.CommandBuffers)
		}
		next = c + 1
	}
	if buffered[p.Target] && len(ph.CommandBuffers) == 0 && len(ph.Dispatches) > 0 {
		return errors.New("no command buffer")
	}
	for i := range p.Buffers {
		if err := p.Buffers[i].Bytes.validateAt(&ph.Bounds); err != nil {
			return fmt.Errorf("buffer %d (%s %q): %w", i, p.Buffers[i].Kind, p.Buffers[i].Name, err)
		}
	}
	for i := range ph.Dispatches {
		if err := p.validateDispatch(ph, &ph.Dispatches[i]); err != nil {
			return fmt.Errorf("dispatch %d (%s): %w", i, ph.Dispatches[i].Label(), err)
		}
	}
	return p.validateOrders(ph)
}

func (p *Plan) validateDispatch(ph *Phase, d *Dispatch) error {
	if d.Kernel == "" || d.ParamsAt >= maxArgs || len(d.Params) > maxWords {
		return fmt.Errorf("kernel %q with %d parameters at %d", d.Kernel, len(d.Params), d.ParamsAt)
	}
	exprs := append(append([]Expr(nil), d.Params...), d.Grid[:]...)
	for _, e := range exprs {
		if err := e.validateAt(&ph.Bounds); err != nil {
			return err
		}
	}
	for i, g := range d.Grid {
		if n := g.Eval(&ph.Bounds); n < 0 || n > math.MaxInt32 || d.Group[i] == 0 || d.Group[i] > 1024 {
			return fmt.Errorf("a grid of %v by %v threads", d.Grid, d.Group)
		}
	}
	if d.Group[0]*d.Group[1]*d.Group[2] > 1024 {
		return fmt.Errorf("%v threads in a threadgroup", d.Group)
	}
	var seen uint32 = 1 << d.ParamsAt
	for _, c := range d.Constants {
		if c.Index >= 32 {
			return fmt.Errorf("function constant %d", c.Index)
		}
	}
	for _, b := range d.Bindings {
		if b.Index >= maxArgs || seen&(1<<b.Index) != 0 {
			return fmt.Errorf("argument %d is bound twice or does not exist", b.Index)
		}
		seen |= 1 << b.Index
		if b.Buffer < 0 || int(b.Buffer) >= len(p.Buffers) {
			return fmt.Errorf("argument %d is buffer %d of %d", b.Index, b.Buffer, len(p.Buffers))
		}
		if err := b.Bytes.validateAt(&ph.Bounds); err != nil {
			return err
		}
		buffer := &p.Buffers[b.Buffer]
		if c := d.TypeOf(&b); buffer.Kind == Weight && (c != nil || buffer.Lines) {
			want := uint32(buffer.DType)
			if buffer.Lines {
				want += kernels.Lines
			}
			if c == nil || c.Bits != want {
				return fmt.Errorf("argument %d is %s %q, and the kernel is told of another type or order", b.Index, buffer.Kind, buffer.Name)
			}
		}
		if b.Write && (buffer.Kind == Weight || buffer.Kind == Const || buffer.Kind == Input) {
			return fmt.Errorf("argument %d writes to a %s", b.Index, buffer.Kind)
		}
		have := buffer.Bytes.Eval(&ph.Bounds)
		if n := b.Bytes.Eval(&ph.Bounds); b.Offset < 0 || n < 0 || b.Offset > have-n {
			return fmt.Errorf("argument %d needs bytes [%d,%d) of %s %q, which has %d", b.Index, b.Offset, b.Offset+n, buffer.Kind, buffer.Name, have)
		}
	}
	if err := d.validateLaunches(ph); err != nil {
		return err
	}
	return p.validateIndices(d)
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
	case o.Tile < 1 || o.Tile > math.MaxInt16 || o.Least < 1 || o.Most < o.Least || o.Most > MaxTokens:
		return fmt.Errorf("owners %+v", *o)
	case !seqlens():
		return fmt.Errorf("owners without %s", sym.CuSeqlens)
	case b.Bytes.String() != o.Bytes().String():
		return fmt.Errorf("%s bytes of owners, want %s", b.Bytes, o.Bytes())
	}
	return nil
}
