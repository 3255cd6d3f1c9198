package plan

import (
	"errors"
	"fmt"
	"slices"

	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
)

// inputBytes are the bytes of the inputs whose values a device checks before a step.
var inputBytes = map[string]Expr{
	sym.Tokens: Size(sym.T).Times(4), sym.Positions: Size(sym.T).Times(4), sym.Ends: Size(sym.T).Times(4), sym.TokenTypes: Size(sym.T).Times(4),
	sym.Slots: Size(sym.T).Times(4), sym.LogitRows: Size(sym.R).Times(4), sym.ContextLens: Size(sym.B).Times(4),
	sym.CuSeqlens:  Size(sym.B).Times(4).Plus(Number(4)),
	sym.States:     Size(sym.B).Times(8),
	sym.BlockTable: product(Size(sym.B), Size(sym.NB)).Times(4), sym.Copies: Size(sym.C).Times(8),
}

func product(a, b Expr) Expr {
	e, err := Multiply(a, b)
	if err != nil {
		panic(err)
	}
	return e
}

// validateIndices checks that every index by which the dispatch's kernel finds memory has been
// checked before, that caches are the Plan's, in the kernel's layout, and that what the kernel
// writes is marked so. validateLaunches has passed.
func (p *Plan) validateIndices(d *Dispatch) error {
	k, ok := kernels.Lookup(d.Kernel)
	if !ok {
		return nil
	}
	if c, ok := k.Constant("fc_slots"); ok && slices.Contains(d.Constants, Constant{uint32(c.Index), 0}) {
		return fmt.Errorf("%s of %s is off, and positions are no slots", c.Name, k.Name)
	}
	kept := p.windowOf(d)
	for i := range d.Bindings {
		b := &d.Bindings[i]
		a, ok := k.Arg(int(b.Index))
		if !ok || d.hostScratch(b.Index) {
			continue
		}
		if a.Access == kernels.Write && !b.Write {
			return fmt.Errorf("argument %s is written, and its binding only reads", a.Name)
		}
		buffer := &p.Buffers[b.Buffer]
		if align := alignment(k, &a); b.Offset%align != 0 {
			return fmt.Errorf("argument %s is at byte %d of %s %q; the kernel needs a multiple of %d", a.Name, b.Offset, buffer.Kind, buffer.Name, align)
		}
		var err error
		if index, ok := k.Index(&a); ok {
			if err = d.validateIndex(k, &index, b, buffer); err == nil {
				err = validateWindow(buffer, kept)
			}
		} else if a.IsKept() {
			err = p.validateKept(d, k, &a, b, buffer)
		}
		if err != nil {
			return fmt.Errorf("argument %s: %s %q: %w", a.Name, buffer.Kind, buffer.Name, err)
		}
	}
	return nil
}

// alignment returns what offsets of an argument are multiples of: most kernels load four floats at once,
// and words of stored weights. Metal binds buffers at multiples of four bytes.
func alignment(k *kernels.Kernel, a *kernels.Arg) int64 {
	switch a.Element {
	case kernels.Float, kernels.Half, kernels.Bfloat:
		if k.Scalar {
			return 4
		}
		return 4 * int64(a.Element.Size())
	case kernels.Int:
		return int64(a.Element.Size())
	}
	return 2
}

// windowOf returns the window of the cache that a dispatch reads or writes; 0 where there is none.
func (p *Plan) windowOf(d *Dispatch) int {
	for i := range d.Bindings {
		if b := &p.Buffers[d.Bindings[i].Buffer]; b.Kind == CacheK || b.Kind == CacheV {
			return p.Caches[b.Layer].Window
		}
	}
	return 0
}

// validateWindow checks that an input that finds blocks finds those of the layer's window.
func validateWindow(buffer *Buffer, window int) error {
	base, _ := sym.Window(buffer.Name)
	if blocks := base == sym.Slots || base == sym.BlockTable; buffer.Kind != Input || !blocks || buffer.Name == sym.Windowed(base, window) {
		return nil
	}
	return fmt.Errorf("the layer's blocks are in %s", sym.Windowed(base, window))
}

func (d *Dispatch) validateIndex(k *kernels.Kernel, index *kernels.Index, b *Binding, buffer *Buffer) error {
	base, _ := sym.Window(buffer.Name)
	switch {
	case index.Checked:
		return nil
	case index.Made != "" && buffer.Kind == Arena:
		return nil // validateOrders finds what it holds
	case buffer.Kind != Input || b.Offset != 0 || buffer.Owners != nil != index.Owners ||
		!index.Owners && !slices.Contains(index.Inputs, base) && !(index.Derived && sym.Derived(buffer.Name)):
		return fmt.Errorf("its values are unknown; it takes %s, from its start on", index.Takes())
	}
	for name, size := range index.Sizes {
		word, ok := k.Param(name)
		if !ok {
			continue
		}
		if want := Size(size).String(); d.Params[word].String() != want {
			return fmt.Errorf("%s is %s, not %s", name, d.Params[word], want)
		}
		for i, axis := range k.Grid {
			if axis.Tile == 1 && slices.Equal(axis.Words, []int{word}) && d.Grid[i].String() != d.Params[word].String() {
				return fmt.Errorf("a grid of %s on axis %d, not %s", d.Grid[i], i, name)
			}
		}
	}
	return nil
}

// validateKept checks that the kernel finds blocks in a buffer where the device has them.
func (p *Plan) validateKept(d *Dispatch, k *kernels.Kernel, a *kernels.Arg, b *Binding, buffer *Buffer) error {
	if _, state := k.Named("state"); !buffer.Kind.Kept() || (buffer.Kind == State) != state {
		return errors.New("the kernel finds blocks of a cache or a state in it")
	}
	if b.Offset != 0 || b.Bytes.String() != buffer.Bytes.String() {
		return fmt.Errorf("bytes [%d,%d+%s) of blocks of %s", b.Offset, b.Offset, b.Bytes, buffer.Bytes)
	}
	var want map[string]int64
	if buffer.Kind != State {
		c := p.Caches[buffer.Layer]
		n := int64(c.KVHeads) * int64(c.Block) * int64(c.Head)
		want = map[string]int64{"block": int64(c.Block), "kv_heads": int64(c.KVHeads), "head": int64(c.Head), "block_stride": n}
		size := n * int64(a.Element.Size())
		if a.Element == kernels.Blocks {
			size /= 32
		}
		if have, _ := buffer.Bytes.IsConst(); have != size {
			return fmt.Errorf("the cache is of %s, the kernel's of %s", c.DType, a.Element)
		}
	}
	for name, n := range want {
		word, ok := k.Param(name)
		if !ok {
			continue
		}
		if have, constant := d.Params[word].IsConst(); !constant || have != n {
			return fmt.Errorf("%s is %s, that of its blocks %d", name, d.Params[word], n)
		}
	}
	return nil
}

// extent is a range of bytes of a buffer.
type extent struct {
	buffer     int32
	begin, end int64
}

func (e extent) overlaps(x extent) bool {
	return e.buffer == x.buffer && e.begin < x.end && x.begin < e.end
}

// made is an argument that a dispatch wrote.
type made struct {
	extent
	by  *Dispatch
	arg string
}

// validateOrders checks that every argument that group_by_expert makes holds, when it is read, what
// a dispatch of the phase wrote for as many rows and experts, and nothing else.
func (p *Plan) validateOrders(ph *Phase) error {
	var known, fresh []made // before and after the last barrier
	var read []extent       // after it
	for i := range ph.Dispatches {
		d := &ph.Dispatches[i]
		if d.Barrier {
			known, fresh, read = append(known, fresh...), nil, nil
		}
		k, listed := kernels.Lookup(d.Kernel)
		refuse := func(b *Binding, what string) error {
			a, _ := k.Arg(int(b.Index))
			return fmt.Errorf("dispatch %d (%s): argument %s: %s %q: %s", i, d.Label(), a.Name, p.Buffers[b.Buffer].Kind, p.Buffers[b.Buffer].Name, what)
		}
		var by *Dispatch
		for j := range d.Bindings {
			b := &d.Bindings[j]
			if !listed || p.Buffers[b.Buffer].Kind != Arena {
				continue
			}
			a, _ := k.Arg(int(b.Index))
			index, _ := k.Index(&a)
			if index.Made == "" {
				continue
			}
			at := slices.IndexFunc(known, func(m made) bool {
				return m.buffer == b.Buffer && m.begin == b.Offset && m.arg == index.Made
			})
			if at < 0 || by != nil && by != known[at].by {
				return refuse(b, "it does not hold "+index.Takes())
			}
			by = known[at].by
			if err := d.follows(k, by); err != nil {
				return refuse(b, err.Error())
			}
			read = append(read, known[at].extent)
		}
		for j := range d.Bindings {
			b := &d.Bindings[j]
			if !b.Write {
				continue
			}
			e := extent{b.Buffer, b.Offset, b.Offset + b.Bytes.Eval(&ph.Bounds)}
			if slices.ContainsFunc(read, e.overlaps) {
				return fmt.Errorf("dispatch %d (%s): argument %d writes over what is read without a barrier between", i, d.Label(), b.Index)
			}
			gone := func(m made) bool { return m.overlaps(e) && m.by != d }
			known, fresh = slices.DeleteFunc(known, gone), slices.DeleteFunc(fresh, gone)
			if listed && k.Family == kernels.GroupByExpert {
				a, _ := k.Arg(int(b.Index))
				fresh = append(fresh, made{e, d, a.Name})
			}
		}
	}
	return nil
}

// follows checks that a product takes as many rows and experts as a dispatch of group_by_expert has
// put in order.
func (d *Dispatch) follows(k *kernels.Kernel, by *Dispatch) error {
	group, _ := kernels.Lookup(by.Kernel)
	value := func(k *kernels.Kernel, d *Dispatch, name string) Expr {
		word, _ := k.Param(name)
		return d.Params[word]
	}
	rows, tokens := value(group, by, "rows"), value(k, d, "tokens")
	if rows.String() != tokens.String() {
		return fmt.Errorf("the order is of %s rows, for %s", rows, tokens)
	}
	experts := int64(0)
	if c, ok := k.Constant("fc_experts"); ok {
		for _, have := range d.Constants {
			if have.Index == uint32(c.Index) {
				experts = int64(have.Bits)
			}
		}
	}
	if groups, constant := value(group, by, "groups").IsConst(); !constant || groups != experts+1 {
		return fmt.Errorf("the order is of %s groups, for %d experts", value(group, by, "groups"), experts)
	}
	return nil
}

// Alone returns, for each dispatch of a phase, those of a phase that runs it by itself: the dispatch,
// after that of group_by_expert whose order it reads.
func (p *Plan) Alone(ph *Phase) [][]Dispatch {
	alone := make([][]Dispatch, len(ph.Dispatches))
	for i, reads := range p.Dependencies(ph) {
		for _, by := range reads {
			if k, ok := kernels.Lookup(ph.Dispatches[by].Kernel); ok && k.Family == kernels.GroupByExpert {
				alone[i] = []Dispatch{ph.Dispatches[by]}
			}
		}
		alone[i] = append(alone[i], ph.Dispatches[i])
		alone[i][len(alone[i])-1].Barrier = len(alone[i]) > 1 || ph.Dispatches[i].Barrier
	}
	return alone
}
