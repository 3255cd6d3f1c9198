package passes

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// narrow changes activations from float to the target's type for the step. These stay float:
//
//   - all activations of steps of few tokens, where the target's kernels take floats,
//   - the residual stream: embeddings, sums, products that add a residual,
//   - results of the graph, logits above all,
//   - attention in source ops: keys and values read from a cache, scores and
//     their softmax.
//
// Most kernels read and write one type (RoPE, activations, attention, moves, …), so their
// operands and results form one class of equal type. Products may read one type and write
// another and separate classes; norms may narrow and may not widen, so that no cast is
// needed. A norm inside a product of many tokens rounds as a separate norm would.
func narrow(f *ir.Func, t *ir.Target, s ir.Steps) (int, error) {
	if t.Act == dtype.F32 || t.ActOf(s.Tokens) == dtype.F32 && takesFloat(f, t) {
		return 0, nil
	}
	p := precision{parent: make([]ir.ID, f.MaxID()), wide: make([]bool, f.MaxID())}
	for id := range p.parent {
		p.parent[id] = ir.ID(id)
	}
	for _, v := range f.Values {
		p.constrain(v)
	}
	for _, r := range f.Results {
		p.widen(r.Value)
	}
	for changed := true; changed; {
		changed = false
		for _, v := range slices.Backward(f.Values) {
			if (v.Op == ir.OpRMSNorm || v.Op == ir.OpLayerNorm) && p.isWide(v) && !p.isWide(v.Args[0]) {
				p.widen(v.Args[0])
				changed = true
			}
		}
	}
	changes := 0
	for _, v := range f.Values {
		if a, ok := v.Attr.(ir.LinearAttr); ok && a.Norm != ir.NoNorm && s.Tokens > t.FewTokens {
			a.Narrow = true
			v.Attr = a
			changes++
		}
		if v.Op.IsLeaf() || p.isWide(v) {
			continue
		}
		switch {
		case v.Type.Kind == ir.Tensor && v.Type.DType == dtype.F32:
			v.Type.DType = t.Act
			changes++
		case v.Type.Kind == ir.Tuple:
			v.Type.Elems = slices.Clone(v.Type.Elems)
			for i, e := range v.Type.Elems {
				if e.Kind == ir.Tensor && e.DType == dtype.F32 {
					v.Type.Elems[i].DType = t.Act
					changes++
				}
			}
		}
	}
	return changes, nil
}

// takesFloat reports whether the target's kernels that read or write the caches of f have float
// activations: there are none for caches in BF16 or of the x-split layout.
func takesFloat(f *ir.Func, t *ir.Target) bool {
	return !slices.ContainsFunc(f.Values, func(v *ir.Value) bool {
		return v.Types().Cache != dtype.Invalid && t.Has(v.Op) && t.Row(v) == nil
	})
}

// precision partitions values into classes of one type each, by union-find, and
// records the classes that stay float. Its tables are indexed by ID.
type precision struct {
	parent []ir.ID
	wide   []bool
}

func (p *precision) class(v *ir.Value) ir.ID {
	id := v.ID
	for p.parent[id] != id {
		p.parent[id] = p.parent[p.parent[id]]
		id = p.parent[id]
	}
	return id
}

func (p *precision) isWide(v *ir.Value) bool { return p.wide[p.class(v)] }

func (p *precision) widen(v *ir.Value) { p.wide[p.class(v)] = true }

func (p *precision) join(v, u *ir.Value) {
	a, b := p.class(v), p.class(u)
	p.parent[b] = a
	p.wide[a] = p.wide[a] || p.wide[b]
}

// constrain records the constraints of v's kernels: the op table's shared and float columns,
// and float for products with a residual or a weighted sum.
func (p *precision) constrain(v *ir.Value) {
	var first *ir.Value // of those that share a type
	if v.Type.Kind != ir.State {
		first = v
	}
	for i, a := range v.Args {
		if !v.Op.SharesType(i) {
			continue
		}
		if first == nil {
			first = a
		}
		p.join(first, a)
	}
	if v.Op.StaysFloat() {
		p.widen(v)
	}
	switch a := v.Attr.(type) {
	case ir.AttentionAttr:
		if gate := a.Gated(v.Args); gate != nil {
			p.join(v, gate)
		}
	case ir.AttentionWriteAttr:
		if gate := a.Operands(v.Args, v.Op).Gate; gate != nil {
			p.join(v, gate)
		}
	case ir.LinearAttr:
		if o := a.Operands(v.Args); o.Gate != nil || o.Residual != nil {
			p.widen(v)
			for _, x := range []*ir.Value{o.Gate, o.Residual} {
				if x != nil {
					p.widen(x)
				}
			}
		}
	case ir.RoutedAttr: // the weights of results stay float, like their sum
		if o := a.Operands(v.Args); a.Mixed {
			p.widen(v)
			p.widen(o.Mix)
			if o.Residual != nil {
				p.widen(o.Residual)
			}
		}
	}
}
