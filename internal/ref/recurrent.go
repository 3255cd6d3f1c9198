package ref

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

func (r *run) state(v *ir.Value) (result, error) {
	a := v.Attr.(ir.StateAttr)
	if a.Layer >= len(r.Caches) || r.Caches[a.Layer] == nil || r.Caches[a.Layer].States[a.Name] == nil {
		return result{}, errors.New("the state is not given")
	}
	s := r.Caches[a.Layer].States[a.Name]
	if s.Recurrent != v.Type.Recurrent {
		return result{}, fmt.Errorf("the state given is %s", ir.RecurrentOf(s.Recurrent))
	}
	return result{state: s}, nil
}

// recur computes an op that updates the state in operand i of v and returns a tensor [T, …]. next
// computes token t from the state before it, [Rows, Width], and updates that state; a new sequence
// begins with zeros.
func (r *run) recur(v *ir.Value, i int, next func(t int, state, out []float64)) (result, error) {
	s := r.results[v.Args[i].ID].state
	cuSeqlens, states := r.tensor(v, i+1).Ints, r.tensor(v, i+2).Ints
	out, err := r.empty(v.Type.Elems[0])
	if err != nil {
		return result{}, err
	}
	n, width := s.Rows*s.Width, len(out.Data)/max(1, int(cuSeqlens[len(cuSeqlens)-1]))
	before := slices.Clone(s.Data) // a state may be read by one sequence and written by the next
	for b := range len(cuSeqlens) - 1 {
		read, write := int(states[2*b]), int(states[2*b+1])
		if read >= s.States || write < 0 || write >= s.States {
			return result{}, fmt.Errorf("sequence %d reads state %d and writes %d of %d", b, read, write, s.States)
		}
		state := s.Data[write*n:][:n]
		if read < 0 {
			clear(state)
		} else {
			copy(state, before[read*n:])
		}
		for t := int(cuSeqlens[b]); t < int(cuSeqlens[b+1]); t++ {
			next(t, state, out.Data[t*width:][:width])
		}
	}
	return result{elems: []result{{tensor: out}, {state: s}}}, nil
}

func (r *run) shortConv(v *ir.Value) (result, error) {
	x := r.tensor(v, 0)
	return r.convolve(v, func(t, e int) (float64, float64) { return x.row(t)[e], 1 })
}

func (r *run) gatedShortConv(v *ir.Value) (result, error) {
	all := r.tensor(v, 0)
	width := all.last() / 3
	return r.convolve(v, func(t, e int) (x, gate float64) {
		row := all.row(t)
		return row[e] * row[2*width+e], row[width+e]
	})
}

func (r *run) siluShortConv(v *ir.Value) (result, error) {
	x, from := r.tensor(v, 0), v.Attr.(ir.ConvAttr).From
	both, err := r.convolve(v, func(t, e int) (float64, float64) { return x.row(t)[from+e], 1 })
	if err != nil {
		return result{}, err
	}
	y := both.elems[0].tensor.Data
	for i, x := range y {
		if len(v.Args) > 5 {
			x += r.tensor(v, 5).Data[i%both.elems[0].tensor.last()]
		}
		y[i] = silu(x)
	}
	return both, nil
}

// read is tensor for an operand that may be a matrix: with a followed device these are read where they
// are used.
func (r *run) read(v *ir.Value, i int) (*Tensor, error) {
	w := r.tensor(v, i)
	if w.Data != nil {
		return w, nil
	}
	data, err := r.Weight(v.Args[i].Name())
	return &Tensor{Shape: w.Shape, Data: data}, err
}

// convolve applies a convolution over time to each element. of returns its input for an element of
// a token, and the factor of its result.
func (r *run) convolve(v *ir.Value, of func(t, e int) (x, gate float64)) (result, error) {
	w, err := r.read(v, 1)
	if err != nil {
		return result{}, err
	}
	return r.recur(v, 2, func(t int, state, out []float64) {
		width, latest := len(out), make([]float64, len(out))
		for e := range out {
			x, gate := of(t, e)
			taps := w.row(e)
			sum := taps[len(taps)-1] * x
			for j := range len(taps) - 1 {
				sum += taps[j] * state[j*width+e]
			}
			out[e], latest[e] = sum*gate, x
		}
		copy(state, state[width:])
		copy(state[len(state)-width:], latest)
	})
}

func (r *run) deltaNet(v *ir.Value) (result, error) {
	alpha, beta := r.tensor(v, 1), r.tensor(v, 2)
	return r.rule(v, v.Attr.(ir.DeltaNetAttr), 3, 5, func(t, h int) (a, b float64) { return alpha.row(t)[h], beta.row(t)[h] })
}

func (r *run) gatedDeltaNet(v *ir.Value) (result, error) {
	a, gates, gain, all := v.Attr.(ir.GatedDeltaNetAttr), r.tensor(v, 1), r.tensor(v, 4).Data, r.tensor(v, 5)
	heads := gates.last() / 2
	both, err := r.rule(v, a.Delta, 2, 6, func(t, h int) (a, b float64) { return gates.row(t)[h], gates.row(t)[heads+h] })
	if err != nil {
		return result{}, err
	}
	head := len(gain)
	width := heads * head
	y := both.elems[0].tensor.Data
	for i := 0; i < len(y); i += head {
		own, z := y[i:][:head], all.row(i/width)
		z = z[len(z)-width+i%width:]
		scale := 1 / math.Sqrt(dot(own, own)/float64(head)+a.NormEps)
		for j := range own {
			own[j] *= scale * gain[j] * silu(z[j])
		}
	}
	return both, nil
}

// rule applies the gated delta rule; vectors and states are the operands from which on decay and bias,
// and the state and its steps stand. gate returns alpha and beta of a token's head.
func (r *run) rule(v *ir.Value, a ir.DeltaNetAttr, vectors, states int, gate func(t, h int) (alpha, beta float64)) (result, error) {
	qkv, decay, bias := r.tensor(v, 0), r.tensor(v, vectors).Data, r.tensor(v, vectors+1).Data
	heads := len(decay)
	head, share := qkv.last()/(2*a.KeyHeads+heads), a.Share(heads)
	return r.recur(v, states, func(t int, state, out []float64) {
		row := qkv.row(t)
		unit := func(at int) []float64 { // head at of Q or K
			x := slices.Clone(row[at*head:][:head])
			length := math.Sqrt(dot(x, x) + a.Eps)
			for i := range x {
				x[i] /= length
			}
			return x
		}
		for h := range heads {
			of := h / share % a.KeyHeads
			q, k, value := unit(of), unit(a.KeyHeads+of), row[(2*a.KeyHeads+h)*head:][:head]
			alpha, beta := gate(t, h)
			keep := math.Exp(decay[h] * math.Log1p(math.Exp(alpha+bias[h])))
			learn := 1 / (1 + math.Exp(-beta))
			s := state[h*head*head:][:head*head]
			for i := range s {
				s[i] *= keep
			}
			for j := range head {
				known := 0.0
				for i := range head {
					known += k[i] * s[i*head+j]
				}
				more, y := learn*(value[j]-known), 0.0
				for i := range head {
					s[i*head+j] += k[i] * more
					y += q[i] * s[i*head+j]
				}
				out[h*head+j] = y / math.Sqrt(float64(head))
			}
		}
	})
}

func (r *run) mamba2(v *ir.Value) (result, error) {
	dt := r.tensor(v, 1)
	return r.stateSpace(v, dt.row)
}

func (r *run) gatedMamba2(v *ir.Value) (result, error) {
	all, heads := r.tensor(v, 1), r.tensor(v, 3).last()
	both, err := r.stateSpace(v, func(t int) []float64 { return all.row(t)[all.last()-heads:] })
	if err != nil {
		return result{}, err
	}
	y := both.elems[0].tensor
	for i := range y.Data {
		width := heads * y.last()
		y.Data[i] *= silu(all.row(i / width)[i%width])
	}
	return both, nil
}

// stateSpace applies Mamba-2's recurrence. of returns what Δ of each head of a token is made of.
func (r *run) stateSpace(v *ir.Value, of func(t int) []float64) (result, error) {
	xbc, bias, s := r.tensor(v, 0), r.tensor(v, 3).Data, v.Args[5].Type.Recurrent
	decay, err := r.read(v, 2)
	if err != nil {
		return result{}, err
	}
	skip, err := r.read(v, 4)
	if err != nil {
		return result{}, err
	}
	heads, head := len(bias), s.Width
	n, groups := s.Rows/heads, v.Attr.(ir.Mamba2Attr).Groups
	return r.recur(v, 5, func(t int, state, out []float64) {
		row := xbc.row(t)
		for h := range heads {
			group := row[heads*head+h/(heads/groups)*n:]
			b, c := group[:n], group[groups*n:][:n]
			step := math.Log1p(math.Exp(of(t)[h] + bias[h]))
			keep := math.Exp(decay.Data[h] * step)
			for j, x := range row[h*head:][:head] {
				y := skip.Data[h] * x
				for i := range n {
					at := &state[(h*n+i)*head+j]
					*at = keep**at + b[i]*step*x
					y += c[i] * *at
				}
				out[h*head+j] = y
			}
		}
	})
}
