package lower

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/dominikbraun/graph"
	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/lower/plan"
)

// randomPhase returns n dispatches that each bind up to three of a few small slots and caches.
func randomPhase(rng *rand.Rand, n int) *phase {
	p := &phase{tables: &tables{plan: &plan.Plan{Buffers: []plan.Buffer{{Kind: plan.Arena}, {Kind: plan.CacheK}, {Kind: plan.Weight}}}}}
	for range 2 + rng.IntN(6) {
		p.slots = append(p.slots, slot{bytes: int64(1 + rng.IntN(500))})
	}
	for i := range n {
		d := plan.Dispatch{Kernel: fmt.Sprint(i)}
		for j := range 1 + rng.IntN(3) {
			b := plan.Binding{Index: uint32(j), Bytes: plan.Number(64), Write: rng.IntN(2) == 0}
			b.Read = !b.Write
			if pick := rng.IntN(len(p.slots) + 2); pick < len(p.slots) {
				b.Bytes = plan.Number(p.slots[pick].bytes)
				p.fixups = append(p.fixups, fixup{i, j, pick})
			} else {
				b.Buffer = int32(1 + pick - len(p.slots))
				b.Write = b.Write && b.Buffer == 1
			}
			d.Bindings = append(d.Bindings, b)
		}
		p.out.Dispatches = append(p.out.Dispatches, d)
	}
	return p
}

// hazards lists the pairs of dispatches, in order, that must not run concurrently.
func hazards(p *phase) (pairs [][2]int) {
	for i := range p.out.Dispatches {
		for j := range i {
			if conflict(p.accesses(&p.out.Dispatches[j]), p.accesses(&p.out.Dispatches[i])) {
				pairs = append(pairs, [2]int{j, i})
			}
		}
	}
	return pairs
}

// separated reports whether every pair of dispatches has a barrier between them. Bit i of set is a
// barrier before dispatch i.
func separated(pairs [][2]int, set uint) bool {
	for _, h := range pairs {
		if set>>(h[0]+1)<<(h[0]+1)&(1<<(h[1]+1)-1) == 0 {
			return false
		}
	}
	return true
}

func barrierSet(p *phase) (set uint) {
	for i, d := range p.out.Dispatches {
		if d.Barrier {
			set |= 1 << i
		}
	}
	return set
}

func TestFewestBarriers(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		n := 1 + rng.IntN(10)
		p := randomPhase(rng, n)
		p.planArena()
		p.barriers()
		pairs, set := hazards(p), barrierSet(p)
		require.True(t, separated(pairs, set))
		for other := uint(0); other < 1<<n; other++ {
			if bits.OnesCount(other) < bits.OnesCount(set) {
				require.False(t, separated(pairs, other), "%b would do instead of %b", other, set)
			}
		}
	}
}

// The hazards that follow from no others are what barriers are for.
func requireBarriersMatchHazards(t *testing.T, p *phase) {
	t.Helper()
	g := graph.New(graph.IntHash, graph.Directed(), graph.Acyclic())
	for i := range p.out.Dispatches {
		require.NoError(t, g.AddVertex(i))
	}
	for _, h := range hazards(p) {
		require.NoError(t, g.AddEdge(h[0], h[1]))
	}
	reduced, err := graph.TransitiveReduction(g)
	require.NoError(t, err)
	edges, err := reduced.Edges()
	require.NoError(t, err)

	before := make([]int, len(p.out.Dispatches)+1) // barriers before each dispatch
	for i, d := range p.out.Dispatches {
		before[i+1] = before[i]
		if d.Barrier {
			before[i+1]++
		}
	}
	separates := make([]bool, len(p.out.Dispatches))
	for _, e := range edges {
		require.Greater(t, before[e.Target+1], before[e.Source+1], "no barrier between %d and %d", e.Source, e.Target)
		if before[e.Target+1] == before[e.Source+1]+1 {
			for i := e.Source + 1; i <= e.Target; i++ {
				separates[i] = separates[i] || p.out.Dispatches[i].Barrier
			}
		}
	}
	for i, d := range p.out.Dispatches {
		require.Equal(t, d.Barrier, separates[i], "dispatch %d waits for nothing", i)
	}
}

func TestBarriersMatchHazards(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		p := randomPhase(rng, 1+rng.IntN(40))
		p.planArena()
		p.barriers()
		requireBarriersMatchHazards(t, p)
	}
}

// Reordering keeps the order of every pair that must not run concurrently, and needs as many
// barriers as the longest chain of such pairs has links.
func TestReorder(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 400 {
		p := randomPhase(rng, 1+rng.IntN(30))
		for i := range p.slots { // apart from each other
			p.slots[i].offset = int64(i) << 20
		}
		place := func() {
			for _, f := range p.fixups {
				p.out.Dispatches[f.dispatch].Bindings[f.binding].Offset = p.slots[f.slot].offset
			}
		}
		place()
		want := map[[2]string]bool{}
		chain, longest := make([]int, len(p.out.Dispatches)), 0
		for _, h := range hazards(p) {
			want[[2]string{fmt.Sprint(h[0]), fmt.Sprint(h[1])}] = true
			chain[h[1]] = max(chain[h[1]], chain[h[0]]+1)
			longest = max(longest, chain[h[1]])
		}
		epochs := p.epochs()
		require.Equal(t, chain, epochs)
		p.reorder(epochs)
		for _, h := range hazards(p) {
			require.Contains(t, want, [2]string{p.out.Dispatches[h[0]].Kernel, p.out.Dispatches[h[1]].Kernel})
		}
		require.Len(t, hazards(p), len(want))
		place() // the fixups moved along
		require.Len(t, hazards(p), len(want))
		p.barriers()
		require.Equal(t, longest, bits.OnesCount(barrierSet(p)))
	}
}

// No two slots that live at the same time overlap, and the arena spans them.
func TestPlaceApart(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		p := randomPhase(rng, 1+rng.IntN(60))
		p.planArena()
		touched := make([][2]int, len(p.slots))
		for i := range touched {
			touched[i] = [2]int{len(p.out.Dispatches), -1}
		}
		for _, f := range p.fixups {
			touched[f.slot][0], touched[f.slot][1] = min(touched[f.slot][0], f.dispatch), max(touched[f.slot][1], f.dispatch)
			require.Equal(t, p.slots[f.slot].offset, p.out.Dispatches[f.dispatch].Bindings[f.binding].Offset)
		}
		for i := range p.slots {
			if touched[i][1] < 0 {
				continue
			}
			a := p.slots[i]
			require.LessOrEqual(t, a.offset+a.bytes, p.out.ArenaBytes)
			for j := range i {
				b := p.slots[j]
				if touched[i][0] <= touched[j][1] && touched[j][0] <= touched[i][1] {
					require.True(t, a.offset+a.bytes <= b.offset || b.offset+b.bytes <= a.offset, "%+v and %+v", a, b)
				}
			}
		}
		require.GreaterOrEqual(t, p.out.ArenaBytes, p.out.MinArenaBytes)
	}
}

// Lifetimes are derived from the Plan alone and agree with the memory plan: no two overlap, the
// peak is the lower bound, and every read is of the value that was written there last.
func TestLifetimes(t *testing.T) {
	everyPlan(t, func(t *testing.T, p *plan.Plan, ph *plan.Phase) {
		lifetimes := p.Lifetimes(ph)
		live := make([]int64, len(ph.Dispatches))
		at := make([][]plan.Lifetime, len(ph.Dispatches))
		for _, l := range lifetimes {
			require.LessOrEqual(t, l.First, l.Last)
			require.LessOrEqual(t, l.Offset+l.Bytes, ph.ArenaBytes)
			for i := l.First; i <= l.Last; i++ {
				live[i] += roundUp(l.Bytes, arenaAlign)
				for _, o := range at[i] {
					inPlace := o.First == l.First || o.Last == l.First || l.Last == o.First
					require.True(t, inPlace || l.Offset+l.Bytes <= o.Offset || o.Offset+o.Bytes <= l.Offset, "%s: %+v and %+v", ph.Name, l, o)
				}
				at[i] = append(at[i], l)
			}
		}
		var peak int64
		for _, n := range live {
			peak = max(peak, n)
		}
		require.GreaterOrEqual(t, peak, ph.MinArenaBytes, ph.Name) // an in-place value counts twice here
	})
}

// A read depends on the last writers of its bytes, not on earlier ones.
func TestDependencies(t *testing.T) {
	bind := func(offset, bytes int64, write bool) plan.Binding {
		return plan.Binding{Offset: offset, Bytes: plan.Number(bytes), Write: write, Read: !write}
	}
	p := &plan.Plan{Buffers: []plan.Buffer{{Kind: plan.Arena}}}
	ph := &plan.Phase{Dispatches: []plan.Dispatch{
		{Bindings: []plan.Binding{bind(0, 100, true)}},
		{Bindings: []plan.Binding{bind(0, 60, true)}},
		{Bindings: []plan.Binding{bind(0, 60, false), bind(200, 10, true)}},
		{Bindings: []plan.Binding{bind(50, 20, false)}},
		{Bindings: []plan.Binding{bind(60, 40, false), bind(200, 10, false)}},
	}}
	require.Equal(t, [][]int{nil, nil, {1}, {0, 1}, {0, 2}}, p.Dependencies(ph))
}
