package passes

import (
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// maxArgs bounds the operands of any op of the source stage.
const maxArgs = 9

// identity is the map key of a value's computation; cse compares types separately.
type identity struct {
	op   ir.Op
	attr any
	args [maxArgs]ir.ID
	// layer is that of reads of a cache, which are fused into the attention of their own layer: two
	// layers may read one cache.
	layer int
}

// cse replaces equal values by the first of them in program order. Ops that write a
// cache are never equal, since each version is replaced once.
func cse(f *ir.Func, _ *ir.Target, _ ir.Steps) (int, error) {
	seen := make(map[identity][]*ir.Value, len(f.Values))
	same := make(map[*ir.Value]*ir.Value)
	for _, v := range f.Values {
		key := identity{op: v.Op, attr: v.Attr}
		if v.Op == ir.OpCacheRead {
			key.layer = v.Layer
		}
		for i, a := range v.Args {
			if first := same[a]; first != nil {
				a = first
				v.Args[i] = first
			}
			key.args[i] = a.ID
		}
		i := slices.IndexFunc(seen[key], func(u *ir.Value) bool { return u.Type.Equal(v.Type) })
		if i < 0 {
			seen[key] = append(seen[key], v)
			continue
		}
		same[v] = seen[key][i]
	}
	for i, r := range f.Results {
		if first := same[r.Value]; first != nil {
			f.Results[i].Value = first
		}
	}
	f.Values = slices.DeleteFunc(f.Values, func(v *ir.Value) bool { return same[v] != nil })
	return len(same), nil
}
