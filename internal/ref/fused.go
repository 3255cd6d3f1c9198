package ref

import (
	"fmt"
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

func (r *run) fusedLinear(v *ir.Value) (result, error) {
	if r.Followed != nil {
		return r.deviceProduct(v)
	}
	a, in, err := r.linearOf(v)
	if err != nil {
		return result{}, err
	}
	x, last := in.x, in.x.last()
	input := x.Data
	if a.Norm != ir.NoNorm {
		input = make([]float64, len(x.Data))
		for i := range x.rows() {
			in.normalise(a, input[i*last:(i+1)*last], x.row(i))
		}
	}
	return r.each(v, func(out *Tensor) error {
		parts := []*Tensor{out}
		if a.Gated {
			parts = append(parts, &Tensor{Shape: out.Shape, Data: make([]float64, len(out.Data))})
		}
		column := 0
		for i, w := range in.weights {
			to := parts[0]
			if a.Gated {
				to, column = parts[i], 0
			}
			product2D(to.Data, to.last(), column, input, x.rows(), w.Data, w.Shape[0], last)
			to.addToRows(column, in.biases[i])
			column += w.Shape[0]
		}
		for i, x := range out.Data {
			if a.Gated {
				out.Data[i] = Gate(a.Activation, x, parts[1].Data[i])
			} else {
				out.Data[i] = Activate(a.Activation, x)
			}
		}
		for t := range out.rows() {
			for i := range out.row(t) {
				out.row(t)[i] *= in.gateOf(a, t, i)
			}
		}
		if in.residual != nil {
			for i, x := range in.residual.Data {
				out.Data[i] += x
			}
		}
		return nil
	})
}

// gateOf returns what multiplies a product.
func (in *linearInputs) gateOf(a ir.LinearAttr, row, column int) float64 {
	switch {
	case in.gate == nil:
		return 1
	case a.ColumnGate:
		return in.gate.row(row)[a.GateColumn+column]
	}
	return Activate(a.RowGate, in.gate.row(row)[a.GateColumn])
}

func (r *run) normResidual(v *ir.Value) (result, error) {
	x, w, residual, gain, eps := r.tensor(v, 0), r.tensor(v, 1), r.tensor(v, 2), r.optional(v, 3), v.Attr.(ir.NormAttr).Eps
	return r.each(v, func(out *Tensor) error {
		for i := range x.rows() {
			normalise(out.row(i), x.row(i), w.Data, eps)
		}
		for i, a := range residual.Data {
			out.Data[i] += a
			if gain != nil {
				out.Data[i] *= gain.Data[0]
			}
		}
		return nil
	})
}

// linearInputs are the operands of a linear or fused_linear; absent ones are nil.
type linearInputs struct {
	x                           *Tensor
	weights, biases             []*Tensor
	gain, shift, gate, residual *Tensor
}

func (r *run) linearOf(v *ir.Value) (ir.LinearAttr, linearInputs, error) {
	a, o := ir.AsFusedLinear(v)
	in := r.linearInputs(a, o)
	var err error
	if o.Rows != nil {
		in.x, err = in.x.take(r.results[o.Rows.ID].tensor.Ints)
	}
	return a, in, err
}

func (r *run) linearInputs(a ir.LinearAttr, o ir.LinearOperands) linearInputs {
	tensor := func(v *ir.Value) *Tensor {
		if v == nil {
			return nil
		}
		return r.results[v.ID].tensor
	}
	in := linearInputs{x: tensor(o.X), gain: tensor(o.Gain), shift: tensor(o.Shift), gate: tensor(o.Gate), residual: tensor(o.Residual)}
	for i, w := range o.Weights {
		var bias *ir.Value
		if a.Bias {
			bias = o.Biases[i]
		}
		in.weights, in.biases = append(in.weights, tensor(w)), append(in.biases, tensor(bias))
	}
	if a.Leading {
		in.x = in.x.leading(in.weights[0].last())
	}
	return in
}

// leading returns the first n columns of t.
func (t *Tensor) leading(n int) *Tensor {
	out := &Tensor{Shape: append(slices.Clone(t.Shape[:len(t.Shape)-1]), n)}
	for i := range t.rows() {
		out.Data = append(out.Data, t.row(i)[:n]...)
	}
	return out
}

// normalise applies the norm prologue to a row x; out may be x.
func (in *linearInputs) normalise(a ir.LinearAttr, out, x []float64) {
	if a.Norm == ir.RMSNorm {
		normalise(out, x, in.gain.Data, a.Eps)
		return
	}
	layerNormalise(out, x, in.gain, in.shift, a.Eps)
}

// addToRows adds a vector to every row, from the given column on; nil adds nothing.
func (t *Tensor) addToRows(column int, v *Tensor) {
	if v == nil {
		return
	}
	for i := range t.rows() {
		row := t.row(i)[column:]
		for j, x := range v.Data {
			row[j] += x
		}
	}
}

func (r *run) attention(v *ir.Value) (result, error) {
	q, cache, a := r.tensor(v, 0), r.cache(v, 1), v.Attr.(ir.AttentionAttr)
	var sinks, slopes *Tensor
	s, o := a.Optional(v.Args)
	if s != nil {
		sinks = r.results[s.ID].tensor
	}
	if o != nil {
		slopes = r.results[o.ID].tensor
	}
	c, err := r.context(v, 2)
	if err != nil {
		return result{}, err
	}
	p, err := r.pages(cache, r.tensor(v, 4), r.tensor(v, 5))
	if err != nil {
		return result{}, err
	}
	heads := q.Shape[1]
	perKV := heads / cache.KVHeads
	return r.each(v, func(out *Tensor) error {
		for i := range q.rows() {
			t, h := i/heads, i%heads
			b := c.sequence[t]
			visible := max(0, min(int(c.positions[t])+1, int(c.lens[b])))
			scores := make([]float64, visible)
			for j := range scores {
				if scores[j] = negInf; !c.sees(t, b, j, a.Window) {
					continue
				}
				from, to := p.key(b, j, h/perKV)
				if scores[j] = a.Scale * dot(q.row(i), cache.K[from:to]); a.SoftCap != 0 {
					scores[j] = softCap(scores[j], a.SoftCap)
				}
				scores[j] += c.fall(slopes, h, t, j)
			}
			softmax(scores, sinkOf(sinks, h))
			for j, weight := range scores {
				if !c.sees(t, b, j, a.Window) {
					continue
				}
				from, to := p.key(b, j, h/perKV)
				addScaled(out.row(i), weight, cache.V[from:to])
			}
			if gate := a.Gated(v.Args); gate != nil {
				row := r.results[gate.ID].tensor.row(t)[a.Gate.From:]
				for d := range out.row(i) {
					out.row(i)[d] *= Activate(a.Gate.Activation, row[gateColumn(a.Gate, h, d, cache.Head)])
				}
			}
		}
		return nil
	})
}

// gateColumn returns which of a gate's columns multiplies element d of head h.
func gateColumn(a ir.GateAttr, h, d, head int) int {
	if a.ByHead {
		return h
	}
	return h*head + d
}

func (r *run) qkvWrite(v *ir.Value) (result, error) {
	slots := r.tensor(v, 2).Ints
	return r.takeApart(v, v.Attr.(ir.QKVWriteAttr).Heads, slots, func(out, head []float64, _, _ int) { copy(out, head) })
}

func (r *run) ropeQKVWrite(v *ir.Value) (result, error) {
	a := v.Attr.(ir.RopeWriteAttr)
	return r.rotateAndWrite(v, newAngles(a.Rope, r.optional(v, 4)), func(head []float64, _ int) []float64 { return head })
}

func (r *run) headNormRopeKVWrite(v *ir.Value) (result, error) {
	a := v.Attr.(ir.RopeWriteAttr)
	norms := [2][]float64{r.tensor(v, 4).Data, r.tensor(v, 5).Data}
	rope := newAngles(a.Rope, r.optional(v, 6))
	if a.NormValues {
		v = r.normedValues(v, a)
	}
	if a.AllHeads {
		return r.rotateAndWrite(r.normedRows(v, norms, a.Eps), rope, func(head []float64, _ int) []float64 { return head })
	}
	return r.rotateAndWrite(v, rope, func(head []float64, which int) []float64 {
		normed := make([]float64, len(head))
		normalise(normed, head, norms[which], a.Eps)
		return normed
	})
}

func (r *run) latentWrite(v *ir.Value) (result, error) {
	a := v.Attr.(ir.LatentWriteAttr)
	o := a.Operands(v.Args)
	of := func(v *ir.Value) *Tensor { return r.results[v.ID].tensor }
	absorbed, q, all, gain, cache := of(o.Absorbed), of(o.Q), of(o.All), of(o.Gain).Data, r.cache(v, 4)
	rope, latent := newAngles(a.Rope, r.optional(v, 7)), len(gain)
	out, err := r.empty(v.Type.Elems[0])
	if err != nil {
		return result{}, err
	}
	heads, rotated := q.Shape[1], a.Rope.Rotated
	for t, position := range of(o.Positions).Ints {
		for i := t * heads; i < (t+1)*heads; i++ {
			copy(out.row(i), absorbed.row(i))
			rope.rotate(out.row(i)[latent:], q.row(i)[q.Shape[2]-rotated:], position)
		}
		from, row := all.row(t)[a.From:], make([]float64, latent+rotated)
		normalise(row[:latent], from[:latent], gain, a.Eps)
		rope.rotate(row[latent:], from[latent:latent+rotated], position)
		if err := cache.write(of(o.Slots).Ints[t], 0, row, row, r.RoundCache); err != nil {
			return result{}, fmt.Errorf("token %d: %w", t, err)
		}
	}
	return result{elems: []result{{tensor: out}, {cache: cache}}}, nil
}

// normedRows returns v over a qkv with Q and K normalised, all heads of a token at once.
func (r *run) normedRows(v *ir.Value, norms [2][]float64, eps float64) *ir.Value {
	from := r.tensor(v, 0)
	qkv := &Tensor{Shape: from.Shape, Data: slices.Clone(from.Data)}
	for t := range from.Shape[0] {
		row := qkv.row(t)
		for _, weight := range norms {
			normalise(row[:len(weight)], slices.Clone(row[:len(weight)]), weight, eps)
			row = row[len(weight):]
		}
	}
	return r.over(v, qkv)
}

// normedValues returns v over a qkv whose heads of V are divided by their root mean square.
func (r *run) normedValues(v *ir.Value, a ir.RopeWriteAttr) *ir.Value {
	from, c := r.tensor(v, 0), v.Args[1].Type.Cache
	qkv := &Tensor{Shape: from.Shape, Data: slices.Clone(from.Data)}
	ones := slices.Repeat([]float64{1}, c.Head)
	for t := range from.Shape[0] {
		for h := a.Heads + c.KVHeads; h < a.Heads+2*c.KVHeads; h++ {
			head := qkv.row(t)[h*c.Head:][:c.Head]
			normalise(head, slices.Clone(head), ones, a.Eps)
		}
	}
	return r.over(v, qkv)
}

// over returns v with another qkv.
func (r *run) over(v *ir.Value, qkv *Tensor) *ir.Value {
	changed := *v
	changed.Args = append([]*ir.Value{{ID: v.ID, Type: v.Args[0].Type}}, v.Args[1:]...)
	r.results[v.ID] = result{tensor: qkv} // the returned value reads it from here
	return &changed
}

// rotateAndWrite splits the rows of qkv; norm is applied to each head of Q (0) and K (1) before
// RoPE.
func (r *run) rotateAndWrite(v *ir.Value, rope angles, norm func(head []float64, which int) []float64) (result, error) {
	positions := r.tensor(v, 2).Ints
	return r.takeApart(v, v.Attr.(ir.RopeWriteAttr).Heads, r.tensor(v, 3).Ints, func(out, head []float64, t, which int) {
		rope.rotate(out, norm(head, which), positions[t])
	})
}

// takeApart splits the rows of qkv: it writes K and V to the cache and returns Q. turn computes the
// result for a head of token t, of Q (0) or K (1).
func (r *run) takeApart(v *ir.Value, heads int, slots []int32, turn func(out, head []float64, t, which int)) (result, error) {
	qkv, cache := r.tensor(v, 0), r.cache(v, 1)
	d := cache.Head
	q, err := r.empty(v.Type.Elems[0])
	if err != nil {
		return result{}, err
	}
	for t, slot := range slots {
		row := qkv.row(t)
		head := func(i int) []float64 { return row[i*d : (i+1)*d] }
		for h := range heads {
			turn(q.row(t*heads+h), head(h), t, 0)
		}
		for h := range cache.KVHeads {
			k := make([]float64, d)
			turn(k, head(heads+h), t, 1)
			if err := cache.write(slot, h, k, head(heads+cache.KVHeads+h), r.RoundCache); err != nil {
				return result{}, fmt.Errorf("token %d: %w", t, err)
			}
		}
	}
	return result{elems: []result{{tensor: q}, {cache: cache}}}, nil
}

// attentionWrite is a cache write, followed by attention over the cache.
func (r *run) attentionWrite(v *ir.Value) (result, error) {
	a := v.Attr.(ir.AttentionWriteAttr)
	rule, norms := (*run).ropeQKVWrite, v.Op == ir.OpHeadNormRopeKVWriteAttention
	if norms {
		rule = (*run).headNormRopeKVWrite
	}
	o := a.Operands(v.Args, v.Op)
	written, err := rule(r, &ir.Value{ID: v.ID, Args: o.Write(), Attr: a.Write, Type: v.Type})
	if err != nil {
		return result{}, err
	}
	q := &ir.Value{ID: v.ID, Type: v.Type.Elems[0]}
	r.results[v.ID] = written.elems[0] // attention reads its query from here
	out, err := r.attention(&ir.Value{ID: v.ID, Args: o.Attend(q, o.Cache), Attr: a.Attention, Type: q.Type})
	return result{elems: []result{out, written.elems[1]}}, err
}

// latentAttention is a latent_write, followed by attention over the cache.
func (r *run) latentAttention(v *ir.Value) (result, error) {
	a, q := v.Attr.(ir.LatentAttentionAttr), &ir.Value{ID: v.ID, Type: v.Type.Elems[0]}
	write, attend := a.Parts(v.Args, q, v.Args[4])
	written, err := r.latentWrite(&ir.Value{ID: v.ID, Args: write, Attr: a.Write, Type: v.Type})
	if err != nil {
		return result{}, err
	}
	r.results[v.ID] = written.elems[0] // attention reads its query from here
	out, err := r.attention(&ir.Value{ID: v.ID, Args: attend, Attr: a.Attention, Type: q.Type})
	return result{elems: []result{out, written.elems[1]}}, err
}

// queryAttention is attention whose queries are normalised and rotated first.
func (r *run) queryAttention(v *ir.Value) (result, error) {
	a := v.Attr.(ir.AttentionWriteAttr)
	o := a.Operands(v.Args, v.Op)
	var factors *Tensor
	if o.Factors != nil {
		factors = r.results[o.Factors.ID].tensor
	}
	rope, gain, positions := newAngles(a.Write.Rope, factors), r.results[o.QNorm.ID].tensor.Data, r.tensor(v, 2).Ints
	q, err := r.empty(v.Type)
	if err != nil {
		return result{}, err
	}
	heads, head := a.Write.Heads, len(gain)
	for i := range q.rows() {
		normed := make([]float64, head)
		normalise(normed, r.tensor(v, 0).row(i / heads)[i%heads*head:][:head], gain, a.Write.Eps)
		rope.rotate(q.row(i), normed, positions[i/heads])
	}
	r.results[v.ID] = result{tensor: q} // attention reads its query from here
	return r.attention(&ir.Value{ID: v.ID, Args: o.Attend(&ir.Value{ID: v.ID, Type: v.Type}, o.Cache), Attr: a.Attention, Type: v.Type})
}

func (r *run) repeatKVPair(v *ir.Value) (result, error) {
	n := v.Attr.(ir.RepeatAttr).N
	var out result
	for i, t := range v.Type.Elems {
		x := r.tensor(v, i)
		to, err := r.empty(t)
		if err != nil {
			return result{}, err
		}
		heads, d := x.Shape[1], x.Shape[2]
		for s := range x.Shape[0] {
			for h := range heads * n {
				copy(to.row(s*heads*n+h), x.Data[(s*heads+h/n)*d:][:d])
			}
		}
		out.elems = append(out.elems, result{tensor: to})
	}
	return out, nil
}
