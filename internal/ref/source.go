package ref

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
)

// rules holds the function that computes each op, indexed by op.
var rules [ir.NumOps]func(r *run, v *ir.Value) (result, error)

func init() {
	rules = [ir.NumOps]func(r *run, v *ir.Value) (result, error){
		ir.OpInput:      (*run).input,
		ir.OpWeight:     (*run).weight,
		ir.OpConst:      (*run).constant,
		ir.OpCache:      (*run).cacheState,
		ir.OpState:      (*run).state,
		ir.OpEmbed:      (*run).embed,
		ir.OpLinear:     (*run).linear,
		ir.OpRMSNorm:    (*run).rmsNorm,
		ir.OpGroupNorm:  (*run).groupNorm,
		ir.OpLayerNorm:  (*run).layerNorm,
		ir.OpReshape:    (*run).reshape,
		ir.OpCast:       (*run).reshape,
		ir.OpTranspose:  (*run).transpose,
		ir.OpSlice:      (*run).slice,
		ir.OpConcat:     (*run).concat,
		ir.OpIndices:    (*run).indices,
		ir.OpRope:       (*run).rope,
		ir.OpCacheWrite: (*run).cacheWrite,
		ir.OpCacheRead:  (*run).cacheRead,
		ir.OpCopyBlocks: (*run).copyBlocks,
		ir.OpShortConv:  (*run).shortConv,
		ir.OpDeltaNet:   (*run).deltaNet,
		ir.OpMamba2:     (*run).mamba2,
		ir.OpRepeatKV:   (*run).repeatKV,
		ir.OpMatmul:     (*run).matmul,
		ir.OpScale:      (*run).scale,
		ir.OpSoftCap:    (*run).softCap,
		ir.OpMask:       (*run).mask,
		ir.OpSoftmax:    (*run).softmax,
		ir.OpActivate:   (*run).activate,
		ir.OpGate:       (*run).gate,
		ir.OpMul:        (*run).mul,
		ir.OpAdd:        (*run).add,
		ir.OpGain:       (*run).gain,
		ir.OpShift:      (*run).shift,
		ir.OpGatherRows: (*run).gatherRows,
		ir.OpArgmax:     (*run).argmax,
		ir.OpRouter:     (*run).router,
		ir.OpSelect:     (*run).selectElem,

		ir.OpExpertLinear: (*run).routedLinear,
		ir.OpWeightedSum:  (*run).weightedSum,

		ir.OpRoutedLinear:        (*run).routedLinear,
		ir.OpFusedLinear:         (*run).fusedLinear,
		ir.OpNormResidual:        (*run).normResidual,
		ir.OpGatedShortConv:      (*run).gatedShortConv,
		ir.OpSiLUShortConv:       (*run).siluShortConv,
		ir.OpGatedDeltaNet:       (*run).gatedDeltaNet,
		ir.OpGatedMamba2:         (*run).gatedMamba2,
		ir.OpAttention:           (*run).attention,
		ir.OpQKVWrite:            (*run).qkvWrite,
		ir.OpRopeQKVWrite:        (*run).ropeQKVWrite,
		ir.OpHeadNormRopeKVWrite: (*run).headNormRopeKVWrite,
		ir.OpLatentWrite:         (*run).latentWrite,
		ir.OpRepeatKVPair:        (*run).repeatKVPair,

		ir.OpRopeQKVWriteAttention:        (*run).attentionWrite,
		ir.OpHeadNormRopeKVWriteAttention: (*run).attentionWrite,
		ir.OpHeadNormRopeAttention:        (*run).queryAttention,
		ir.OpLatentAttention:              (*run).latentAttention,
	}
}

func (r *run) input(v *ir.Value) (result, error) {
	data, ok := sym.Given(r.Inputs, v.Name())
	if !ok {
		return result{}, errors.New("the input is not given")
	}
	shape, err := r.shape(v.Type.Shape)
	if err != nil {
		return result{}, err
	}
	if n := product(shape); n != len(data) {
		return result{}, fmt.Errorf("%d numbers are given for shape %v", len(data), shape)
	}
	return result{tensor: &Tensor{Shape: shape, Ints: data}}, nil
}

func (r *run) weight(v *ir.Value) (result, error) {
	if r.Followed != nil && r.matrices[v] { // it is read where it is used
		shape, err := r.shape(v.Type.Shape)
		return result{tensor: &Tensor{Shape: shape}}, err
	}
	if r.Weight == nil {
		return result{}, errors.New("no weights are given")
	}
	data, err := r.Weight(v.Name())
	if err != nil {
		return result{}, err
	}
	return r.given(v, data)
}

func (r *run) constant(v *ir.Value) (result, error) {
	raw := v.Attr.(ir.ConstAttr).Data
	if v.Type.DType == dtype.I32 {
		ints := make([]int32, len(raw)/4)
		for i := range ints {
			ints[i] = int32(binary.LittleEndian.Uint32([]byte(raw[4*i : 4*i+4])))
		}
		shape, err := r.shape(v.Type.Shape)
		return result{tensor: &Tensor{Shape: shape, Ints: ints}}, err
	}
	one := NewWeights(func(string) (dtype.Type, []byte, bool) { return v.Type.DType, []byte(raw), true })
	data, err := one.Load(v.String())
	if err != nil {
		return result{}, err
	}
	return r.given(v, data)
}

func (r *run) given(v *ir.Value, data []float64) (result, error) {
	shape, err := r.shape(v.Type.Shape)
	if err == nil && product(shape) != len(data) {
		err = fmt.Errorf("%d elements are given for shape %v", len(data), shape)
	}
	return result{tensor: &Tensor{Shape: shape, Data: data}}, err
}

func product(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

func (r *run) cacheState(v *ir.Value) (result, error) {
	layer := v.Attr.(ir.CacheAttr).Layer
	if layer >= len(r.Caches) || r.Caches[layer] == nil {
		return result{}, errors.New("the cache is not given")
	}
	c := r.Caches[layer]
	if c.Cache != v.Type.Cache {
		return result{}, fmt.Errorf("the cache given is %s", ir.StateOf(c.Cache))
	}
	return result{cache: c}, nil
}

func (r *run) embed(v *ir.Value) (result, error) {
	if r.Followed != nil {
		return r.deviceEmbed(v)
	}
	tokens, table := r.tensor(v, 0).Ints, r.tensor(v, 1)
	return r.each(v, func(out *Tensor) error {
		for t, id := range tokens {
			if id < 0 || int(id) >= table.Shape[0] {
				return fmt.Errorf("token %d is %d in a vocabulary of %d", t, id, table.Shape[0])
			}
			copy(out.row(t), table.row(int(id)))
		}
		return nil
	})
}

func (r *run) linear(v *ir.Value) (result, error) {
	if r.Followed != nil {
		return r.deviceProduct(v)
	}
	x, w := r.tensor(v, 0), r.tensor(v, 1)
	return r.each(v, func(out *Tensor) error {
		product2D(out.Data, out.last(), 0, x.Data, x.rows(), w.Data, w.Shape[0], w.Shape[1])
		out.addToRows(0, r.optional(v, 2))
		return nil
	})
}

func (r *run) rmsNorm(v *ir.Value) (result, error) {
	x, w, eps := r.tensor(v, 0), r.tensor(v, 1), v.Attr.(ir.NormAttr).Eps
	return r.each(v, func(out *Tensor) error {
		for i := range x.rows() {
			normalise(out.row(i), x.row(i), w.Data, eps)
		}
		return nil
	})
}

func (r *run) groupNorm(v *ir.Value) (result, error) {
	x, eps := r.tensor(v, 0), v.Attr.(ir.NormAttr).Eps
	w, err := r.read(v, 1)
	if err != nil {
		return result{}, err
	}
	return r.each(v, func(out *Tensor) error {
		for i := range x.rows() {
			normalise(out.row(i), x.row(i), w.row(i%w.rows()), eps)
		}
		return nil
	})
}

// normalise writes x / √(mean(x²)+eps) · w to out.
func normalise(out, x, w []float64, eps float64) {
	var sum float64
	for _, a := range x {
		sum += a * a
	}
	scale := 1 / math.Sqrt(sum/float64(len(x))+eps)
	for i, a := range x {
		out[i] = a * scale * w[i]
	}
}

func (r *run) layerNorm(v *ir.Value) (result, error) {
	x, w, bias, eps := r.tensor(v, 0), r.optional(v, 1), r.optional(v, 2), v.Attr.(ir.NormAttr).Eps
	return r.each(v, func(out *Tensor) error {
		for i := range x.rows() {
			layerNormalise(out.row(i), x.row(i), w, bias, eps)
		}
		return nil
	})
}

// layerNormalise writes (x − mean(x)) / √(var(x)+eps) · w + bias to out; w and bias may be nil.
func layerNormalise(out, x []float64, w, bias *Tensor, eps float64) {
	standardise(out, x, eps)
	for j := range out {
		if w != nil {
			out[j] *= w.Data[j]
		}
		if bias != nil {
			out[j] += bias.Data[j]
		}
	}
}

// standardise writes (x − mean(x)) / √(var(x)+eps) to out.
func standardise(out, x []float64, eps float64) {
	var sum, squares float64
	for _, a := range x {
		sum += a - x[0] // relative to x[0], so that equal elements give exactly 0
	}
	mean := x[0] + sum/float64(len(x))
	for _, a := range x {
		squares += (a - mean) * (a - mean)
	}
	scale := 1 / math.Sqrt(squares/float64(len(x))+eps)
	for i, a := range x {
		out[i] = (a - mean) * scale
	}
}

// reshape also computes cast, since all floats are float64.
func (r *run) reshape(v *ir.Value) (result, error) {
	shape, err := r.shape(v.Type.Shape)
	return result{tensor: &Tensor{Shape: shape, Data: r.tensor(v, 0).Data}}, err
}

func (r *run) transpose(v *ir.Value) (result, error) {
	x, a := r.tensor(v, 0), v.Attr.(ir.TransposeAttr)
	stride := [3]int{x.Shape[1] * x.Shape[2], x.Shape[2], 1}
	s0, s1, s2 := stride[a.A], stride[a.B], stride[a.C]
	return r.each(v, func(out *Tensor) error {
		to := 0
		for i := range out.Shape[0] {
			for j := range out.Shape[1] {
				for k := range out.Shape[2] {
					out.Data[to] = x.Data[i*s0+j*s1+k*s2]
					to++
				}
			}
		}
		return nil
	})
}

func (r *run) slice(v *ir.Value) (result, error) {
	x, a := r.tensor(v, 0), v.Attr.(ir.SliceAttr)
	return r.each(v, func(out *Tensor) error {
		for i := range x.rows() {
			copy(out.row(i), x.row(i)[a.Start:a.End])
		}
		return nil
	})
}

func (r *run) concat(v *ir.Value) (result, error) {
	return r.each(v, func(out *Tensor) error {
		for i := range out.rows() {
			to := out.row(i)
			for j := range v.Args {
				to = to[copy(to, r.tensor(v, j).row(i)):]
			}
		}
		return nil
	})
}

func (r *run) indices(v *ir.Value) (result, error) {
	n, positions := v.Attr.(ir.IndicesAttr).N, r.tensor(v, 0).Ints
	out := &Tensor{Shape: []int{len(positions), n}}
	for _, position := range positions {
		for i := range n {
			if position < 0 {
				i = -1
			}
			out.Ints = append(out.Ints, int32(i))
		}
	}
	return result{tensor: out}, nil
}

func (r *run) rope(v *ir.Value) (result, error) {
	x, positions := r.tensor(v, 0), r.tensor(v, 1).Ints
	angles := newAngles(v.Attr.(ir.RopeAttr), r.optional(v, 2))
	return r.each(v, func(out *Tensor) error {
		heads := x.Shape[1]
		for i := range x.rows() {
			angles.rotate(out.row(i), x.row(i), positions[i/heads])
		}
		return nil
	})
}

// angles applies RoPE to heads.
type angles struct {
	ir.RopeAttr
	frequency []float64 // by pair
}

func newAngles(a ir.RopeAttr, factors *Tensor) angles {
	frequency := make([]float64, a.Rotated/2)
	for i := range frequency {
		frequency[i] = a.FreqScale * math.Pow(a.Theta, -2*float64(i)/float64(a.Rotated))
		if factors != nil {
			frequency[i] /= factors.Data[i]
		}
	}
	return angles{a, frequency}
}

// rotate rotates the head x to a position; out may be x.
func (a *angles) rotate(out, x []float64, position int32) {
	copy(out[a.Rotated:], x[a.Rotated:])
	for i, f := range a.frequency {
		first, second := i, i+a.Rotated/2
		if a.Interleaved {
			first, second = 2*i, 2*i+1
		}
		sin, cos := math.Sincos(float64(position) * f)
		sin, cos = sin*a.Magnitude, cos*a.Magnitude
		x0, x1 := x[first], x[second]
		out[first], out[second] = x0*cos-x1*sin, x0*sin+x1*cos
	}
}

func (r *run) cacheWrite(v *ir.Value) (result, error) {
	cache, keys, values, slots := r.cache(v, 0), r.tensor(v, 1), r.tensor(v, 2), r.tensor(v, 3).Ints
	for t, slot := range slots {
		for h := range cache.KVHeads {
			i := t*cache.KVHeads + h
			if err := cache.write(slot, h, keys.row(i), values.row(i), r.RoundCache); err != nil {
				return result{}, fmt.Errorf("token %d: %w", t, err)
			}
		}
	}
	return result{cache: cache}, nil
}

func (r *run) cacheRead(v *ir.Value) (result, error) {
	cache := r.cache(v, 0)
	p, err := r.pages(cache, r.tensor(v, 1), r.tensor(v, 2))
	if err != nil {
		return result{}, err
	}
	from := cache.K
	if v.Attr.(ir.CacheReadAttr).Values {
		from = cache.V
	}
	bound := int(r.Sizes[sym.Smax])
	return r.each(v, func(out *Tensor) error {
		for b, n := range p.lens {
			if int(n) > bound {
				return fmt.Errorf("%s of sequence %d is %d, over %s = %d", sym.ContextLens, b, n, sym.Smax, bound)
			}
			for j := range int(n) {
				for h := range cache.KVHeads {
					lo, hi := p.key(b, j, h)
					copy(out.row((b*bound+j)*cache.KVHeads+h), from[lo:hi])
				}
			}
		}
		return nil
	})
}

func (r *run) copyBlocks(v *ir.Value) (result, error) {
	cache, copies := r.cache(v, 0), r.tensor(v, 1).Ints
	for i, block := range copies {
		if block < 0 || int(block) >= cache.Blocks {
			return result{}, fmt.Errorf("copy %d is of block %d onto %d, of a cache of %d", i/2, copies[i&^1], copies[i|1], cache.Blocks)
		}
		for j := 1; j < len(copies); j += 2 {
			if j != i && copies[j] == block {
				return result{}, fmt.Errorf("copies %d and %d share block %d, which is written", i/2, j/2, block)
			}
		}
	}
	for i := 0; i < len(copies); i += 2 {
		first, end := cache.block(int(copies[i]))
		to, _ := cache.block(int(copies[i+1]))
		copy(cache.K[to:], cache.K[first:end])
		copy(cache.V[to:], cache.V[first:end])
	}
	return result{cache: cache}, nil
}

func (r *run) repeatKV(v *ir.Value) (result, error) {
	x, n := r.tensor(v, 0), v.Attr.(ir.RepeatAttr).N
	return r.each(v, func(out *Tensor) error {
		for i := range out.rows() {
			copy(out.row(i), x.row(i/n))
		}
		return nil
	})
}

func (r *run) matmul(v *ir.Value) (result, error) {
	a, b := r.tensor(v, 0), r.tensor(v, 1)
	transposed := v.Attr.(ir.MatmulAttr).TransB
	return r.each(v, func(out *Tensor) error {
		batch, m, n, k := out.Shape[0], out.Shape[1], out.Shape[2], a.Shape[2]
		parallel(batch, m*n*k, func(i int) {
			lhs, rhs, to := a.Data[i*m*k:(i+1)*m*k], b.Data[i*n*k:(i+1)*n*k], out.Data[i*m*n:(i+1)*m*n]
			for row := range m {
				x, y := lhs[row*k:(row+1)*k], to[row*n:(row+1)*n]
				if transposed {
					for col := range n {
						y[col] = dot(x, rhs[col*k:(col+1)*k])
					}
					continue
				}
				for j, factor := range x {
					addScaled(y, factor, rhs[j*n:(j+1)*n])
				}
			}
		})
		return nil
	})
}

// unary applies a function to each element.
func (r *run) unary(v *ir.Value, f func(x float64) float64) (result, error) {
	x := r.tensor(v, 0)
	return r.each(v, func(out *Tensor) error {
		for i, a := range x.Data {
			out.Data[i] = f(a)
		}
		return nil
	})
}

// binary applies a function to each pair of elements.
func (r *run) binary(v *ir.Value, f func(x, y float64) float64) (result, error) {
	x, y := r.tensor(v, 0), r.tensor(v, 1)
	return r.each(v, func(out *Tensor) error {
		for i, a := range x.Data {
			out.Data[i] = f(a, y.Data[i])
		}
		return nil
	})
}

func (r *run) scale(v *ir.Value) (result, error) {
	by := v.Attr.(ir.ScaleAttr).Value
	return r.unary(v, func(x float64) float64 { return x * by })
}

func (r *run) softCap(v *ir.Value) (result, error) {
	limit := v.Attr.(ir.ScaleAttr).Value
	return r.unary(v, func(x float64) float64 { return softCap(x, limit) })
}

func softCap(x, limit float64) float64 { return limit * math.Tanh(x/limit) }

func (r *run) mul(v *ir.Value) (result, error) {
	return r.binary(v, func(x, y float64) float64 { return x * y })
}

func (r *run) add(v *ir.Value) (result, error) {
	return r.binary(v, func(x, y float64) float64 { return x + y })
}

func (r *run) gain(v *ir.Value) (result, error) {
	return r.byToken(v, func(x, w float64) float64 { return x * w })
}

func (r *run) shift(v *ir.Value) (result, error) {
	return r.byToken(v, func(x, w float64) float64 { return x + w })
}

// byToken applies f to the elements of each token and the weights that all tokens share.
func (r *run) byToken(v *ir.Value, f func(x, w float64) float64) (result, error) {
	x, weights := r.tensor(v, 0), r.tensor(v, 1)
	return r.each(v, func(out *Tensor) error {
		for i, a := range x.Data {
			out.Data[i] = f(a, weights.Data[i%len(weights.Data)])
		}
		return nil
	})
}

func (r *run) mask(v *ir.Value) (result, error) {
	scores, slopes := r.tensor(v, 0), r.optional(v, 4)
	c, err := r.context(v, 1)
	if err != nil {
		return result{}, err
	}
	bound, window := int(r.Sizes[sym.Smax]), v.Attr.(ir.MaskAttr).Window
	return r.each(v, func(out *Tensor) error {
		copy(out.Data, scores.Data)
		for i := range out.rows() {
			row, h, t := out.row(i), i/len(c.positions), i%len(c.positions)
			for column := range row {
				if !c.sees(t, column/bound, column%bound, window) {
					row[column] = negInf
					continue
				}
				row[column] += c.fall(slopes, h, t, column%bound)
			}
		}
		return nil
	})
}

func (r *run) softmax(v *ir.Value) (result, error) {
	x, sinks := r.tensor(v, 0), r.optional(v, 1)
	return r.each(v, func(out *Tensor) error {
		for i := range x.rows() {
			copy(out.row(i), x.row(i))
			head := 0
			if sinks != nil {
				head = i / x.Shape[1]
			}
			softmax(out.row(i), sinkOf(sinks, head))
		}
		return nil
	})
}

// sinkOf returns the sink of a head, −∞ if there is none.
func sinkOf(sinks *Tensor, head int) float64 {
	if sinks == nil {
		return negInf
	}
	return sinks.Data[head]
}

// softmax normalises a row in place, with the sink as a further element; a row of −∞ only becomes
// zeros.
func softmax(row []float64, sink float64) {
	top := sink
	for _, x := range row {
		top = math.Max(top, x)
	}
	var sum float64
	if sink != negInf {
		sum = math.Exp(sink - top)
	}
	for i, x := range row {
		if row[i] = 0; x != negInf {
			row[i] = math.Exp(x - top)
		}
		sum += row[i]
	}
	if sum == 0 {
		return
	}
	for i := range row {
		row[i] /= sum
	}
}

func (r *run) gatherRows(v *ir.Value) (result, error) {
	out, err := r.tensor(v, 0).take(r.tensor(v, 1).Ints)
	return result{tensor: out}, err
}

// take returns the rows with the given indices.
func (t *Tensor) take(rows []int32) (*Tensor, error) {
	out := &Tensor{Shape: []int{len(rows), t.last()}, Data: make([]float64, len(rows)*t.last())}
	for i, row := range rows {
		if row < 0 || int(row) >= t.rows() {
			return nil, fmt.Errorf("row %d of %d", row, t.rows())
		}
		copy(out.row(i), t.row(int(row)))
	}
	return out, nil
}

func (r *run) argmax(v *ir.Value) (result, error) {
	x := r.tensor(v, 0)
	out := &Tensor{Shape: x.Shape[:1], Ints: make([]int32, x.rows())}
	for i := range out.Ints {
		out.Ints[i] = largest(x.row(i))
	}
	return result{tensor: out}, nil
}

// largest returns the index of a row's largest element, the first of equals, or −1 if there is a
// NaN.
func largest(row []float64) int32 {
	best := 0
	for i, x := range row {
		if math.IsNaN(x) {
			return -1
		}
		if x > row[best] {
			best = i
		}
	}
	return int32(best)
}

// router chooses among the experts of the used groups by score and bias, and weights the chosen by
// score.
func (r *run) router(v *ir.Value) (result, error) {
	a := v.Attr.(ir.RouterAttr)
	logits := r.tensor(v, 0)
	var bias, gains *Tensor
	if a.Bias {
		bias = r.tensor(v, 1)
	}
	if a.Gains {
		gains = r.tensor(v, len(v.Args)-1)
	}
	weights, err := r.empty(v.Type.Elems[0])
	if err != nil {
		return result{}, err
	}
	experts := &Tensor{Shape: weights.Shape, Ints: make([]int32, len(weights.Data))}
	for t := range logits.rows() {
		scaled := slices.Clone(logits.row(t)[:logits.last()-a.Others])
		for e := range scaled {
			scaled[e] *= a.LogitFactor()
		}
		scores := routerScores(a.Score, scaled)
		choice := slices.Clone(scores)
		for e := range choice {
			if bias != nil {
				choice[e] += bias.Data[e]
			}
		}
		row, chosen := weights.row(t), experts.ints(t)
		order := inUsedGroups(ranked(choice), choice, a)
		if order == nil {
			for j := range row {
				row[j], chosen[j] = math.NaN(), -1
			}
			continue
		}
		copy(chosen, order)
		for j, e := range chosen {
			row[j] = scores[e]
		}
		if a.Score == ir.ChosenSoftmaxScore {
			softmax(row, negInf)
		}
		factor := a.Factor()
		if a.Normalised {
			var sum float64
			for _, w := range row {
				sum += w
			}
			factor /= max(sum, a.Floor)
		}
		for j, e := range chosen {
			row[j] *= factor
			if gains != nil {
				row[j] *= gains.Data[e]
			}
		}
	}
	return result{elems: []result{{tensor: weights}, {tensor: experts}}}, nil
}

// routerScores returns the scores of a row of logits; those of ChosenSoftmaxScore are the logits.
func routerScores(kind ir.RouterScore, logits []float64) []float64 {
	scores := slices.Clone(logits)
	switch kind {
	case ir.SoftmaxScore:
		softmax(scores, negInf)
	case ir.SigmoidScore:
		for i, x := range logits {
			scores[i] = 1 / (1 + math.Exp(-x))
		}
	case ir.SqrtSoftplusScore:
		for i, x := range logits {
			scores[i] = math.Sqrt(max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))))
		}
	}
	return scores
}

// inUsedGroups returns the part of an order of experts that is in the used groups.
func inUsedGroups(order []int32, choice []float64, a ir.RouterAttr) []int32 {
	if a.Groups == 0 || order == nil {
		return order
	}
	each := len(choice) / a.Groups
	sums := make([]float64, a.Groups)
	for g := range sums {
		group := choice[g*each : (g+1)*each]
		for _, e := range ranked(group)[:min(2, each)] {
			sums[g] += group[e]
		}
	}
	used := ranked(sums)[:a.UsedGroups]
	return slices.DeleteFunc(order, func(e int32) bool { return !slices.Contains(used, e/int32(each)) })
}

// ranked returns the indices of a row in descending order of elements, equals in their order, or
// nil if there is a NaN.
func ranked(row []float64) []int32 {
	order := make([]int32, len(row))
	for i, x := range row {
		if math.IsNaN(x) {
			return nil
		}
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int { return cmp.Compare(row[b], row[a]) })
	return order
}

func (r *run) selectElem(v *ir.Value) (result, error) {
	return r.results[v.Args[0].ID].elems[v.Attr.(ir.SelectAttr).Index], nil
}
