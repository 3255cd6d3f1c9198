package passes

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
)

// wantedRows moves the gather of the rows that need logits as early as possible: after the
// last attention of a prompt nothing reads the other rows.
//
//	gather_rows(f(x, y, w), rows)  →  f(gather_rows(x, rows), gather_rows(y, rows), w)
//
// where f keeps rows ([ir.Op.KeepsRows]) and all readers of f(x, y, w) read these rows only.
// It prefers a place that needs one gather, since one product fewer does not pay for another
// dispatch. It leaves steps that need logits of most rows, graphs in which no product would
// shrink, and short steps, in which the head's product gathers rows itself.
func wantedRows(f *ir.Func, t *ir.Target, s ir.Steps) (int, error) {
	gather := onlyGather(f)
	if gather == nil || len(t.Norms(s)) > 0 || 2*s.Rows > s.Tokens {
		return 0, nil
	}
	early := readByRows(f, gather)
	if !hasProduct(early) {
		return 0, nil
	}
	early = behindOne(early, gather.Args[1])
	gathered := make(map[*ir.Value]*ir.Value)
	for _, v := range early {
		for i, x := range v.Args {
			if !v.Op.KeepsRows(i) || slices.Contains(early, x) {
				continue
			}
			if gathered[x] == nil {
				rows, err := f.Emit(ir.OpGatherRows, nil, gather.Layer, x, gather.Args[1])
				if err != nil {
					return 0, err
				}
				gathered[x] = rows
			}
			v.Args[i] = gathered[x]
		}
		v.Type = withRows(v.Type) // Infer rejects reshapes, whose type is explicit
	}
	f.Replace(map[*ir.Value]*ir.Value{gather: gather.Args[0]})
	f.Sweep()
	return len(early), f.Sort()
}

// onlyGather returns the graph's gather_rows, or nil if there is none or more than one.
func onlyGather(f *ir.Func) (gather *ir.Value) {
	for _, v := range f.Values {
		if v.Op != ir.OpGatherRows {
			continue
		}
		if gather != nil {
			return nil
		}
		gather = v
	}
	return gather
}

// readByRows returns, in program order, the values of which only the gathered rows are read and
// which can be computed from these rows of their operands.
func readByRows(f *ir.Func, gather *ir.Value) []*ir.Value {
	stays := make(map[*ir.Value]bool)
	for {
		early := leadsTo(f, gather, stays)
		settled := true
		for _, v := range f.Values {
			if early[v] && !movable(v, early, gather.Args[1]) {
				delete(early, v)
				stays[v] = true
				settled = false
			}
		}
		if settled {
			return slices.DeleteFunc(slices.Clone(f.Values), func(v *ir.Value) bool { return !early[v] })
		}
	}
}

// leadsTo returns the values that keep rows and whose only readers are the gather and each
// other. Values in stays read all rows.
func leadsTo(f *ir.Func, gather *ir.Value, stays map[*ir.Value]bool) map[*ir.Value]bool {
	whole := make(map[*ir.Value]bool)
	for _, r := range f.Results {
		whole[r.Value] = true
	}
	early := map[*ir.Value]bool{}
	for _, v := range slices.Backward(f.Values) {
		if early[v] && (whole[v] || stays[v] || !keepsRows(v)) {
			delete(early, v)
		}
		for i, x := range v.Args {
			if v == gather && i == 0 || early[v] && v.Op.KeepsRows(i) {
				early[x] = true
			} else {
				whole[x] = true
			}
		}
	}
	return early
}

// keepsRows reports whether v has a row per token, each computed from one row of its operands.
func keepsRows(v *ir.Value) bool {
	return v.Op.KeepsRows(0) && perToken(v.Type) && (v.Type.Kind == ir.Tuple || len(v.Type.Shape) > 1)
}

// movable reports whether v can be computed from some rows of its operands: each operand with
// rows must be in early, or be one that gather_rows accepts.
func movable(v *ir.Value, early map[*ir.Value]bool, rows *ir.Value) bool {
	for i, x := range v.Args {
		switch {
		case perToken(x.Type) != v.Op.KeepsRows(i):
			return false
		case v.Op.KeepsRows(i) && !early[x] && !gathers(x, rows):
			return false
		}
	}
	return true
}

// gathers reports whether gather_rows accepts x and rows.
func gathers(x, rows *ir.Value) bool {
	_, err := ir.OpGatherRows.Infer([]*ir.Value{x, rows}, nil)
	return err == nil
}

// behindOne returns the values after the first one whose rows alone all later values depend on,
// or all values if no product follows such a value.
func behindOne(early []*ir.Value, rows *ir.Value) []*ir.Value {
	first := len(early) // the earliest value that is read after i
	cut := -1
	for i, v := range slices.Backward(early) {
		if first == i && gathers(v, rows) && hasProduct(early[i+1:]) {
			cut = i
		}
		for j, x := range v.Args {
			if v.Op.KeepsRows(j) {
				first = min(first, slices.Index(early, x)) // −1, if it is not among them
			}
		}
	}
	return early[cut+1:]
}

func hasProduct(values []*ir.Value) bool {
	return slices.ContainsFunc(values, func(v *ir.Value) bool { return v.Op.Category() == ir.ProductOps })
}

// perToken reports whether the outermost axis of a tensor, or of all tensors of a tuple, is the
// step's tokens.
func perToken(t ir.Type) bool {
	if t.Kind == ir.Tuple {
		return !slices.ContainsFunc(t.Elems, func(e ir.Type) bool { return !perToken(e) })
	}
	return t.Kind == ir.Tensor && t.Shape[0] == ir.Var(sym.T)
}

// withRows returns t with R, the rows of logits, as its outermost axis.
func withRows(t ir.Type) ir.Type {
	t.Shape, t.Elems = slices.Clone(t.Shape), slices.Clone(t.Elems)
	for i, e := range t.Elems {
		t.Elems[i] = withRows(e)
	}
	if t.Kind == ir.Tensor {
		t.Shape[0] = ir.Var(sym.R)
	}
	return t
}
