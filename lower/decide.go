package lower

import (
	"fmt"
	"maps"
	"slices"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

// chose notes a choice for the dispatch being made, on targets with Launches.
func (p *phase) chose(v *ir.Value, d emitter, shape, choice, reason string) {
	p.choseBy(v, d, shape, choice, decision{why: reason})
}

func (p *phase) choseBy(v *ir.Value, d emitter, shape, choice string, by decision) {
	if p.target.Launches {
		p.noted(v, d, shape, choice, by)
	}
}

func (p *phase) noted(v *ir.Value, d emitter, shape, choice string, by decision) {
	op := v.Op
	if _, ok := v.Attr.(ir.AttentionWriteAttr); ok { // the choices are those of its attention
		op = ir.OpAttention
	}
	c := plan.Decision{Op: op.String(), Kernel: d.dispatch().Kernel, Shape: shape, Choice: choice, Reason: by.why, Measured: by.measured}
	p.out.Note(c)
}

// upTo returns an extent with its bound, "T ≤ 512", or a constant extent's number.
func (p *phase) upTo(d ir.Dim) string {
	if n, ok := d.IsConst(); ok {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s ≤ %d", d, p.bound(Extent(d)))
}

// decide returns the setting that was measured to be fastest for a value's dispatches of a kernel,
// or else by and why. It adds the value to the choice's site in the phase.
func (p *phase) decide(c *choice, v *ir.Value, kernel string, at sizes, by plan.Setting, why string) decision {
	where := decisionKey{c, kernel, at.shape}
	known, ok := p.decided[where]
	if !ok {
		site := c.site(kernel, at, by)
		known = decided{decision{by, why, false}, -1}
		if w := p.tuning.at(&site); w != nil {
			known.decision = decision{w.Setting, w.why(), true}
			site.Taken = w.Setting
		}
		if len(site.Settings) > 1 {
			known.site = p.out.SiteOf(site)
		}
		p.decided[where] = known
	}
	if known.site >= 0 {
		p.out.Sites[known.site].Add(int32(v.ID))
	}
	return known.decision
}

// at returns the winner of a site, or nil if there is none or the site does not list its setting.
func (t *Tuning) at(site *plan.Site) *Winner {
	w := t.Find(site.Key())
	if w == nil || !slices.ContainsFunc(site.Settings, func(s plan.Setting) bool { return maps.Equal(s, w.Setting) }) {
		return nil
	}
	return w
}

func (w *Winner) why() string {
	return fmt.Sprintf("measured: %.1f µs a step, %.1f by default", w.Micros, w.Default)
}

// launch is decide for the launch of a kernel. On targets without Launches it returns by and why.
func (p *phase) launch(c *choice, v *ir.Value, e emitter, at sizes, by plan.Setting, why string) decision {
	if !p.target.Launches {
		return decision{by, why, false}
	}
	return p.decide(c, v, e.kernel.Name, at, by, why)
}

// hints sets the hints of a CPU's dispatch to the settings that were measured to be fastest.
func (e emitter) hints(v *ir.Value, at sizes, of ...*choice) {
	for _, c := range of {
		name := c.fields[0]
		d := e.p.decide(c, v, e.kernel.Name, at, plan.Setting{name: 0}, "")
		if d.measured {
			e.p.noted(v, e, at.shape, d.Setting.String(), d)
		}
		if d.Setting[name] == 0 {
			continue
		}
		to := e.dispatch()
		if to.Hints == nil {
			to.Hints = make([]uint32, kernels.NumHints)
		}
		to.Hints[slices.IndexFunc(hintChoices, func(h *choice) bool { return h == c })] = uint32(d.Setting[name])
	}
}

// hintChoices lists the choices by hint.
var hintChoices = []*choice{kernels.HintStreams: streams, kernels.HintAhead: ahead, kernels.HintPiece: piece, kernels.HintPairs: pairs}
