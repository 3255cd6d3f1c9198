package ref

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/dtype/half"
	"github.com/smelt-ml/smelt/models/quant"
)

// Followed makes Run follow a device op by op. Each op is computed in float64 from the device's own
// operands, so that errors do not accumulate, and a product rounds where the device rounds. The
// remaining difference is the rounding of sums in float32, which [Tensor.Slack] bounds.
type Followed struct {
	// Stored returns a stored matrix. Products and embeddings read it row by row, so that no matrix
	// is held in float64 as a whole.
	Stored func(name string) (t dtype.Type, data []byte, ok bool)
	// Arithmetic returns the roundings of a product.
	Arithmetic func(v *ir.Value) Arithmetic
	// Rows is the number of rows of a product to compute, spread evenly; 0: all. The others have
	// infinite slack.
	Rows int
	// Computed receives a value's expected result and returns the device's, from which later values
	// are computed; nil keeps the expected one.
	Computed func(v *ir.Value, want *Tensor) (*Tensor, error)
	// Written receives a cache after a value has written it, and may replace its content by the
	// device's.
	Written func(v *ir.Value, c *Cache) error
}

// Arithmetic lists the roundings of a product's operands on a device.
type Arithmetic struct {
	// Int8 is the arithmetic of native kernels with quantized weights: each 32 activations become
	// integers from −127 to 127 and a scale in float32.
	Int8 bool
	// Int16 is the arithmetic of native kernels on processors with 16-bit dot products: F16 and
	// BF16 weights and their activations become integers, each 64 with a scale in float32.
	Int16 bool
	// Tile is the type, F16 or BF16, of matrix tiles: weights are rounded to it, and activations
	// that the product normalises. Invalid means no tiles.
	Tile dtype.Type
}

// unit is the largest relative error of rounding to the nearest, by type.
var unit = map[dtype.Type]float64{dtype.F32: 0x1p-24, dtype.F16: 0x1p-11, dtype.BF16: 0x1p-9}

// least is the smallest step of a type, below which relative errors are meaningless: that of its
// denormals, and for F32 the kernels' threshold for zero.
var least = map[dtype.Type]float64{dtype.F32: 0x1p-120, dtype.F16: 0x1p-25, dtype.BF16: 0x1p-120}

// confidence is λ in the bound λ·√n·u·Σ|terms| for a sum of n terms. It fails with a probability of
// 2n·exp(−λ²/2), below 1e-9 for every n in use (Higham and Mary, "A new approach to probabilistic
// rounding error analysis", 2019, theorem 2.4). The certain bound n·u is larger by √n/λ and would
// hide an error of 1 % in a long row.
const confidence = 8

// roundoff bounds the error of a float32 sum of n products in any order, relative to the sum of
// their magnitudes. It includes the operations besides the sum: decoding a weight, and the scales
// of both sides.
func roundoff(n int) float64 { return confidence * math.Sqrt(float64(n+16)) * unit[dtype.F32] }

// matrix is a stored weight.
type matrix struct {
	name    string
	t       dtype.Type
	data    []byte
	rows, k int
}

func (r *run) matrix(v *ir.Value) (matrix, error) { return r.stackOf(v, 2) }

// expertMatrix returns the matrix of expert e of a stack.
func (r *run) expertMatrix(v *ir.Value, e int) (matrix, error) {
	m, err := r.stackOf(v, 3)
	if err != nil {
		return m, err
	}
	experts, _ := v.Type.Shape[0].IsConst()
	m.rows /= int(experts)
	bytes := m.rows * int(m.t.Bytes(int64(m.k)))
	m.data = m.data[e*bytes:][:bytes]
	return m, nil
}

// stackOf returns a weight of the given rank as one matrix of all its rows.
func (r *run) stackOf(v *ir.Value, rank int) (matrix, error) {
	t, data, ok := r.Followed.Stored(v.Name())
	shape, err := r.shape(v.Type.Shape)
	if err != nil {
		return matrix{}, err
	}
	m := matrix{v.Name(), t, data, product(shape[:len(shape)-1]), shape[len(shape)-1]}
	if !ok || t == dtype.Invalid || t.BlockBytes() == 0 || len(shape) != rank || int64(len(data)) != int64(m.rows)*t.Bytes(int64(m.k)) {
		return m, fmt.Errorf("weight %q of type %s has %d bytes for shape %v", m.name, t, len(data), shape)
	}
	return m, nil
}

// stored is a decoded row of a matrix: its elements, and bounds on the magnitudes of the terms that
// each is the sum of.
type stored struct {
	narrow       []float32
	value, terms []float64
	flips        []flip
}

// flip is an element near the midpoint of two steps: a device whose arithmetic differs in the last
// bit may round it to the other side, `step` away.
type flip struct {
	at   int
	step float64
}

func newStored(k int) *stored {
	return &stored{narrow: make([]float32, k), value: make([]float64, k), terms: make([]float64, k)}
}

// read decodes row i of a matrix, rounded as on the device.
func (s *stored) read(m *matrix, i int, how Arithmetic) error {
	tile := how.Tile
	bytes := int(m.t.Bytes(int64(m.k)))
	row := m.data[i*bytes : (i+1)*bytes]
	if err := quant.Dequantize(s.narrow, row, m.t); err != nil {
		return fmt.Errorf("weight %q: %w", m.name, err)
	}
	// An element is scale·q + minimum. Its rounding error depends on the size of these two terms,
	// which may cancel.
	form := m.t.Row()
	has := form.Minimum != 0
	s.flips = s.flips[:0]
	most, elems := 0.0, m.t.BlockElems()
	for j, x := range s.narrow {
		if has && j%elems == 0 {
			bits := binary.LittleEndian.Uint16(row[j/elems*m.t.BlockBytes()+form.Halves[1]:])
			most = float64(form.Minimum) * math.Abs(float64(half.F16ToF32(bits)))
		}
		w := float64(x)
		s.value[j], s.terms[j] = w, math.Abs(w)+2*most
		if tile != dtype.F16 && tile != dtype.BF16 {
			continue
		}
		// scale·q is exact in float32 and rounds as here; a sum may not be.
		s.value[j] = narrowed(x, tile)
		if has {
			doubt := 4 * unit[dtype.F32] * s.terms[j]
			low, high := narrowed(float32(w-doubt), tile), narrowed(float32(w+doubt), tile)
			if low != high {
				s.flips = append(s.flips, flip{j, high - low})
			}
		}
	}
	if how.Int16 && isHalf(m.t) {
		s.shorten()
	}
	return nil
}

func isHalf(t dtype.Type) bool { return t == dtype.F16 || t == dtype.BF16 }

// shortBlock is the number of elements that share a scale in 16-bit integers. Weights are below
// 2^shortBits; the magnitudes of a block's activations are at most shortMost and sum to at most
// shortSum.
const (
	shortBlock = 64
	shortBits  = 14
	shortMost  = 32767
	shortSum   = 131000
)

// shorten rounds elements to integers times a power of two, chosen so that the largest of a block
// uses all bits.
func (s *stored) shorten() {
	for at := 0; at < len(s.value); at += shortBlock {
		block, most := s.value[at:min(at+shortBlock, len(s.value))], 0.0
		for _, w := range block {
			most = math.Max(most, math.Abs(w)) // NaN if any is NaN
		}
		if math.IsNaN(most) || math.IsInf(most, 0) {
			for j := range block {
				block[j] = math.NaN()
			}
			continue
		}
		_, exponent := math.Frexp(math.Max(most, 0x1p-113)) // no scale is below 2^-126
		step := math.Ldexp(1, exponent-shortBits)
		for j, w := range block {
			block[j] = math.RoundToEven(w/step) * step
		}
	}
}

func narrowed(x float32, t dtype.Type) float64 {
	if t == dtype.BF16 {
		return float64(half.BF16ToF32(half.F32ToBF16(x)))
	}
	return float64(half.F16ToF32(half.F32ToF16(x)))
}

// activations are some rows of a product's input.
type activations struct {
	rows        []int       // indices of the rows
	k           int         // elements of a row
	value, size [][]float64 // elements of each row, and their magnitudes
	flips       [][]flip    // by row
	share       float64     // relative error of all elements, if the product normalises its input; else 0
}

// q8Block is the number of activations that share a scale on native kernels; q8Most is the largest
// integer.
const (
	q8Block = 32
	q8Most  = 127
)

// inputs returns the picked rows of a product's input, normalised if the product does so.
func inputs(attr ir.LinearAttr, in *linearInputs, picked []int) *activations {
	a := &activations{rows: picked, k: in.x.last(), flips: make([][]flip, len(picked))}
	for _, i := range picked {
		row := append([]float64(nil), in.x.row(i)...)
		if attr.Norm != ir.NoNorm {
			in.normalise(attr, row, row)
			// The error of a norm's statistic is half that of the sum of squares, and three more
			// operations follow.
			a.share = roundoff(a.k)/2 + 4*unit[dtype.F32]
		}
		a.value = append(a.value, row)
	}
	a.measure()
	if attr.Norm == ir.LayerNorm {
		for i, row := range picked {
			in.widen(attr, a.size[i], in.x.row(row))
		}
	}
	return a
}

// widen turns the magnitudes of normalised elements into those of the terms that they are sums of:
// the element, the mean of its row and the bias, any of which may cancel.
func (in *linearInputs) widen(a ir.LinearAttr, size, x []float64) {
	unit := make([]float64, len(x))
	standardise(unit, x, a.Eps)
	lo, hi := slices.Min(x), slices.Max(x)
	scale, most := 0.0, math.Max(math.Abs(lo), math.Abs(hi))
	if hi > lo {
		scale = (slices.Max(unit) - slices.Min(unit)) / (hi - lo)
	}
	for i := range size {
		terms := (math.Abs(x[i]) + most) * scale
		if in.gain != nil {
			terms *= math.Abs(in.gain.Data[i])
		}
		if in.shift != nil {
			terms += math.Abs(in.shift.Data[i])
		}
		size[i] = math.Max(size[i], terms)
	}
}

func (a *activations) measure() {
	a.size = make([][]float64, len(a.value))
	for i, row := range a.value {
		a.size[i] = make([]float64, len(row))
		for j, x := range row {
			a.size[i][j] = math.Abs(x)
		}
	}
}

// rounding is the conversion of a block of activations to integers times a step.
type rounding struct {
	inverse float32 // multiplier of elements
	step    float64
	doubt   float64 // distance from the midpoint of two integers within which a device may round either way
	wide    float64 // ratio of the largest term to the largest element: above 1 where sums cancelled
}

// integers rounds the activations, block by block, to integers times steps, ties to even.
func (a *activations) integers(block int, of func(values, sizes []float64) rounding) *activations {
	q := &activations{rows: a.rows, k: a.k, share: a.share, flips: make([][]flip, len(a.rows))}
	for i, from := range a.value {
		widths := make([]float64, a.k)
		row := make([]float64, a.k)
		for at := 0; at < a.k; at += block {
			end := min(at+block, a.k)
			r := of(from[at:end], a.size[i][at:end])
			for j := at; j < end; j++ {
				v := float64(float32(from[j]) * r.inverse)
				n := math.RoundToEven(v)
				row[j] = n * r.step
				widths[j] = math.Abs(row[j]) * r.wide
				if math.Abs(v-n) > 0.5-r.doubt {
					q.flips[i] = append(q.flips[i], flip{j, r.step})
				}
			}
		}
		q.value, q.size = append(q.value, row), append(q.size, widths)
	}
	return q
}

// wide returns rounding.wide of a block whose largest element is top.
func (a *activations) wide(top float32, sizes []float64) float64 {
	if a.share > 0 && top > 0 {
		return max(1, slices.Max(sizes)/float64(top))
	}
	return 1
}

// rounded returns the activations as native kernels round them: q = round(x·127/max|x|) for each
// block, times max|x|/127, all in float32. If the inputs are the device's own, the result equals the
// device's to the bit. If the device has normalised them first, x·127/max|x| differs by at most ten
// roundings: on the device two of the element and two of the largest, here one of each, and on either
// side the division and the multiplication. (The norm's statistic cancels.)
func (a *activations) rounded() *activations {
	return a.integers(q8Block, func(values, sizes []float64) rounding {
		top, bad := float32(0), false
		for _, x := range values {
			bad = bad || math.IsNaN(x)
			top = max(top, float32(math.Abs(x)))
		}
		r := rounding{step: float64(top / q8Most), wide: a.wide(top, sizes)}
		if top > 1e-30 {
			r.inverse = q8Most / top
		}
		if bad {
			r.step = math.NaN()
		}
		if a.share > 0 && top > 0 {
			r.doubt = 10 * unit[dtype.F32] * q8Most * r.wide
		}
		return r
	})
}

// short returns the activations as native kernels round them beside half weights: each block is
// divided by the least scale that keeps the sum of its magnitudes within shortSum and the largest
// within shortMost, all in float32. A compiler may add the magnitudes in another order.
func (a *activations) short() *activations {
	return a.integers(shortBlock, func(values, sizes []float64) rounding {
		var sums [16]float32 // lanes of a vector, whose halves are then added
		top := float32(0)
		for j, x := range values {
			v := float32(math.Abs(x))
			sums[j%len(sums)] += v
			top = max(top, v)
		}
		for n := len(sums) / 2; n > 0; n /= 2 {
			for j := range n {
				sums[j] += sums[j+n]
			}
		}
		scale := max(sums[0]/shortSum, top/shortMost)
		r := rounding{step: float64(scale), wide: a.wide(top, sizes)}
		if scale > 1e-30 {
			r.inverse = 1 / scale
		}
		if finite := sums[0] <= math.MaxFloat32; !finite {
			r.step = math.NaN()
		}
		roundings := 4.0 // of the sum, the divisions and the product
		if a.share > 0 && top > 0 {
			roundings = 16 * r.wide
		}
		r.doubt = roundings * unit[dtype.F32] * float64(top*r.inverse)
		return r
	})
}

// tiled rounds normalised activations to the type of a device's tiles.
func (a *activations) tiled(tile dtype.Type) *activations {
	t := &activations{rows: a.rows, k: a.k, size: a.size, share: a.share, flips: make([][]flip, len(a.rows))}
	for i, from := range a.value {
		row := make([]float64, a.k)
		for j, x := range from {
			row[j] = narrowed(float32(x), tile)
			doubt := a.share * a.size[i][j]
			if low, high := narrowed(float32(x-doubt), tile), narrowed(float32(x+doubt), tile); low != high {
				t.flips[i] = append(t.flips[i], flip{j, high - low})
			}
		}
		t.value = append(t.value, row)
	}
	return t
}

// times returns the product of a row of weights and row i of the activations, and a bound on the
// device's error.
func (a *activations) times(i int, w *stored) (sum, slack float64) {
	sum = dot(a.value[i], w.value)
	slack = (roundoff(a.k) + a.share) * dot(a.size[i], w.terms)
	for _, f := range a.flips[i] {
		slack += math.Abs(f.step * w.value[f.at])
	}
	for _, f := range w.flips {
		slack += math.Abs(f.step * a.value[i][f.at])
	}
	return sum, slack
}

// pick returns Rows indices spread evenly over n, or all of them.
func (d *Followed) pick(n int) []int {
	some := n
	if d.Rows > 0 {
		some = min(n, d.Rows)
	}
	picked := make([]int, some)
	for i := range picked {
		picked[i] = i * (n - 1) / max(1, some-1)
	}
	return picked
}

// deviceProduct computes a linear or fused_linear as on the device.
func (r *run) deviceProduct(v *ir.Value) (result, error) {
	a, in, err := r.linearOf(v)
	if err != nil {
		return result{}, err
	}
	_, o := ir.AsFusedLinear(v)
	weights := make([]matrix, a.Weights)
	for i, w := range o.Weights {
		if weights[i], err = r.matrix(w); err != nil {
			return result{}, err
		}
	}
	return r.each(v, func(out *Tensor) error {
		out.doubt()
		if err := in.device(a, r.Followed.Arithmetic(v), weights, in.biases, r.Followed.pick(in.x.rows()), out); err != nil {
			return err
		}
		out.store(v.Type.DType)
		return nil
	})
}

// deviceExperts computes each expert's product of its rows as on the device.
func (r *run) deviceExperts(v *ir.Value, a ir.LinearAttr, o ir.RoutedOperands, in *linearInputs, pairs [][]int, out *Tensor) error {
	out.doubt()
	a.Residual = false // the residual is added after the mix, once for each token
	weights, biases := make([]matrix, a.Weights), make([]*Tensor, a.Weights)
	for e, rows := range pairs {
		if len(rows) == 0 {
			continue
		}
		for i, w := range o.Weights {
			var err error
			if weights[i], err = r.expertMatrix(w, e); err != nil {
				return err
			}
			if b := in.biases[i]; b != nil {
				biases[i] = &Tensor{Shape: b.Shape[1:], Data: b.row(e)}
			}
		}
		if err := in.device(a, r.Followed.Arithmetic(v), weights, biases, rows, out); err != nil {
			return err
		}
	}
	return nil
}

// doubt gives every element infinite slack until it is computed.
func (t *Tensor) doubt() {
	t.Slack = make([]float64, len(t.Data))
	for i := range t.Slack {
		t.Slack[i] = math.Inf(1)
	}
}

// device computes the given rows of a product as on a device, into the same rows of out.
func (in *linearInputs) device(a ir.LinearAttr, how Arithmetic, weights []matrix, biases []*Tensor, rows []int, out *Tensor) error {
	exact := inputs(a, in, rows)
	if a.Norm != ir.NoNorm && (how.Tile == dtype.F16 || how.Tile == dtype.BF16) {
		exact = exact.tiled(how.Tile)
	}
	var int8, int16 *activations
	u := unit[dtype.F32]
	to := &Tensor{Shape: out.Shape, Data: out.Data, Slack: out.Slack}
	column := 0
	for i := range weights {
		w := &weights[i]
		act := exact
		if how.Int8 && w.t.IsQuantized() {
			if int8 == nil {
				int8 = exact.rounded()
			}
			act = int8
		}
		if how.Int16 && isHalf(w.t) {
			if int16 == nil {
				int16 = exact.short()
			}
			act = int16
		}
		if a.Gated && i == 1 {
			to = &Tensor{Shape: out.Shape, Data: make([]float64, len(out.Data)), Slack: make([]float64, len(out.Data))}
			column = 0
		}
		if err := act.product(to, column, w, how); err != nil {
			return err
		}
		if bias := biases[i]; bias != nil {
			for _, t := range rows {
				for j, b := range bias.Data {
					at := t*to.last() + column + j
					to.Slack[at] += u * (math.Abs(to.Data[at]) + math.Abs(b))
					to.Data[at] += b
				}
			}
		}
		column += w.rows
	}
	for _, t := range rows {
		for i := t * out.last(); i < (t+1)*out.last(); i++ {
			if a.Gated {
				out.Data[i], out.Slack[i] = gated(a.Activation, out.Data[i], out.Slack[i], to.Data[i], to.Slack[i])
			} else {
				out.Data[i], out.Slack[i] = activated(a.Activation, out.Data[i], out.Slack[i])
			}
			if in.gate != nil {
				by := in.gateOf(a, t, i-t*out.last())
				out.Slack[i] = math.Abs(by) * (out.Slack[i] + 8*u*math.Abs(out.Data[i]))
				out.Data[i] *= by
			}
			if residual := in.residual; residual != nil && a.Residual {
				out.Data[i] += residual.Data[i]
				out.Slack[i] += u * math.Abs(residual.Data[i])
			}
		}
	}
	return nil
}

// product writes the products with the rows of w, from the given column of out on.
func (a *activations) product(out *Tensor, column int, w *matrix, how Arithmetic) error {
	const strip = 16
	strips := (w.rows + strip - 1) / strip
	errs := make([]error, strips)
	parallel(strips, strip*len(a.rows)*a.k, func(s int) {
		row := newStored(w.k)
		for n := s * strip; n < min(w.rows, (s+1)*strip); n++ {
			if errs[s] = row.read(w, n, how); errs[s] != nil {
				return
			}
			for i, t := range a.rows {
				at := t*out.last() + column + n
				out.Data[at], out.Slack[at] = a.times(i, row)
			}
		}
	})
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// store adds to the slack the error of rounding the elements to their stored type.
func (t *Tensor) store(as dtype.Type) {
	for i, x := range t.Data {
		t.Slack[i] += unit[as]*math.Abs(x) + least[as]
	}
}

// deviceEmbed looks up rows of a table.
func (r *run) deviceEmbed(v *ir.Value) (result, error) {
	table, err := r.matrix(v.Args[1])
	if err != nil {
		return result{}, err
	}
	how := Arithmetic{Int16: r.Followed.Arithmetic(v).Int16} // only products have tiles
	return r.each(v, func(out *Tensor) error {
		out.Slack = make([]float64, len(out.Data))
		row := newStored(table.k)
		for t, id := range r.tensor(v, 0).Ints {
			if id < 0 || int(id) >= table.rows {
				return fmt.Errorf("token %d is %d in a vocabulary of %d", t, id, table.rows)
			}
			if err := row.read(&table, int(id), how); err != nil {
				return err
			}
			copy(out.row(t), row.value)
			for j, size := range row.terms {
				out.Slack[t*table.k+j] = 2 * unit[dtype.F32] * size
			}
		}
		out.store(v.Type.DType)
		return nil
	})
}
