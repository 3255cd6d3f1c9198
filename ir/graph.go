package ir

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dominikbraun/graph"
	"github.com/samber/lo"
)

// store adapts a Func to the graph library: a directed graph whose edges run
// from operand to user, with the Func's own values as vertices. Two operand slots of
// one user that hold the same value share an edge.
type store struct {
	values  []*Value
	byID    map[ID]*Value
	edges   map[[2]ID]struct{}
	ordered []graph.Edge[ID]
}

// Graph returns a read-only view of f for the algorithms of the graph library. The
// compiler uses them for error messages only, since several are quadratic.
func (f *Func) Graph() graph.Graph[ID, *Value] {
	s := &store{
		values: f.Values,
		byID:   lo.KeyBy(f.Values, func(v *Value) ID { return v.ID }),
		edges:  make(map[[2]ID]struct{}),
	}
	for _, v := range f.Values {
		for _, a := range v.Args {
			key := [2]ID{a.ID, v.ID}
			if _, ok := s.edges[key]; !ok && s.byID[a.ID] == a {
				s.edges[key] = struct{}{}
				s.ordered = append(s.ordered, graph.Edge[ID]{
					Source: a.ID, Target: v.ID, Properties: graph.EdgeProperties{Attributes: map[string]string{}},
				})
			}
		}
	}
	return graph.NewWithStore(func(v *Value) ID { return v.ID }, graph.Store[ID, *Value](s), graph.Directed())
}

// cycleError names the members of one cycle, or returns nil if there is none.
func (f *Func) cycleError() error {
	components, err := graph.StronglyConnectedComponents(f.Graph())
	if err != nil {
		return fmt.Errorf("looking for a cycle: %w", err)
	}
	for _, c := range components {
		if len(c) < 2 {
			continue
		}
		slices.Sort(c)
		members := lo.FilterMap(f.Values, func(v *Value, _ int) (string, bool) {
			_, in := slices.BinarySearch(c, v.ID)
			return v.LongString(), in
		})
		return fmt.Errorf("these values form a cycle: %s", strings.Join(members, "; "))
	}
	for _, v := range f.Values {
		if slices.Contains(v.Args, v) {
			return fmt.Errorf("%s uses itself", v.LongString())
		}
	}
	return nil
}

func (s *store) ListVertices() ([]ID, error) {
	return lo.Map(s.values, func(v *Value, _ int) ID { return v.ID }), nil
}

func (s *store) VertexCount() (int, error) { return len(s.values), nil }

func (s *store) Vertex(id ID) (*Value, graph.VertexProperties, error) {
	if v, ok := s.byID[id]; ok {
		return v, graph.VertexProperties{Attributes: map[string]string{}}, nil
	}
	return nil, graph.VertexProperties{}, graph.ErrVertexNotFound
}

func (s *store) Edge(from, to ID) (graph.Edge[ID], error) {
	if _, ok := s.edges[[2]ID{from, to}]; ok {
		return graph.Edge[ID]{Source: from, Target: to}, nil
	}
	return graph.Edge[ID]{}, graph.ErrEdgeNotFound
}

func (s *store) ListEdges() ([]graph.Edge[ID], error) { return s.ordered, nil }

// errReadOnly is returned by every method that would change the Func.
var errReadOnly = fmt.Errorf("the graph view of a Func is read-only")

func (*store) AddVertex(ID, *Value, graph.VertexProperties) error { return errReadOnly }
func (*store) RemoveVertex(ID) error                              { return errReadOnly }
func (*store) AddEdge(ID, ID, graph.Edge[ID]) error               { return errReadOnly }
func (*store) UpdateEdge(ID, ID, graph.Edge[ID]) error            { return errReadOnly }
func (*store) RemoveEdge(ID, ID) error                            { return errReadOnly }
