package fusion

import (
	"errors"
	"fmt"
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// Rule rewrites what its pattern matches. It says nothing about safety: see the
// package comment for what the engine guarantees. Rules do not change once made
// and may be used by several goroutines.
type Rule struct {
	Name string
	Doc  string // one line, for help texts

	// Anchor is the pattern that candidates are matched against, an Op. Joins are
	// further roots, each sharing a capture with what comes before it.
	Anchor *Pat
	Joins  []*Pat

	// Where tells what the shape of the pattern cannot: equal attributes, axes,
	// sizes. Nil means always.
	Where func(m Match) bool

	// Yields lists the patterns, each an Op, whose values the replacement provides.
	// They and all that the pattern has below them go away; what it has above them
	// is context and stays.
	Yields []*Pat

	// Build emits the replacement and returns one value for each of Yields, of the
	// same type.
	Build func(e *Emitter, m Match) []*ir.Value

	// Frees is a capture that the replacement no longer reads and that others may. A match is
	// taken only where it is no result and Takes tells that all its readers will be replaced
	// so, by this rule or another: what it costs each to do without is paid where it goes
	// away, and only there. The target is nil where a rule is applied for none.
	Frees *Pat
	Takes func(t *ir.Target, v *ir.Value, readers []*ir.Value) bool

	// Needs tells whether a target can use what the rule makes. Nil means that any
	// can, if only by decomposition.
	Needs func(t *ir.Target) bool

	// Pays tells whether a match is worth its replacement on a target. Nil means always.
	Pays func(t *ir.Target, m Match) bool

	target *ir.Target // see For
}

// For returns the rule as it serves a target, which leaves out matches that do not pay
// there; nil where it is of no use to it.
func (r *Rule) For(t *ir.Target) *Rule {
	if r.Needs != nil && !r.Needs(t) {
		return nil
	}
	own := *r
	own.target = t
	if r.Pays == nil {
		return &own
	}
	own.Where = func(m Match) bool { return (r.Where == nil || r.Where(m)) && r.Pays(t, m) }
	return &own
}

// All returns every rule, in the order in which the pipeline runs them.
func All() []*Rule {
	return []*Rule{
		KVReplicationElimination(),
		// The rules that write the cache take the projections that gate_up,
		// linear_activation, linear_residual and norm_prologue would take one by one.
		HeadNormRopeKVWrite(),
		RowNormRopeKVWrite(),
		RopeQKVWrite(),
		QKVWrite(),
		GatedShortConv(),
		RepeatKVPair(),
		GatedActivation(),
		GateUp(),
		LinearActivation(),
		LinearResidual(),
		NormResidual(),
		RoutedGateUp(),
		RoutedSum(),
		RoutedResidual(),
		RoutedNorm(),
		SharedNorm(),
		NormPrologue(),
		GatherPrologue(),
		// What the rules that write the cache made, and what kv_replication_elimination did,
		// meet last: both keep their names and counts.
		AttentionWrite(),
	}
}

// ErrUnsettled is wrapped by the error of a rule whose replacements keep matching.
var ErrUnsettled = errors.New("the rule never settles")

// Apply rewrites f by the rules until none matches, and returns how often each
// did, in the order given. Candidates are visited in program order; earlier rules
// win. New values carry the layer of the first value that they provide. The graph
// is in program order afterwards, without the values that were replaced; Sweep
// removes what only they used.
func Apply(f *ir.Func, rules ...*Rule) ([]int, error) {
	var byAnchor [ir.NumOps][]int
	for i, r := range rules {
		for _, op := range r.Anchor.ops {
			byAnchor[op] = append(byAnchor[op], i)
		}
	}
	counts := make([]int, len(rules))
	if !slices.ContainsFunc(f.Values, func(v *ir.Value) bool { return byAnchor[v.Op] != nil }) {
		return counts, nil // most rules have nothing to look at in most models
	}
	g := newIndex(f)
	s := search{g: g, m: make(Match)}
	changed := false
	for left, found := len(f.Values), true; found; changed = changed || found {
		found = false
		for i := 0; i < len(f.Values); i++ { // grows as rules emit
			v := f.Values[i]
			for _, k := range byAnchor[v.Op] {
				if g.dead(v) {
					break
				}
				if s.rule = rules[k]; !s.at(v) {
					continue
				}
				if left--; left < 0 {
					return counts, fmt.Errorf("%s at %s: %w", s.rule.Name, v.LongString(), ErrUnsettled)
				}
				if err := g.rewrite(s.rule, s.m); err != nil {
					return counts, fmt.Errorf("%s at %s: %w", s.rule.Name, v.LongString(), err)
				}
				counts[k]++
				found = true
			}
		}
	}
	if !changed {
		return counts, nil
	}
	f.Values = slices.DeleteFunc(f.Values, g.dead)
	return counts, f.Sort()
}
