package fusion

import (
	"fmt"
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
)

// index holds what the engine derives from a graph and updates at each rewrite.
// All tables are indexed by value ID.
type index struct {
	f        *ir.Func
	users    [][]*ir.Value // one entry for each operand slot
	returned []bool        // results of the graph
	replaced []bool
	rank     []int32     // at most the rank of every reader, so that values ranked below v do not depend on v
	region   []*ir.Value // the values that the current match removes
	mark     []uint32    // mark[id] == round: in region; round+1: visited
	round    uint32
}

func newIndex(f *ir.Func) *index {
	g := &index{f: f}
	g.grow()
	// All lists share one backing array; append reallocates a list that outgrows its part.
	uses := f.Uses()
	total := 0
	for _, n := range uses {
		total += int(n)
	}
	backing := make([]*ir.Value, total)
	for id, n := range uses {
		g.users[id], backing = backing[0:0:n], backing[n:]
	}
	for i, v := range f.Values {
		g.rank[v.ID] = int32(i)
		g.read(v)
	}
	for _, r := range f.Results {
		g.returned[r.Value.ID] = true
	}
	return g
}

func (g *index) grow() {
	n := int(g.f.MaxID()) - len(g.users)
	g.users = append(g.users, make([][]*ir.Value, n)...)
	g.returned = append(g.returned, make([]bool, n)...)
	g.replaced = append(g.replaced, make([]bool, n)...)
	g.rank = append(g.rank, make([]int32, n)...)
	g.mark = append(g.mark, make([]uint32, n)...)
}

func (g *index) read(v *ir.Value) {
	for _, a := range v.Args {
		g.users[a.ID] = append(g.users[a.ID], v)
	}
}

func (g *index) dead(v *ir.Value) bool { return g.replaced[v.ID] }

func (g *index) inRegion(v *ir.Value) bool { return g.mark[v.ID] == g.round }

// admits checks every guard of the package comment for a complete match.
func (g *index) admits(r *Rule, m Match) bool {
	g.round += 2
	g.region = g.region[:0]
	for _, y := range r.Yields {
		g.collect(y, m)
	}
	if v := m[r.Removes]; v != nil && (g.returned[v.ID] || !r.Removable(r.target, v, g.users[v.ID])) {
		return false
	}
	for p, v := range m {
		if v != nil && !p.interior() && g.inRegion(v) {
			return false // the replacement would read what it replaces
		}
		if n := len(p.args); v != nil && n > 0 && p.args[n-1].kind == theRest && slices.ContainsFunc(v.Args[min(n-1, len(v.Args)):], g.inRegion) {
			return false // likewise, through operands that no pattern captures
		}
	}
	precision := dtype.Invalid
	for _, v := range g.region {
		if t := v.Type; t.Kind == ir.Tensor && t.DType.IsFloat() {
			if precision != dtype.Invalid && precision != t.DType {
				return false
			}
			precision = t.DType
		}
		if !yielded(r, m, v) && g.escapes(v) {
			return false
		}
	}
	// With a single yield every path out of the region passes through it, so that a path
	// back would be a cycle of the graph.
	return len(r.Yields) == 1 || g.convex()
}

// collect adds the values that p and the patterns below it matched to the region.
func (g *index) collect(p *Pat, m Match) {
	if v := m[p]; v != nil && p.interior() && !g.inRegion(v) {
		g.mark[v.ID] = g.round
		g.region = append(g.region, v)
	}
	for _, a := range p.args {
		g.collect(a, m)
	}
}

func yielded(r *Rule, m Match, v *ir.Value) bool {
	return slices.ContainsFunc(r.Yields, func(y *Pat) bool { return m[y] == v })
}

// escapes reports whether anything outside the region reads v.
func (g *index) escapes(v *ir.Value) bool {
	return g.returned[v.ID] ||
		slices.ContainsFunc(g.users[v.ID], func(u *ir.Value) bool { return !g.inRegion(u) })
}

// convex reports whether no operand of the region depends on the region. It prunes
// the search by rank.
func (g *index) convex() bool {
	lowest := g.rank[g.region[0].ID]
	for _, v := range g.region {
		lowest = min(lowest, g.rank[v.ID])
	}
	var stack []*ir.Value
	push := func(args []*ir.Value) {
		for _, a := range args {
			if g.mark[a.ID] < g.round && g.rank[a.ID] >= lowest {
				g.mark[a.ID] = g.round + 1
				stack = append(stack, a)
			}
		}
	}
	for _, v := range g.region {
		push(v.Args)
	}
	for len(stack) > 0 {
		v := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if slices.ContainsFunc(v.Args, g.inRegion) {
			return false
		}
		push(v.Args)
	}
	return true
}

// rewrite replaces the region of the last match admitted.
func (g *index) rewrite(r *Rule, m Match) error {
	first := len(g.f.Values)
	news, err := emit(g.f, m[r.Yields[0]].Layer, func(e *Emitter) []*ir.Value { return r.Build(e, m) })
	if err != nil {
		return err
	}
	if len(news) != len(r.Yields) {
		return fmt.Errorf("%d values where %d are to be replaced", len(news), len(r.Yields))
	}
	g.grow()
	for _, v := range g.f.Values[first:] {
		if slices.ContainsFunc(v.Args, g.inRegion) {
			return fmt.Errorf("%s reads a value that it replaces", v.LongString())
		}
		g.read(v)
		for _, a := range v.Args {
			g.rank[v.ID] = max(g.rank[v.ID], g.rank[a.ID])
		}
	}
	for i, y := range r.Yields {
		old := m[y]
		if !news[i].Type.Equal(old.Type) {
			return fmt.Errorf("%s in place of %s", news[i].LongString(), old.LongString())
		}
		g.redirect(old, news[i])
	}
	for _, v := range g.region {
		g.replaced[v.ID] = true
		for _, a := range v.Args {
			g.users[a.ID] = slices.DeleteFunc(g.users[a.ID], g.inRegion)
		}
	}
	return nil
}

// redirect makes the readers of one value read another.
func (g *index) redirect(old, new *ir.Value) {
	for _, u := range g.users[old.ID] {
		if g.inRegion(u) {
			continue
		}
		for i, a := range u.Args {
			if a == old { // the list names a reader once for each slot
				u.Args[i] = new
				g.users[new.ID] = append(g.users[new.ID], u)
				break
			}
		}
		g.raise(u, g.rank[new.ID])
	}
	g.users[old.ID] = nil
	if g.returned[old.ID] {
		g.returned[new.ID] = true
		for i := range g.f.Results {
			if g.f.Results[i].Value == old {
				g.f.Results[i].Value = new
			}
		}
	}
}

// raise restores the order of ranks after v got an operand of that rank.
func (g *index) raise(v *ir.Value, rank int32) {
	if g.rank[v.ID] >= rank {
		return
	}
	g.rank[v.ID] = rank
	for _, u := range g.users[v.ID] {
		g.raise(u, rank)
	}
}
