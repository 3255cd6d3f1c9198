package passes

import (
	"errors"
	"fmt"
	"slices"

	"github.com/smelt-ml/smelt/fusion"
	"github.com/smelt-ml/smelt/ir"
)

// ErrUnsupported is wrapped by errors about an op that the target lacks and that has no
// decomposition, and about a weight in a format that the target cannot decode.
var ErrUnsupported = errors.New("the target has no kernel")

// legalise decomposes fused ops that the target lacks for their types, and returns an error
// about source ops and weight formats that it lacks.
func legalise(f *ir.Func, t *ir.Target, s ir.Steps) (int, error) {
	n, err := fusion.Decompose(f, func(v *ir.Value) bool { return !supported(t, s, v) && v.Op.CanDecompose() })
	if err != nil {
		return n, err
	}
	if n > 0 { // decomposition may leave concats whose parts are read separately
		if _, err := views(f, t, s); err != nil {
			return n, err
		}
		f.Sweep()
	}
	for _, v := range f.Values {
		if supported(t, s, v) {
			continue
		}
		if w := unread(t, v); w != nil {
			return n, fmt.Errorf("%s: %w that reads %s: %s", t.Name, ErrUnsupported, w.Name(), w.Type)
		}
		return n, fmt.Errorf("%s: %w for %s", t.Name, ErrUnsupported, v.LongString())
	}
	return n, nil
}

// supported reports whether the target computes v in one dispatch, or in none.
func supported(t *ir.Target, s ir.Steps, v *ir.Value) bool {
	if v.Op.IsLeaf() || v.Op.IsAlias() {
		return true
	}
	if t.Row(v) == nil || unread(t, v) != nil {
		return false
	}
	switch v.Op {
	case ir.OpFusedLinear:
		a := v.Attr.(ir.LinearAttr)
		return (a.Norm == ir.NoNorm || slices.Contains(t.Norms(s), a.Norm)) &&
			(!a.Gather || len(t.Norms(s)) > 0 && t.Gathers) && (!a.Gated || t.Gated)
	case ir.OpRoutedLinear:
		a := v.Attr.(ir.RoutedAttr).Linear
		return (a.Norm == ir.NoNorm || slices.Contains(t.Norms(s), a.Norm)) && (!a.Gated || t.Gated)
	case ir.OpHeadNormRopeAttention:
		return t.TakesHeads(v.Args[1].Type.Cache)
	case ir.OpAttention:
		gated := v.Attr.(ir.AttentionAttr).Gate != ir.GateAttr{}
		return t.TakesHeads(v.Args[1].Type.Cache) && !(gated && t.XSplit)
	case ir.OpQKVWrite, ir.OpRopeQKVWrite, ir.OpHeadNormRopeKVWrite, ir.OpLatentWrite, ir.OpLatentAttention, ir.OpRopeQKVWriteAttention, ir.OpHeadNormRopeKVWriteAttention:
		return t.TakesHeads(v.Type.Elems[1].Cache)
	}
	return true
}

// unread returns a weight of v that its kernels cannot decode, or nil.
func unread(t *ir.Target, v *ir.Value) *ir.Value {
	row := t.Row(v)
	for _, w := range v.Matrices() {
		if row != nil && !row.Weights.Has(w.Type.DType) {
			return w
		}
	}
	return nil
}
