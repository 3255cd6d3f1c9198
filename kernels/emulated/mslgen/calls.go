package mslgen

import (
	"slices"
	"strings"
)

// recursion refuses cycles of calls. It ignores calls that need overload resolution, and
// templates that instantiate themselves with other arguments.
func (p *parser) recursion(known map[*function]*facts) error {
	edges := func(f *function) (out []struct {
		to *function
		at Pos
	}) {
		for _, c := range known[f].calls {
			var to *function
			candidates := 0
			for _, g := range p.byName[c.name] {
				least := 0
				for _, q := range g.params {
					if !slices.ContainsFunc(q.tokens, func(t token) bool { return t.is("=") }) {
						least++
					}
				}
				if c.args >= least && c.args <= len(g.params) {
					to = g
					candidates++
				}
			}
			if candidates != 1 {
				continue
			}
			if to == f && f.template != nil && c.template != "" && c.template != templateNames(f) {
				continue
			}
			out = append(out, struct {
				to *function
				at Pos
			}{to, c.Pos})
		}
		return out
	}
	const (
		unseen = iota
		open
		done
	)
	state := map[*function]int{}
	var visit func(f *function) error
	visit = func(f *function) error {
		state[f] = open
		for _, e := range edges(f) {
			if state[e.to] == open {
				return errorAt(e.at, "recursion: %s calls %s, which is already running", f.name, e.to.name)
			}
			if state[e.to] == unseen {
				if err := visit(e.to); err != nil {
					return err
				}
			}
		}
		state[f] = done
		return nil
	}
	for _, f := range p.funcs {
		if state[f] == unseen {
			if err := visit(f); err != nil {
				return err
			}
		}
	}
	return nil
}

func templateNames(f *function) string {
	var names []string
	for _, q := range f.template {
		names = append(names, q.name)
	}
	return strings.Join(names, ", ")
}

// dropTwins removes an overload that differs from an earlier one only in address spaces,
// because C++ would see a redefinition.
func (p *parser) dropTwins() error {
	text := func(first, last int) string {
		var out []token
		for i := first; i <= last; {
			s, next := p.translate(i)
			if s != "" {
				t := p.tok(i)
				t.text = s
				out = append(out, t)
			}
			i = next
		}
		return strings.TrimSpace(join(out))
	}
	seen := map[string]*function{}
	for _, f := range p.funcs {
		if f.method || len(p.byName[f.name]) < 2 {
			continue
		}
		signature := text(f.first, f.open-1)
		twin := seen[signature]
		if twin == nil {
			seen[signature] = f
			continue
		}
		for i := f.open; i <= f.close; i++ { // the numbers of synchronisations do not matter
			delete(p.meetings, i)
		}
		numbered := p.meetings
		p.meetings = nil
		same := text(f.open, f.close) == text(twin.open, twin.close)
		p.meetings = numbered
		if !same {
			return errorAt(f.Pos, "%s differs from the one at %s in address spaces and in its body; give it another name", f.name, twin.Pos)
		}
		p.remove(f.first, f.close)
	}
	return nil
}
