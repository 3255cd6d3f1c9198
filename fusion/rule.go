package fusion

import (
	"errors"
	"fmt"
	"slices"

	"github.com/smelt-ml/smelt/ir"
)

// Rule replaces the values that its pattern matches. The engine checks safety, see the
// package comment. A Rule is immutable and safe for concurrent use.
type Rule struct {
	Name string
	Doc  string // one line, for help texts

	// Anchor is the pattern that the engine tries at each value, an Op. Joins are
	// further roots, each of which shares a capture with an earlier root.
	Anchor *Pat
	Joins  []*Pat

	// Where reports whether a match meets conditions beyond the pattern's shape: equal
	// attributes, axes, sizes. Nil means always.
	Where func(m Match) bool

	// Yields lists the patterns, each an Op, whose values the replacement provides. The
	// rewrite removes them and all Op patterns below them; patterns above them are context
	// and stay.
	Yields []*Pat

	// Build emits the replacement and returns one value for each of Yields, of the
	// same type.
	Build func(e *Emitter, m Match) []*ir.Value

	// Removes is a captured value that several rewrites remove together: each replaces one of its
	// readers, and the replacement does not read it. A match requires that the value is no result
	// and that Removable reports that rules will replace all its readers. The target is nil where a
	// rule is applied without one.
	Removes   *Pat
	Removable func(t *ir.Target, v *ir.Value, readers []*ir.Value) bool

	// Needs reports whether the target has the op that the rule emits, for the step. Nil means that
	// the rule applies on every target; one without the op decomposes it.
	Needs func(t *ir.Target, s ir.Steps) bool

	// Pays reports whether a replacement is faster in a step on a target. Nil means always.
	Pays func(t *ir.Target, s ir.Steps, m Match) bool

	// Early marks rules that come before the rows that need logits are gathered: a gather would separate
	// what they match.
	Early bool

	target *ir.Target // see For
}

// For returns the rule for a step on a target, without matches that do not pay there, or nil where
// the target lacks the op that the rule emits.
func (r *Rule) For(t *ir.Target, s ir.Steps) *Rule {
	if r.Needs != nil && !r.Needs(t, s) {
		return nil
	}
	own := *r
	own.target = t
	if r.Pays == nil {
		return &own
	}
	own.Where = func(m Match) bool { return (r.Where == nil || r.Where(m)) && r.Pays(t, s, m) }
	return &own
}

// All returns every rule, in the order in which the pipeline runs them.
func All() []*Rule {
	return []*Rule{
		KVReplicationElimination(),
		// The rules that write the cache precede gate_up, linear_activation, linear_residual
		// and norm_prologue, which would match their projections one by one.
		HeadNormRopeKVWrite(),
		RowNormRopeKVWrite(),
		RopeQKVWrite(),
		QKVWrite(),
		LatentProducts(),
		LatentWrite(),
		GatedShortConv(),
		GatedDeltaNet(),
		GatedMamba2(),
		AttentionGate(),
		QKVGate(),
		RowGate(),
		RouterGate(),
		RepeatKVPair(),
		GatedActivation(),
		GateUp(),
		ColumnGate(),
		LinearActivation(),
		LinearResidual(),
		NormResidual(),
		ResidualGain(),
		RoutedGateUp(),
		RoutedSum(),
		RoutedResidual(),
		RoutedNorm(),
		SharedNorm(),
		NormPrologue(),
		GatherPrologue(),
		LeadingColumns(),
		// attention_write runs last, over the results of the rules that write the cache and of
		// kv_replication_elimination, so that reports count those rules too.
		AttentionWrite(),
		LatentAttention(),
		QueryAttention(),
	}
}

// ErrUnsettled is wrapped by the error about a rule that matches its own replacements forever.
var ErrUnsettled = errors.New("the rule never settles")

// Apply rewrites f by the rules until none matches, and returns the number of rewrites of
// each rule. It visits values in program order and prefers earlier rules. New values get
// the layer of the first value that they replace. The graph is in program order
// afterwards, without the replaced values; Sweep removes operands that only they used.
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
