package ir

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
)

// Type rules. Each returns the result's type, or an error that names the operand that
// does not fit and the type that it should have.

func sameAttrType(a, b any) bool { return reflect.TypeOf(a) == reflect.TypeOf(b) }

// tensor checks that operand i is a tensor of the given rank (-1: any rank).
func tensor(in []*Value, i int, name string, rank int) (Type, error) {
	t := in[i].Type
	if t.Kind != Tensor {
		return t, fmt.Errorf("%s (%s) is %s, not a tensor", name, in[i], t)
	}
	if rank >= 0 && len(t.Shape) != rank || len(t.Shape) == 0 {
		return t, fmt.Errorf("%s (%s) is %s, want rank %d", name, in[i], t, rank)
	}
	return t, nil
}

// floats is tensor that also requires floating-point elements.
func floats(in []*Value, i int, name string, rank int) (Type, error) {
	t, err := tensor(in, i, name, rank)
	if err == nil && !t.DType.IsFloat() {
		err = fmt.Errorf("%s (%s) is %s, want floating point", name, in[i], t)
	}
	return t, err
}

// matrix is tensor for weights of rank 2 with constant extents; they may be quantized.
func matrix(in []*Value, i int, name string) (Type, error) {
	t, err := tensor(in, i, name, 2)
	if err != nil {
		return t, err
	}
	_, rows := t.Shape[0].IsConst()
	_, columns := t.Shape[1].IsConst()
	if !t.DType.IsFloat() && !t.DType.IsQuantized() || !rows || !columns {
		return t, fmt.Errorf("%s (%s) is %s, want a matrix of weights", name, in[i], t)
	}
	return t, nil
}

// finite rejects NaN and infinities in attributes: NaN does not equal itself, and neither
// has a text form.
func finite(name string, x float64) error {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return fmt.Errorf("%s is %g", name, x)
	}
	return nil
}

func epsilon(x float64) error {
	if x < 0 {
		return fmt.Errorf("eps is %g", x)
	}
	return finite("eps", x)
}

// vector checks that operand i is a floating-point vector of n elements.
func vector(in []*Value, i int, name string, n Dim) error {
	if _, err := floats(in, i, name, 1); err != nil {
		return err
	}
	return shapeIs(in[i], name, n)
}

// ints checks that operand i is an int32 tensor of exactly this shape.
func ints(in []*Value, i int, name string, shape ...Dim) error {
	want := TensorOf(dtype.I32, shape...)
	if !in[i].Type.Equal(want) {
		return fmt.Errorf("%s (%s) is %s, want %s", name, in[i], in[i].Type, want)
	}
	return nil
}

func cacheOf(in []*Value, i int) (Cache, error) {
	if in[i].Type.Kind != State || in[i].Type.IsRecurrent() {
		return Cache{}, fmt.Errorf("operand %d (%s) is %s, not a cache", i, in[i], in[i].Type)
	}
	return in[i].Type.Cache, nil
}

func mismatch(name string, v *Value, want Shape) error {
	return fmt.Errorf("%s (%s) is %s, want shape %s", name, v, v.Type, want)
}

func shapeIs(v *Value, name string, want ...Dim) error {
	if v.Type.Kind != Tensor || len(v.Type.Shape) != len(want) {
		return mismatch(name, v, want)
	}
	for i, d := range want {
		if v.Type.Shape[i] != d {
			return mismatch(name, v, want)
		}
	}
	return nil
}

func withLast(s Shape, last Dim) Shape {
	n := append(Shape(nil), s...)
	n[len(n)-1] = last
	return n
}

func inferGiven(_ []*Value, attr any, given Type) (Type, error) {
	name := attr.(NameAttr).Name
	if name == "" {
		return given, fmt.Errorf("no name")
	}
	if given.Kind != Tensor || len(given.Shape) == 0 {
		return given, fmt.Errorf("%q is %s, want a tensor", name, given)
	}
	if err := positive(given); err != nil {
		return given, fmt.Errorf("%q: %w", name, err)
	}
	return given, nil
}

func positive(t Type) error {
	for _, d := range t.Shape {
		if n, ok := d.IsConst(); ok && n <= 0 {
			return fmt.Errorf("%s has an extent of %d", t, n)
		}
	}
	if t.DType == dtype.Invalid || !t.DType.Known() {
		return fmt.Errorf("%s has no element type", t)
	}
	if n := t.Shape.Last(); n%int64(t.DType.BlockElems()) != 0 {
		return fmt.Errorf("%s: rows of %d elements are not whole blocks of %d", t, n, t.DType.BlockElems())
	}
	return nil
}

func inferConst(_ []*Value, attr any, given Type) (Type, error) {
	if given.Kind != Tensor || len(given.Shape) == 0 {
		return given, fmt.Errorf("%s is not a tensor", given)
	}
	if err := positive(given); err != nil {
		return given, err
	}
	n, ok := given.Shape.Elements()
	if count, isConst := n.IsConst(); !ok || !isConst || given.DType.Bytes(count) != int64(len(attr.(ConstAttr).Data)) {
		return given, fmt.Errorf("%d bytes of data for %s", len(attr.(ConstAttr).Data), given)
	}
	return given, nil
}

func inferCache(_ []*Value, attr any, given Type) (Type, error) {
	c := given.Cache
	if given.Kind != State || given.IsRecurrent() || !(c.DType.IsFloat() || c.DType == dtype.Q8_0) {
		return given, fmt.Errorf("%s is no usable cache", given)
	}
	for _, n := range []int{c.KVHeads, c.Head, c.Block} {
		if n <= 0 || n > maxCacheExtent {
			return given, fmt.Errorf("%s has an extent of %d", given, n)
		}
	}
	if c.Head%c.DType.BlockElems() != 0 {
		return given, fmt.Errorf("heads of %d elements are not whole %s blocks", c.Head, c.DType)
	}
	if c.Window < 0 || c.Window > maxCacheExtent {
		return given, fmt.Errorf("%s has a window of %d", given, c.Window)
	}
	if c.Latent && c.KVHeads != 1 {
		return given, fmt.Errorf("%s has %d KV heads; a latent cache has 1", given, c.KVHeads)
	}
	if layer := attr.(CacheAttr).Layer; layer < 0 || layer >= maxLayers {
		return given, fmt.Errorf("layer %d", layer)
	}
	return given, nil
}

// maxCacheExtent bounds a cache's extents so that their products fit an int.
const maxCacheExtent = 1 << 28

func inferState(_ []*Value, attr any, given Type) (Type, error) {
	a, r := attr.(StateAttr), given.Recurrent
	if !given.IsRecurrent() {
		return given, fmt.Errorf("%s is no recurrent state", given)
	}
	for _, n := range []int{r.Rows, r.Width, r.Block} {
		if n <= 0 || n > maxCacheExtent {
			return given, fmt.Errorf("%s has an extent of %d", given, n)
		}
	}
	if a.Layer < 0 || a.Layer >= maxLayers || a.Name == "" {
		return given, fmt.Errorf("state %q of layer %d", a.Name, a.Layer)
	}
	return given, nil
}

// recurrentOf checks that operand i is a recurrent state of that shape, followed by the cu_seqlens and
// states that locate it in a step.
func recurrentOf(in []*Value, i, rows, width int) (Type, error) {
	t := in[i].Type
	if !t.IsRecurrent() || t.Recurrent.Rows != rows || t.Recurrent.Width != width {
		return t, fmt.Errorf("operand %d (%s) is %s, want a state of %d rows of %d", i, in[i], t, rows, width)
	}
	if err := ints(in, i+1, "cu_seqlens", Var(sym.B).Plus(1)); err != nil {
		return t, err
	}
	return t, ints(in, i+2, "states", Var(sym.B), Const(2))
}

// MaxTaps is the maximum number of taps of a short convolution, that of its own token included.
const MaxTaps = 8

func inferShortConv(in []*Value, _ any, _ Type) (Type, error) { return inferConv(in, "x", 1) }

func inferGatedShortConv(in []*Value, _ any, _ Type) (Type, error) { return inferConv(in, "all", 3) }

// inferSiLUShortConv takes the number of columns that are convolved from w.
func inferSiLUShortConv(in []*Value, attr any, _ Type) (Type, error) {
	x, err := floats(in, 0, "all", 2)
	if err != nil {
		return Type{}, err
	}
	w, err := floats(in, 1, "w", 2)
	if err != nil {
		return Type{}, err
	}
	from := attr.(ConvAttr).From
	width, ok := w.Shape[0].IsConst()
	if !ok || from < 0 || width > x.Shape.Last()-int64(from) {
		return Type{}, fmt.Errorf("w (%s) is %s: want at most %d rows, as many as columns are convolved", in[1], w, x.Shape.Last()-int64(from))
	}
	if err := shapeIs(in[0], "all", Var(sym.T), Const(int(x.Shape.Last()))); err != nil {
		return Type{}, err
	}
	if len(in) > 5 {
		if err := vector(in, 5, "bias", w.Shape[0]); err != nil {
			return Type{}, err
		}
	}
	return convolved(in, x, w, int(width))
}

// inferConv infers a convolution over one of parts equal column ranges of operand 0.
func inferConv(in []*Value, name string, parts int) (Type, error) {
	x, err := floats(in, 0, name, 2)
	if err != nil {
		return Type{}, err
	}
	w, err := floats(in, 1, "w", 2)
	if err != nil {
		return Type{}, err
	}
	width := int(x.Shape.Last()) / parts
	if err := shapeIs(in[0], name, Var(sym.T), Const(parts*width)); err != nil {
		return Type{}, err
	}
	return convolved(in, x, w, width)
}

// convolved returns the type of a convolution of width columns.
func convolved(in []*Value, x, w Type, width int) (Type, error) {
	taps := w.Shape.Last()
	if width == 0 || taps < 2 || taps > MaxTaps {
		return Type{}, fmt.Errorf("w (%s) is %s: want 2 to %d taps for each element of x", in[1], w, MaxTaps)
	}
	if err := shapeIs(in[1], "w", Const(width), Const(int(taps))); err != nil {
		return Type{}, err
	}
	state, err := recurrentOf(in, 2, int(taps)-1, width)
	return TupleOf(TensorOf(x.DType, Var(sym.T), Const(width)), state), err
}

// inferMamba2 takes the number of heads from dt.
func inferMamba2(in []*Value, attr any, _ Type) (Type, error) {
	dt, err := floats(in, 1, "dt", 2)
	if err != nil {
		return Type{}, err
	}
	heads := int(dt.Shape.Last())
	if err := shapeIs(in[1], "dt", Var(sym.T), Const(heads)); err != nil {
		return Type{}, err
	}
	return stateSpace(in, attr.(Mamba2Attr), heads)
}

// inferGatedMamba2 takes the number of heads from bias.
func inferGatedMamba2(in []*Value, attr any, _ Type) (Type, error) {
	bias, err := floats(in, 3, "bias", 1)
	if err != nil {
		return Type{}, err
	}
	heads := bias.Shape.Last()
	t, err := stateSpace(in, attr.(Mamba2Attr), int(heads))
	if err != nil {
		return Type{}, err
	}
	all, err := floats(in, 1, "all", 2)
	if err != nil {
		return Type{}, err
	}
	if all.Shape.Last() < heads*t.Elems[0].Shape.Last()+heads {
		return Type{}, fmt.Errorf("all (%s) is %s: want the gates of %d heads of %d as its first columns, and dt as its last", in[1], all, heads, t.Elems[0].Shape.Last())
	}
	return t, shapeIs(in[1], "all", Var(sym.T), Const(int(all.Shape.Last())))
}

// stateSpace returns the type of mamba2 over a number of heads. The state determines their size.
func stateSpace(in []*Value, a Mamba2Attr, heads int) (Type, error) {
	xbc, err := floats(in, 0, "xbc", 2)
	if err != nil {
		return Type{}, err
	}
	width, head := int(xbc.Shape.Last()), in[5].Type.Recurrent.Width
	shared := width - heads*head // columns of B and C
	if a.Groups < 1 || heads*head == 0 || heads%a.Groups != 0 || shared <= 0 || shared%(2*a.Groups) != 0 {
		return Type{}, fmt.Errorf("xbc (%s) is %s: want %d heads of %d elements, and B and C of %d groups", in[0], xbc, heads, head, a.Groups)
	}
	if err := shapeIs(in[0], "xbc", Var(sym.T), Const(width)); err != nil {
		return Type{}, err
	}
	if err := vector(in, 3, "bias", Const(heads)); err != nil {
		return Type{}, err
	}
	if err := cmp.Or(column(in, 2, "decay", Const(heads)), column(in, 4, "skip", Const(heads))); err != nil {
		return Type{}, err
	}
	state, err := recurrentOf(in, 5, heads*(shared/(2*a.Groups)), head)
	return TupleOf(TensorOf(xbc.DType, Var(sym.T), Const(heads), Const(head)), state), err
}

// column is vector for vectors that some files have as a matrix of one column.
func column(in []*Value, i int, name string, n Dim) error {
	if t := in[i].Type; t.Kind != Tensor || len(t.Shape) != 2 {
		return vector(in, i, name, n)
	}
	if _, err := floats(in, i, name, 2); err != nil {
		return err
	}
	return shapeIs(in[i], name, n, Const(1))
}

// inferDeltaNet takes the number of V heads from alpha; heads of Q, K and V have one size.
func inferDeltaNet(in []*Value, attr any, _ Type) (Type, error) {
	alpha, err := floats(in, 1, "alpha", 2)
	if err != nil {
		return Type{}, err
	}
	heads := int(alpha.Shape.Last())
	for i, name := range []string{"alpha", "beta"} {
		if _, err := floats(in, 1+i, name, 2); err != nil {
			return Type{}, err
		}
		if err := shapeIs(in[1+i], name, Var(sym.T), Const(heads)); err != nil {
			return Type{}, err
		}
	}
	return ruled(in, attr.(DeltaNetAttr), heads, 3, 5)
}

// inferGatedDeltaNet takes the number of V heads from decay.
func inferGatedDeltaNet(in []*Value, attr any, _ Type) (Type, error) {
	a := attr.(GatedDeltaNetAttr)
	if err := epsilon(a.NormEps); err != nil {
		return Type{}, err
	}
	decay, err := floats(in, 2, "decay", 1)
	if err != nil {
		return Type{}, err
	}
	heads := int(decay.Shape.Last())
	if _, err := floats(in, 1, "gates", 2); err != nil {
		return Type{}, err
	}
	if err := shapeIs(in[1], "gates", Var(sym.T), Const(2*heads)); err != nil {
		return Type{}, err
	}
	t, err := ruled(in, a.Delta, heads, 2, 6)
	if err != nil {
		return Type{}, err
	}
	head := t.Elems[0].Shape[2]
	if err := vector(in, 4, "gain", head); err != nil {
		return Type{}, err
	}
	all, err := floats(in, 5, "all", 2)
	if err != nil {
		return Type{}, err
	}
	size, _ := head.IsConst()
	if all.Shape.Last() < int64(heads)*size {
		return Type{}, fmt.Errorf("all (%s) is %s: want the gates of %d heads of %d as its last columns", in[5], all, heads, size)
	}
	return t, shapeIs(in[5], "all", Var(sym.T), Const(int(all.Shape.Last())))
}

// ruled returns the type of the gated delta rule. heads is the number of heads of V. vectors is the
// index of the operand decay, which bias follows; states is that of the state, which its steps follow.
func ruled(in []*Value, a DeltaNetAttr, heads, vectors, states int) (Type, error) {
	if err := epsilon(a.Eps); err != nil {
		return Type{}, err
	}
	qkv, err := floats(in, 0, "qkv", 2)
	if err != nil {
		return Type{}, err
	}
	width := int(qkv.Shape.Last())
	if a.KeyHeads < 1 || heads%a.KeyHeads != 0 || heads == 0 || width%(2*a.KeyHeads+heads) != 0 || width == 0 {
		return Type{}, fmt.Errorf("qkv (%s) is %s: want %d heads of Q, as many of K, and %d of V", in[0], qkv, a.KeyHeads, heads)
	}
	head := width / (2*a.KeyHeads + heads)
	if err := shapeIs(in[0], "qkv", Var(sym.T), Const(width)); err != nil {
		return Type{}, err
	}
	for i, name := range []string{"decay", "bias"} {
		if err := vector(in, vectors+i, name, Const(heads)); err != nil {
			return Type{}, err
		}
	}
	state, err := recurrentOf(in, states, heads*head, head)
	return TupleOf(TensorOf(qkv.DType, Var(sym.T), Const(heads), Const(head)), state), err
}

func inferEmbed(in []*Value, _ any, _ Type) (Type, error) {
	if err := ints(in, 0, "tokens", Var(sym.T)); err != nil {
		return Type{}, err
	}
	table, err := matrix(in, 1, "table")
	if err != nil {
		return Type{}, err
	}
	return TensorOf(dtype.F32, Var(sym.T), table.Shape[1]), nil
}

func inferLinear(in []*Value, _ any, _ Type) (Type, error) {
	x, err := floats(in, 0, "x", -1)
	if err != nil {
		return Type{}, err
	}
	w, err := matrix(in, 1, "weight")
	if err != nil {
		return Type{}, err
	}
	if w.Shape[1] != x.Shape[len(x.Shape)-1] {
		return Type{}, fmt.Errorf("x (%s) is %s but the weight (%s) is %s", in[0], x, in[1], w)
	}
	if len(in) > 2 {
		if err := vector(in, 2, "bias", w.Shape[0]); err != nil {
			return Type{}, err
		}
	}
	return TensorOf(x.DType, withLast(x.Shape, w.Shape[0])...), nil
}

func inferNorm(in []*Value, attr any, _ Type) (Type, error) {
	x, err := floats(in, 0, "x", -1)
	if err != nil {
		return Type{}, err
	}
	if err := epsilon(attr.(NormAttr).Eps); err != nil {
		return Type{}, err
	}
	return x, vector(in, 1, "weight", x.Shape[len(x.Shape)-1])
}

func inferGroupNorm(in []*Value, attr any, _ Type) (Type, error) {
	x, err := floats(in, 0, "x", -1)
	if err != nil {
		return Type{}, err
	}
	if err := epsilon(attr.(NormAttr).Eps); err != nil {
		return Type{}, err
	}
	if len(x.Shape) < 2 {
		return Type{}, fmt.Errorf("x (%s) is %s, want groups", in[0], x)
	}
	if _, err := floats(in, 1, "weight", 2); err != nil {
		return Type{}, err
	}
	return x, shapeIs(in[1], "weight", x.Shape[len(x.Shape)-2:]...)
}

func inferNormResidual(in []*Value, attr any, given Type) (Type, error) {
	x, err := inferNorm(in[:2], attr, given)
	if err != nil {
		return Type{}, err
	}
	if _, err := floats(in, 2, "residual", -1); err != nil {
		return Type{}, err
	}
	if len(in) > 3 {
		if err := vector(in, 3, "gain", Const(1)); err != nil {
			return Type{}, err
		}
	}
	return x, shapeIs(in[2], "residual", x.Shape...)
}

func inferLayerNorm(in []*Value, attr any, _ Type) (Type, error) {
	x, err := floats(in, 0, "x", -1)
	if err != nil {
		return Type{}, err
	}
	if err := epsilon(attr.(NormAttr).Eps); err != nil {
		return Type{}, err
	}
	for i, name := range []string{"weight", "bias"} {
		if i+1 < len(in) {
			if err := vector(in, i+1, name, x.Shape[len(x.Shape)-1]); err != nil {
				return Type{}, err
			}
		}
	}
	return x, nil
}

func inferCast(in []*Value, _ any, given Type) (Type, error) {
	x, err := floats(in, 0, "x", -1)
	if err != nil {
		return Type{}, err
	}
	if !given.SameButPrecision(x) {
		return given, fmt.Errorf("%s to %s", x, given)
	}
	return given, nil
}

func inferReshape(in []*Value, _ any, given Type) (Type, error) {
	x, err := floats(in, 0, "x", -1)
	if err != nil {
		return Type{}, err
	}
	if given.Kind != Tensor || !given.DType.IsFloat() || len(given.Shape) == 0 {
		return given, fmt.Errorf("to %s", given)
	}
	from, ok1 := x.Shape.Elements()
	to, ok2 := given.Shape.Elements()
	if !ok1 || !ok2 || from != to {
		return given, fmt.Errorf("%s has %s elements, %s has %s", x, from, given, to)
	}
	return given, positive(given)
}

func inferTranspose(in []*Value, attr any, _ Type) (Type, error) {
	x, err := floats(in, 0, "x", 3)
	if err != nil {
		return Type{}, err
	}
	a := attr.(TransposeAttr)
	var seen [3]bool
	shape := make(Shape, 3)
	for i, axis := range []int{a.A, a.B, a.C} {
		if axis < 0 || axis > 2 || seen[axis] {
			return Type{}, fmt.Errorf("axes %d,%d,%d are no permutation", a.A, a.B, a.C)
		}
		seen[axis] = true
		shape[i] = x.Shape[axis]
	}
	return TensorOf(x.DType, shape...), nil
}

func inferSlice(in []*Value, attr any, _ Type) (Type, error) {
	x, err := floats(in, 0, "x", -1)
	if err != nil {
		return Type{}, err
	}
	a := attr.(SliceAttr)
	if a.Start < 0 || a.End <= a.Start || int64(a.End) > x.Shape.Last() {
		return Type{}, fmt.Errorf("columns [%d,%d) of %s", a.Start, a.End, x)
	}
	return TensorOf(x.DType, withLast(x.Shape, Const(a.End-a.Start))...), nil
}

func inferConcat(in []*Value, _ any, _ Type) (Type, error) {
	var total int64
	first, err := floats(in, 0, "x", -1)
	if err != nil {
		return Type{}, err
	}
	for i := range in {
		x, err := floats(in, i, "x", len(first.Shape))
		if err != nil {
			return Type{}, err
		}
		n := x.Shape.Last()
		if n == 0 || !TensorOf(first.DType, withLast(x.Shape, Const(1))...).Equal(TensorOf(first.DType, withLast(first.Shape, Const(1))...)) {
			return Type{}, fmt.Errorf("%s beside %s", x, first)
		}
		total += n
	}
	return TensorOf(first.DType, withLast(first.Shape, Const(int(total)))...), nil
}

func inferIndices(in []*Value, attr any, _ Type) (Type, error) {
	n := attr.(IndicesAttr).N
	if n < 1 || n > maxCacheExtent {
		return Type{}, fmt.Errorf("%d columns", n)
	}
	return TensorOf(dtype.I32, Var(sym.T), Const(n)), ints(in, 0, "positions", Var(sym.T))
}

func checkRope(a RopeAttr, head int64) error {
	if a.Rotated <= 0 || a.Rotated%2 != 0 || int64(a.Rotated) > head {
		return fmt.Errorf("%d rotated elements of a head of %d", a.Rotated, head)
	}
	if !(a.Theta > 0) || !(a.FreqScale > 0) || !(a.Magnitude > 0) {
		return fmt.Errorf("theta %g, frequency scale %g, magnitude %g: all must be positive", a.Theta, a.FreqScale, a.Magnitude)
	}
	return finite("the product of theta, frequency scale and magnitude", a.Theta*a.FreqScale*a.Magnitude)
}

func inferRope(in []*Value, attr any, _ Type) (Type, error) {
	x, err := floats(in, 0, "x", 3)
	if err != nil {
		return Type{}, err
	}
	a := attr.(RopeAttr)
	if err := checkRope(a, x.Shape.Last()); err != nil {
		return Type{}, err
	}
	if err := ints(in, 1, "positions", x.Shape[0]); err != nil {
		return Type{}, err
	}
	return x, checkFactors(in, 2, a)
}

func checkFactors(in []*Value, i int, a RopeAttr) error {
	if len(in) <= i {
		return nil
	}
	return vector(in, i, "factors", Const(a.Rotated/2))
}

func inferCacheWrite(in []*Value, _ any, _ Type) (Type, error) {
	c, err := cacheOf(in, 0)
	if err != nil {
		return Type{}, err
	}
	for i, name := range []string{"k", "v"} {
		if _, err := floats(in, 1+i, name, 3); err != nil {
			return Type{}, err
		}
		if err := shapeIs(in[1+i], name, Var(sym.T), Const(c.KVHeads), Const(c.Head)); err != nil {
			return Type{}, err
		}
	}
	if c.Latent && in[1] != in[2] {
		return Type{}, fmt.Errorf("%s and %s for a cache whose values are its keys", in[1], in[2])
	}
	return StateOf(c), ints(in, 3, "slots", Var(sym.T))
}

func inferCopyBlocks(in []*Value, _ any, _ Type) (Type, error) {
	c, err := cacheOf(in, 0)
	if err != nil {
		return Type{}, err
	}
	return StateOf(c), ints(in, 1, "copies", Var(sym.C), Const(2))
}

// contextRows returns the number of rows of a cache read: B·Smax.
func contextRows() Dim {
	n, _ := Var(sym.B).Times(Var(sym.Smax))
	return n
}

func inferCacheRead(in []*Value, _ any, _ Type) (Type, error) {
	c, err := cacheOf(in, 0)
	if err != nil {
		return Type{}, err
	}
	if err := ints(in, 1, "context_lens", Var(sym.B)); err != nil {
		return Type{}, err
	}
	if err := ints(in, 2, "block_table", Var(sym.B), Var(sym.NB)); err != nil {
		return Type{}, err
	}
	return TensorOf(dtype.F32, contextRows(), Const(c.KVHeads), Const(c.Head)), nil
}

func inferRepeat(in []*Value, attr any, _ Type) (Type, error) {
	x, err := floats(in, 0, "x", 3)
	if err != nil {
		return Type{}, err
	}
	n := attr.(RepeatAttr).N
	heads, ok := x.Shape[1].Times(Const(n))
	if n < 1 || !ok {
		return Type{}, fmt.Errorf("%d times %s", n, x)
	}
	return TensorOf(x.DType, x.Shape[0], heads, x.Shape[2]), nil
}

func inferRepeatPair(in []*Value, attr any, _ Type) (Type, error) {
	var out [2]Type
	for i := range out {
		t, err := inferRepeat(in[i:], attr, Type{})
		if err != nil {
			return Type{}, err
		}
		out[i] = t
	}
	if !slices.Equal(out[0].Shape, out[1].Shape) {
		return Type{}, fmt.Errorf("k %s, v %s", in[0].Type, in[1].Type)
	}
	return TupleOf(out[0], out[1]), nil
}

func inferMatmul(in []*Value, attr any, _ Type) (Type, error) {
	a, err := floats(in, 0, "a", 3)
	if err != nil {
		return Type{}, err
	}
	b, err := floats(in, 1, "b", 3)
	if err != nil {
		return Type{}, err
	}
	k, n := b.Shape[1], b.Shape[2]
	if attr.(MatmulAttr).TransB {
		k, n = n, k
	}
	if a.Shape[0] != b.Shape[0] || a.Shape[2] != k {
		return Type{}, fmt.Errorf("%s by %s", a, b)
	}
	return TensorOf(a.DType, a.Shape[0], a.Shape[1], n), nil
}

func inferActivate(in []*Value, attr any, _ Type) (Type, error) {
	a := attr.(ActivationAttr).Activation
	if a == NoActivation {
		return Type{}, errors.New("no activation")
	}
	if err := a.check(false); err != nil {
		return Type{}, err
	}
	return floats(in, 0, "x", -1)
}

func inferGate(in []*Value, attr any, given Type) (Type, error) {
	if err := attr.(ActivationAttr).Activation.check(true); err != nil {
		return Type{}, err
	}
	return inferBinary(in, nil, given)
}

// check rejects an unknown activation, and one that exists as a gate only where gated is false.
func (a Activation) check(gated bool) error {
	if a >= numActivations {
		return fmt.Errorf("there is no %s", a)
	}
	if a.OnlyGated() && !gated {
		return fmt.Errorf("%s exists as a gate only", a)
	}
	return nil
}

func inferScale(in []*Value, attr any, _ Type) (Type, error) {
	if err := finite("the factor", attr.(ScaleAttr).Value); err != nil {
		return Type{}, err
	}
	return floats(in, 0, "x", -1)
}

func inferSoftCap(in []*Value, attr any, _ Type) (Type, error) {
	if cap := attr.(ScaleAttr).Value; !(cap > 0) || math.IsInf(cap, 0) {
		return Type{}, fmt.Errorf("the cap is %g", cap)
	}
	return floats(in, 0, "x", -1)
}

func inferSoftmax(in []*Value, _ any, _ Type) (Type, error) {
	if len(in) == 1 {
		return floats(in, 0, "x", -1)
	}
	x, err := floats(in, 0, "x", 3)
	if err != nil {
		return Type{}, err
	}
	return x, vector(in, 1, "sinks", x.Shape[0])
}

// maxWindow bounds a window so that a position plus a window fits an int32.
const maxWindow = 1 << 30

func window(n int) error {
	if n < 0 || n > maxWindow {
		return fmt.Errorf("a window of %d keys", n)
	}
	return nil
}

func inferMask(in []*Value, attr any, _ Type) (Type, error) {
	if err := window(attr.(MaskAttr).Window); err != nil {
		return Type{}, err
	}
	x, err := floats(in, 0, "scores", 3)
	if err != nil {
		return Type{}, err
	}
	if err := shapeIs(in[0], "scores", x.Shape[0], Var(sym.T), contextRows()); err != nil {
		return Type{}, err
	}
	if err := ints(in, 1, "positions", Var(sym.T)); err != nil {
		return Type{}, err
	}
	if err := ints(in, 2, "cu_seqlens", Var(sym.B).Plus(1)); err != nil {
		return Type{}, err
	}
	if err := ints(in, 3, "context_lens", Var(sym.B)); err != nil || len(in) == 4 {
		return x, err
	}
	return x, vector(in, 4, "slopes", x.Shape[0])
}

func inferBinary(in []*Value, _ any, _ Type) (Type, error) {
	x, err := floats(in, 0, "x", -1)
	if err != nil {
		return Type{}, err
	}
	if _, err := floats(in, 1, "y", -1); err != nil {
		return Type{}, err
	}
	return x, shapeIs(in[1], "y", x.Shape...)
}

func inferGain(in []*Value, _ any, _ Type) (Type, error) {
	x, err := floats(in, 0, "x", -1)
	if err != nil {
		return Type{}, err
	}
	w, err := floats(in, 1, "weight", -1)
	if err != nil {
		return Type{}, err
	}
	if n, ok := w.Shape.Elements(); !ok || len(w.Shape) == 0 {
		return Type{}, fmt.Errorf("the weights are %s", w)
	} else if len(w.Shape) == 1 && n == Const(1) {
		return x, nil
	}
	return x, shapeIs(in[1], "weight", x.Shape[1:]...)
}

func inferGather(in []*Value, _ any, _ Type) (Type, error) {
	x, err := floats(in, 0, "x", 2)
	if err != nil {
		return Type{}, err
	}
	return TensorOf(x.DType, Var(sym.R), x.Shape[1]), ints(in, 1, "rows", Var(sym.R))
}

func inferArgmax(in []*Value, _ any, _ Type) (Type, error) {
	x, err := floats(in, 0, "x", 2)
	if err != nil {
		return Type{}, err
	}
	return TensorOf(dtype.I32, x.Shape[0]), nil
}

func inferRouter(in []*Value, attr any, _ Type) (Type, error) {
	a := attr.(RouterAttr)
	x, err := floats(in, 0, "logits", 2)
	if err != nil {
		return Type{}, err
	}
	columns, constant := x.Shape[1].IsConst()
	experts := columns - int64(a.Others)
	from := experts
	if a.Groups > 0 && a.UsedGroups > 0 && a.UsedGroups <= a.Groups && experts%int64(a.Groups) == 0 {
		from = experts / int64(a.Groups) * int64(a.UsedGroups)
	} else if a.Groups != 0 || a.UsedGroups != 0 {
		return Type{}, fmt.Errorf("%d of %d groups of %s experts", a.UsedGroups, a.Groups, x.Shape[1])
	}
	switch rest := in[1:]; {
	case !constant || a.Others < 0 || a.Chosen < 1 || int64(a.Chosen) > from:
		return Type{}, fmt.Errorf("%d of %s experts, %d other columns", a.Chosen, x.Shape[1], a.Others)
	case a.Score == NoScore || a.Score >= numScores:
		return Type{}, fmt.Errorf("%s is no score", a.Score)
	case !(a.Floor >= 0) || math.IsInf(a.Floor, 0) || math.IsNaN(a.Scale) || math.IsInf(a.Scale, 0) || !(a.Sharpness >= 0) || math.IsInf(a.Sharpness, 0):
		return Type{}, fmt.Errorf("floor %g, scale %g, sharpness %g", a.Floor, a.Scale, a.Sharpness)
	case len(rest) != a.vectors():
		return Type{}, fmt.Errorf("%d operands for %+v", len(in), a)
	default:
		for i := range rest {
			if err := vector(in, 1+i, "vector", Const(int(experts))); err != nil {
				return Type{}, err
			}
		}
	}
	each := []Dim{x.Shape[0], Const(a.Chosen)}
	return TupleOf(TensorOf(x.DType, each...), TensorOf(dtype.I32, each...)), nil
}

func inferSelect(in []*Value, attr any, _ Type) (Type, error) {
	i, t := attr.(SelectAttr).Index, in[0].Type
	if t.Kind != Tuple || i < 0 || i >= len(t.Elems) {
		return Type{}, fmt.Errorf("element %d of %s", i, t)
	}
	return t.Elems[i], nil
}

func inferFusedLinear(in []*Value, attr any, _ Type) (Type, error) {
	a := attr.(LinearAttr)
	if a.Weights < 1 || a.Weights > 4 || len(in) != a.operands() {
		return Type{}, fmt.Errorf("%d operands for %+v", len(in), a)
	}
	if err := errors.Join(epsilon(a.Eps), a.Activation.check(a.Gated), a.checkNorm()); err != nil {
		return Type{}, err
	}
	x, err := floats(in, 0, "x", -1)
	if err != nil {
		return Type{}, err
	}
	o := a.Operands(in)
	o.X = a.leading(o)
	var n int64
	for i, weight := range o.Weights {
		args := []*Value{o.X, weight}
		if a.Bias {
			args = append(args, o.Biases[i])
		}
		w, err := inferLinear(args, nil, Type{})
		if err != nil {
			return Type{}, err
		}
		n += w.Shape.Last()
	}
	if a.Gated {
		if a.Weights != 2 || o.Weights[0].Type.Shape[0] != o.Weights[1].Type.Shape[0] {
			return Type{}, fmt.Errorf("a gate of %d weights of unequal height", a.Weights)
		}
		n /= 2
	}
	if err := o.checkVectors(); err != nil {
		return Type{}, err
	}
	rows := x.Shape
	if o.Rows != nil {
		t, err := inferGather([]*Value{o.X, o.Rows}, nil, Type{})
		if err != nil {
			return Type{}, err
		}
		rows = t.Shape
	}
	out := TensorOf(x.DType, withLast(rows, Const(int(n)))...)
	if err := a.checkGate(o.Gate, out.Shape); err != nil {
		return Type{}, err
	}
	if o.Residual == nil {
		return out, nil
	}
	r, err := floats([]*Value{o.Residual}, 0, "residual", -1)
	if err != nil {
		return Type{}, err
	}
	if err := shapeIs(o.Residual, "residual", out.Shape...); err != nil {
		return Type{}, err
	}
	out.DType = r.DType
	return out, nil
}

// leading returns X as the weights multiply it: its first columns where it may have more than they.
func (a LinearAttr) leading(o LinearOperands) *Value {
	w := o.Weights[0].Type
	if !a.Leading || o.X.Type.Kind != Tensor || len(w.Shape) == 0 || o.X.Type.Shape.Last() < w.Shape.Last() {
		return o.X
	}
	return &Value{ID: o.X.ID, Type: TensorOf(o.X.Type.DType, withLast(o.X.Type.Shape, Const(int(w.Shape.Last())))...)}
}

// checkGate rejects a gate whose columns or number of rows are wrong, and one of rows beside another
// epilogue than a residual. rows is the shape of the products.
func (a LinearAttr) checkGate(v *Value, rows Shape) error {
	if v == nil {
		if a.GateColumn != 0 {
			return fmt.Errorf("column %d of no gate", a.GateColumn)
		}
		return nil
	}
	columns := int64(1)
	if a.ColumnGate {
		columns = rows.Last()
	}
	if a.ColumnGate && a.RowGate != NoActivation || a.RowGate != NoActivation && (a.Bias || a.Gated || a.Activation != NoActivation) || len(rows) != 2 {
		return fmt.Errorf("a gate of rows of %+v", a)
	}
	gate, err := floats([]*Value{v}, 0, "gate", 2)
	if err != nil {
		return err
	}
	if gate.Shape[0] != rows[0] || a.GateColumn < 0 || int64(a.GateColumn)+columns > gate.Shape.Last() {
		return fmt.Errorf("column %d of the gate %s, for %s rows", a.GateColumn, gate, rows[0])
	}
	if a.ColumnGate {
		return nil
	}
	return a.RowGate.check(false)
}

// checkNorm rejects an unknown norm, and one with the wrong set of gain, shift and narrow.
func (a LinearAttr) checkNorm() error {
	switch {
	case a.Norm >= numNorms:
		return fmt.Errorf("there is no %s", a.Norm)
	case a.Norm == RMSNorm && !a.Gain, a.Norm == NoNorm && a.Gain, a.Norm != LayerNorm && a.Shift, a.Shift && !a.Gain, a.Norm == NoNorm && a.Narrow:
		return fmt.Errorf("a norm of kind %s with gain %v, shift %v, narrow %v", a.Norm, a.Gain, a.Shift, a.Narrow)
	}
	return nil
}

// routed infers x·w[e]ᵀ for every expert e that a token is routed to; w is [E,N,K].
func routed(x, w, experts *Value) (Type, error) {
	in := []*Value{x, w, experts}
	t, err := floats(in, 0, "x", -1)
	if err != nil {
		return Type{}, err
	}
	stack, err := tensor(in, 1, "w", 3)
	if err != nil {
		return Type{}, err
	}
	for _, d := range stack.Shape {
		if _, ok := d.IsConst(); !ok || !stack.DType.IsFloat() && !stack.DType.IsQuantized() {
			return Type{}, fmt.Errorf("w (%s) is %s, want weights of experts", w, stack)
		}
	}
	index, err := tensor(in, 2, "experts", 2)
	if err != nil {
		return Type{}, err
	}
	if each, ok := index.Shape[1].IsConst(); !ok || index.DType != dtype.I32 || each < 1 || each > stack.Shape[0].Eval(&sym.Sizes{}) {
		return Type{}, fmt.Errorf("experts (%s) is %s, of %s", experts, index, stack)
	}
	shared := Shape{index.Shape[0], stack.Shape[2]}
	if !slices.Equal(t.Shape, shared) && !slices.Equal(t.Shape, Shape{index.Shape[0], index.Shape[1], stack.Shape[2]}) {
		return Type{}, fmt.Errorf("x (%s) is %s, for %s of %s", x, t, index, stack)
	}
	return TensorOf(t.DType, index.Shape[0], index.Shape[1], stack.Shape[1]), nil
}

// expertBias checks the biases of the experts of w.
func expertBias(bias, w *Value) error {
	if _, err := floats([]*Value{bias}, 0, "bias", 2); err != nil {
		return err
	}
	return shapeIs(bias, "bias", w.Type.Shape[0], w.Type.Shape[1])
}

func inferExpertLinear(in []*Value, _ any, _ Type) (Type, error) {
	t, err := routed(in[0], in[1], in[2])
	if err != nil || len(in) == 3 {
		return t, err
	}
	return t, expertBias(in[3], in[1])
}

func inferWeightedSum(in []*Value, _ any, _ Type) (Type, error) {
	x, err := floats(in, 0, "x", 3)
	if err != nil {
		return Type{}, err
	}
	if _, err := floats(in, 1, "weights", 2); err != nil {
		return Type{}, err
	}
	return TensorOf(x.DType, x.Shape[0], x.Shape[2]), shapeIs(in[1], "weights", x.Shape[0], x.Shape[1])
}

func inferRoutedLinear(in []*Value, attr any, _ Type) (Type, error) {
	a := attr.(RoutedAttr)
	l := a.Linear
	if (l.Weights == 2) != l.Gated || l.Weights < 1 || l.Weights > 2 || l.Gather || l.HasGate() || l.Residual && !a.Mixed || len(in) != a.operands() {
		return Type{}, fmt.Errorf("%d operands for %+v", len(in), a)
	}
	if err := errors.Join(epsilon(l.Eps), l.Activation.check(l.Gated), l.checkNorm()); err != nil {
		return Type{}, err
	}
	o := a.Operands(in)
	o.X = l.leading(o.LinearOperands)
	var out Type
	for i, w := range o.Weights {
		t, err := routed(o.X, w, o.Experts)
		if err != nil {
			return Type{}, err
		}
		if i > 0 && !slices.Equal(w.Type.Shape, o.Weights[0].Type.Shape) {
			return Type{}, fmt.Errorf("a gate of %s and %s", o.Weights[0].Type, w.Type)
		}
		if out = t; !l.Bias {
			continue
		}
		if err := expertBias(o.Biases[i], w); err != nil {
			return Type{}, err
		}
	}
	if err := o.checkVectors(); err != nil {
		return Type{}, err
	}
	if !a.Mixed {
		return out, nil
	}
	if _, err := floats([]*Value{o.Mix}, 0, "weights", 2); err != nil {
		return Type{}, err
	}
	if err := shapeIs(o.Mix, "weights", out.Shape[:2]...); err != nil {
		return Type{}, err
	}
	out.Shape = Shape{out.Shape[0], out.Shape[2]}
	if o.Residual == nil {
		return out, nil
	}
	r, err := floats([]*Value{o.Residual}, 0, "residual", 2)
	if err != nil {
		return Type{}, err
	}
	out.DType = r.DType
	return out, shapeIs(o.Residual, "residual", out.Shape...)
}

// checkVectors rejects a gain or shift whose length differs from x's rows.
func (o *LinearOperands) checkVectors() error {
	for i, v := range []*Value{o.Gain, o.Shift} {
		if v == nil {
			continue
		}
		if err := vector([]*Value{v}, 0, []string{"gain", "shift"}[i], o.X.Type.Shape[len(o.X.Type.Shape)-1]); err != nil {
			return err
		}
	}
	return nil
}

func inferAttention(in []*Value, attr any, _ Type) (Type, error) {
	a := attr.(AttentionAttr)
	if err := finite("the factor", a.Scale); err != nil {
		return Type{}, err
	}
	if a.SoftCap < 0 {
		return Type{}, fmt.Errorf("the cap is %g", a.SoftCap)
	}
	if err := errors.Join(finite("the cap", a.SoftCap), window(a.Window)); err != nil {
		return Type{}, err
	}
	q, err := floats(in, 0, "q", 3)
	if err != nil {
		return Type{}, err
	}
	c, err := cacheOf(in, 1)
	if err != nil {
		return Type{}, err
	}
	if c.Window > 0 && (a.Window == 0 || a.Window > c.Window) {
		return Type{}, fmt.Errorf("a window of %d keys, of which %s keeps %d", a.Window, in[1], c.Window)
	}
	heads, ok := q.Shape[1].IsConst()
	if !ok || heads%int64(c.KVHeads) != 0 {
		return Type{}, fmt.Errorf("%s query heads over %d KV heads", q.Shape[1], c.KVHeads)
	}
	if err := shapeIs(in[0], "q", Var(sym.T), q.Shape[1], Const(c.Head)); err != nil {
		return Type{}, err
	}
	if err := ints(in, 2, "positions", Var(sym.T)); err != nil {
		return Type{}, err
	}
	if err := ints(in, 3, "cu_seqlens", Var(sym.B).Plus(1)); err != nil {
		return Type{}, err
	}
	if err := ints(in, 4, "context_lens", Var(sym.B)); err != nil {
		return Type{}, err
	}
	if err := ints(in, 5, "block_table", Var(sym.B), Var(sym.NB)); err != nil {
		return q, err
	}
	least := 6
	for _, has := range []bool{a.Gate.Activation != NoActivation, a.Slopes} {
		if has {
			least++
		}
	}
	if len(in) < least || len(in) > least+1 {
		return q, fmt.Errorf("%d operands, slopes %v, gate %s", len(in), a.Slopes, a.Gate.Activation)
	}
	if err := a.Gate.check(a.Gated(in), heads, int64(c.Head)); err != nil {
		return q, err
	}
	sinks, slopes := a.Optional(in)
	for i, v := range []*Value{sinks, slopes} {
		if v == nil {
			continue
		}
		if err := vector([]*Value{v}, 0, []string{"sinks", "slopes"}[i], q.Shape[1]); err != nil {
			return q, err
		}
	}
	return q, nil
}

// check checks the operand that holds the gate of heads of head elements.
func (a GateAttr) check(v *Value, heads, head int64) error {
	if v == nil {
		if a != (GateAttr{}) {
			return fmt.Errorf("columns of no gate: %+v", a)
		}
		return nil
	}
	if err := a.Activation.check(false); err != nil {
		return err
	}
	gate, err := floats([]*Value{v}, 0, "gate", 2)
	if err != nil {
		return err
	}
	if n := gate.Shape.Last(); gate.Shape[0] != Var(sym.T) || a.From < 0 || int64(a.From)+a.Width(heads, head) > n {
		return fmt.Errorf("gate of %d columns from %d in %s", a.Width(heads, head), a.From, gate)
	}
	return nil
}

func inferQKVWrite(in []*Value, attr any, _ Type) (Type, error) {
	t, err := splitQKV(in, attr.(QKVWriteAttr).Heads)
	if err != nil {
		return Type{}, err
	}
	return t, ints(in, 2, "slots", Var(sym.T))
}

func inferRopeWrite(in []*Value, attr any, _ Type) (Type, error) {
	a := attr.(RopeWriteAttr)
	if a.AllHeads || a.NormValues {
		return Type{}, errors.New("there are no norms over all heads, or of values")
	}
	t, err := inferWrite(in, a)
	if err != nil {
		return Type{}, err
	}
	return t, checkFactors(in, 4, a.Rope)
}

func inferHeadNormWrite(in []*Value, attr any, _ Type) (Type, error) {
	a := attr.(RopeWriteAttr)
	t, err := inferWrite(in, a)
	if err != nil {
		return Type{}, err
	}
	queries, keys := 1, 1 // heads that the norm's weight vector spans
	if a.AllHeads {
		queries, keys = a.Heads, in[1].Type.Cache.KVHeads
	}
	if err := vector(in, 4, "query norm", Const(queries*in[1].Type.Cache.Head)); err != nil {
		return Type{}, err
	}
	if err := vector(in, 5, "key norm", Const(keys*in[1].Type.Cache.Head)); err != nil {
		return Type{}, err
	}
	return t, checkFactors(in, 6, a.Rope)
}

func inferLatentWrite(in []*Value, attr any, _ Type) (Type, error) {
	a, o := attr.(LatentWriteAttr), LatentWriteAttr{}.Operands(in)
	c, err := cacheOf(in, 4)
	if err != nil {
		return Type{}, err
	}
	latent, rotated := int64(c.Head-a.Rope.Rotated), int64(a.Rope.Rotated)
	if !c.Latent || latent < 1 {
		return Type{}, fmt.Errorf("%d rotated elements in rows of %s", rotated, in[4])
	}
	if err := errors.Join(checkRope(a.Rope, rotated), epsilon(a.Eps)); err != nil {
		return Type{}, err
	}
	absorbed, err := floats(in, 0, "absorbed", 3)
	if err != nil {
		return Type{}, err
	}
	heads, ok := absorbed.Shape[1].IsConst()
	if err := shapeIs(in[0], "absorbed", Var(sym.T), absorbed.Shape[1], Const(int(latent))); err != nil || !ok {
		return Type{}, errors.Join(err, fmt.Errorf("absorbed (%s) is %s", in[0], absorbed))
	}
	q, err := floats(in, 1, "q", 3)
	if err != nil {
		return Type{}, err
	}
	if !slices.Equal(q.Shape[:2], absorbed.Shape[:2]) || q.Shape.Last() < rotated {
		return Type{}, fmt.Errorf("q (%s) is %s, with %d elements rotated in each of %d heads", in[1], q, rotated, heads)
	}
	all, err := floats(in, 2, "all", 2)
	if err != nil {
		return Type{}, err
	}
	if all.Shape[0] != Var(sym.T) || a.From < 0 || int64(a.From)+int64(c.Head) > all.Shape.Last() {
		return Type{}, fmt.Errorf("columns [%d,%d) of all (%s), %s", a.From, a.From+c.Head, in[2], all)
	}
	if err := vector(in, 3, "gain", Const(int(latent))); err != nil {
		return Type{}, err
	}
	if err := errors.Join(ints([]*Value{o.Positions}, 0, "positions", Var(sym.T)), ints([]*Value{o.Slots}, 0, "slots", Var(sym.T))); err != nil {
		return Type{}, err
	}
	t := TupleOf(TensorOf(absorbed.DType, Var(sym.T), absorbed.Shape[1], Const(c.Head)), StateOf(c))
	return t, checkFactors(in, 7, a.Rope)
}

func inferLatentAttention(in []*Value, attr any, _ Type) (Type, error) {
	a := attr.(LatentAttentionAttr)
	write, _ := a.Parts(in, nil, nil)
	t, err := inferLatentWrite(write, a.Write, Type{})
	if err != nil {
		return Type{}, err
	}
	q := &Value{ID: in[0].ID, Type: t.Elems[0]}
	_, attend := a.Parts(in, q, in[4])
	_, err = inferAttention(attend, a.Attention, Type{})
	return t, err
}

// splitQKV infers the type of Q, [T,heads,D], from operand 0, whose first columns are Q, K and V.
func splitQKV(in []*Value, heads int) (Type, error) {
	qkv, err := floats(in, 0, "qkv", 2)
	if err != nil {
		return Type{}, err
	}
	c, err := cacheOf(in, 1)
	if err != nil {
		return Type{}, err
	}
	if heads < c.KVHeads || heads%c.KVHeads != 0 {
		return Type{}, fmt.Errorf("%d query heads over %d KV heads", heads, c.KVHeads)
	}
	if least := int64((heads + 2*c.KVHeads) * c.Head); qkv.Shape[0] != Var(sym.T) || qkv.Shape.Last() < least {
		return Type{}, mismatch("qkv", in[0], Shape{Var(sym.T), Const(int(least))})
	}
	return TupleOf(TensorOf(qkv.DType, Var(sym.T), Const(heads), Const(c.Head)), StateOf(c)), nil
}

func inferWrite(in []*Value, a RopeWriteAttr) (Type, error) {
	t, err := splitQKV(in, a.Heads)
	if err != nil {
		return Type{}, err
	}
	if err := checkRope(a.Rope, int64(in[1].Type.Cache.Head)); err != nil {
		return Type{}, err
	}
	if err := epsilon(a.Eps); err != nil {
		return Type{}, err
	}
	if err := ints(in, 2, "positions", Var(sym.T)); err != nil {
		return Type{}, err
	}
	return t, ints(in, 3, "slots", Var(sym.T))
}

// inferAttentionWrite infers a cache write fused with the attention over its result.
func inferAttentionWrite(op Op) func(in []*Value, attr any, _ Type) (Type, error) {
	write := inferRopeWrite
	if op == OpHeadNormRopeKVWriteAttention {
		write = inferHeadNormWrite
	}
	return func(in []*Value, attr any, _ Type) (Type, error) {
		a := attr.(AttentionWriteAttr)
		o, err := a.checked(in, op)
		if err != nil {
			return Type{}, err
		}
		t, err := write(o.Write(), a.Write, Type{})
		if err != nil {
			return Type{}, err
		}
		q := &Value{ID: in[0].ID, Type: t.Elems[0]}
		_, err = inferAttention(o.Attend(q, o.Cache), a.Attention, Type{})
		return t, err
	}
}

// checked is Operands of the right number of operands.
func (a AttentionWriteAttr) checked(in []*Value, op Op) (AttentionWriteOperands, error) {
	if len(in) != len(a.fields(op, new(AttentionWriteOperands))) {
		return AttentionWriteOperands{}, fmt.Errorf("%d operands for %+v", len(in), a)
	}
	return a.Operands(in, op), nil
}

// inferQueryAttention infers attention fused with norm and RoPE of its queries.
func inferQueryAttention(in []*Value, attr any, _ Type) (Type, error) {
	a := attr.(AttentionWriteAttr)
	o, err := a.checked(in, OpHeadNormRopeAttention)
	if err != nil {
		return Type{}, err
	}
	x, err := floats(in, 0, "q", 2)
	if err != nil {
		return Type{}, err
	}
	c, err := cacheOf(in, 1)
	if err != nil {
		return Type{}, err
	}
	if a.Write != (RopeWriteAttr{Rope: a.Write.Rope, Heads: a.Write.Heads, Eps: a.Write.Eps}) || x.Shape[1] != Const(a.Write.Heads*c.Head) {
		return Type{}, fmt.Errorf("q (%s) is %s, for %+v", in[0], x, a.Write)
	}
	if err := checkRope(a.Write.Rope, int64(c.Head)); err != nil {
		return Type{}, err
	}
	if err := epsilon(a.Write.Eps); err != nil {
		return Type{}, err
	}
	if err := vector([]*Value{o.QNorm}, 0, "query norm", Const(c.Head)); err != nil {
		return Type{}, err
	}
	if o.Factors != nil {
		if err := checkFactors([]*Value{o.Factors}, 0, a.Write.Rope); err != nil {
			return Type{}, err
		}
	}
	q := &Value{ID: in[0].ID, Type: TensorOf(x.DType, x.Shape[0], Const(a.Write.Heads), Const(c.Head))}
	return inferAttention(o.Attend(q, o.Cache), a.Attention, Type{})
}
