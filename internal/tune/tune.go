// Package tune times what Plans leave to size, on the device at hand, and keeps what took
// least time.
//
// The compiler says what there is to try: [plan.Phase.Sites] lists, for each kind of
// dispatch, the settings of its choice. A variant is the model compiled with one other
// setting of one choice wherever it is made, and runs beside the Plan that the compiler
// makes by itself, in turn, on the same tokens and the same weights, each dispatch timed where
// it stands: what it reads lies in memory or in caches as it does when the model runs.
//
//	found, err := tune.Run(ctx, tune.Subject{Compile: compile, Device: device, Fetch: fetch}, tune.Options{})
//	tuning.Keep(found.Winners()...)
//
// Laws: no setting counts whose logits differ in a bit from those of the Plan without it, on
// a prompt, tokens after it, a token of each of as many sequences as a phase takes, and a long
// context where the Plan has a phase for one. A few
// tokens can miss a bit that rounding hides; so of choices that kernels do not promise the
// same bits of, settings are timed and none is kept. A default
// stays unless something takes 3 % less than it, and does so again together with all other
// winners, in three rounds of four at least.
package tune

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"golang.org/x/exp/stats"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
)

// Margin is the share of a default's time that a setting must save to take its place.
const Margin = 0.03

// Subject is a model on a device.
type Subject struct {
	Compile func(*lower.Tuning) (*plan.Plan, error) // for the device; nil: by size alone
	Device  *device.Device                          // that rearranges weights when they are loaded, if at all
	Fetch   device.Fetch
}

// Options say how much is measured. Zero fields take defaults.
type Options struct {
	Prompt int // tokens of the prompt that is timed; 0: as many as a step of the Plan takes
	Tokens int // timed one by one after it, in each round; 0: 8
	Rounds int // of each variant beside the defaults; 0: 7
	// Only, if set, names the choices that are measured.
	Only []string
	// Known are sites, by their keys, that were measured already.
	Known map[string]bool
	// Progress, if set, is told what begins.
	Progress func(what string)
}

// Timed is a setting and what became of it.
type Timed struct {
	Setting plan.Setting `json:"setting"`
	Micros  float64      `json:"us"`    // of the site's dispatches in a step, the median
	Ratio   float64      `json:"ratio"` // to the default beside it, the median of the rounds
	Same    bool         `json:"same"`  // the bits of all results; a setting without them is not timed

	wins bool // its lead is more than chance
}

// Site is what was measured of a choice in a place.
type Site struct {
	Choice  string       `json:"choice"`
	Kernel  string       `json:"kernel"`
	Shape   string       `json:"shape"`
	Exact   bool         `json:"exact"` // by the kernels' laws no setting changes a bit; else none is kept
	Default plan.Setting `json:"default"`
	Micros  float64      `json:"default_us"`
	Tried   []Timed      `json:"tried"`
	Winner  plan.Setting `json:"winner"`
	Took    float64      `json:"us"`
}

// Found is what [Run] found, by site.
type Found struct {
	Sites []*Site
}

// Key tells sites apart as [plan.Site.Key] does.
func (s *Site) Key() string {
	return (&plan.Site{Choice: s.Choice, Kernel: s.Kernel, Shape: s.Shape}).Key()
}

// Winners lists what is to be kept, defaults included.
func (f *Found) Winners() (winners []lower.Winner) {
	for _, s := range f.Sites {
		if !s.Exact {
			continue
		}
		winners = append(winners, lower.Winner{
			Choice: s.Choice, Kernel: s.Kernel, Shape: s.Shape, Setting: s.Winner, Micros: round(s.Took), Default: round(s.Micros),
		})
	}
	return winners
}

// round keeps tenths of a microsecond, which is more than is known.
func round(us float64) float64 { return math.Round(us*10) / 10 }

// Run measures. It fails where something does not run; that nothing is better than the
// defaults is a result.
func Run(ctx context.Context, s Subject, o Options) (*Found, error) {
	r := &runner{Subject: s, Options: o, sites: map[string]*site{}}
	if r.Progress == nil {
		r.Progress = func(string) {}
	}
	r.Tokens, r.Rounds = cmp.Or(o.Tokens, 8), cmp.Or(o.Rounds, 7)
	var err error
	if r.base, err = r.load(nil); err != nil {
		return nil, err
	}
	defer r.base.close()
	r.plan()
	every := make([]int, len(r.steps))
	for i := range every {
		every[i] = i
	}
	if r.want, err = r.base.results(ctx, r, every); err != nil {
		return nil, err
	}
	for _, v := range r.variants() {
		if err := r.try(ctx, v); err != nil {
			return nil, fmt.Errorf("%s: %w", v.what, err)
		}
	}
	if err := r.confirm(ctx); err != nil {
		return nil, fmt.Errorf("all winners together: %w", err)
	}
	return r.found(), nil
}

// site is a Site under way.
type site struct {
	Site
	settings []plan.Setting // to be tried
}

type runner struct {
	Subject
	Options
	base   *loaded
	steps  []step
	blocks int // of the cache, that steps of many sequences take
	sites  map[string]*site
	order  []string         // keys of sites
	want   map[int][]uint32 // bits of the results of the defaults, by index of the step
}

// step is what is timed: tokens after others, each by itself or all at once, or one of each of
// several sequences at once.
type step struct {
	depth, tokens int
	sequences     int  // of many; 0 or 1: one
	random        bool // what is in the cache before; always of many
	apart         bool
	phase         int
	first         int // cache block of the first of many
}

// crowded is how many keys each of many sequences has where no phase is for more.
const crowded = 256

// plan lists the steps, and the sites of the phases that they run.
func (r *runner) plan() {
	p := r.base.plan
	prompt, context := 0, p.Context
	for i := range p.Phases {
		if ph := &p.Phases[i]; ph.Longest.Max > 1 {
			prompt = max(prompt, int(ph.Bounds[sym.T]))
		}
	}
	if r.Prompt > 0 {
		prompt = min(prompt, r.Prompt)
	}
	prompt = min(prompt, context-r.Tokens)
	for i := range p.Phases { // short prompts may have a phase of their own
		ph := &p.Phases[i]
		tokens := min(prompt, int(ph.Bounds[sym.T]))
		if ph.Longest.Max > 1 && tokens > 1 && r.phaseOf(tokens, 0) == i {
			r.steps = append(r.steps, step{tokens: tokens, phase: i})
		}
	}
	r.Tokens = min(r.Tokens, context)
	depth, last := max(prompt, 0), context-r.Tokens
	after := step{depth: depth, tokens: r.Tokens, apart: true, phase: r.phaseOf(1, depth)}
	r.steps = append(r.steps, after)
	if long := r.phaseOf(1, last); long != after.phase {
		r.steps = append(r.steps, step{depth: last, tokens: r.Tokens, random: true, apart: true, phase: long})
	}
	for i := range p.Phases {
		r.crowd(i)
	}
	for i := range p.Phases {
		sites := p.Phases[i].Sites
		for j := range sites {
			at := &sites[j]
			key := at.Key()
			if r.sites[key] != nil || r.Known[key] || r.Only != nil && !slices.Contains(r.Only, at.Choice) {
				continue
			}
			r.order = append(r.order, key)
			r.sites[key] = &site{
				Site:     Site{Choice: at.Choice, Kernel: at.Kernel, Shape: at.Shape, Exact: at.Exact, Default: at.Taken, Winner: at.Taken},
				settings: slices.DeleteFunc(slices.Clone(at.Settings), func(s plan.Setting) bool { return maps.Equal(s, at.Taken) }),
			}
		}
	}
	r.steps = slices.DeleteFunc(r.steps, func(s step) bool {
		return !slices.ContainsFunc(p.Phases[s.phase].Sites, func(at plan.Site) bool { return r.sites[at.Key()] != nil })
	})
}

// crowd adds the largest step of a phase that takes a token of each of many sequences, over
// contexts that a phase before it does not take.
func (r *runner) crowd(phase int) {
	p := r.base.plan
	ph := &p.Phases[phase]
	n := min(ph.Bounds[sym.T], ph.Bounds[sym.B])
	if ph.Longest.Max != 1 || n < 2 {
		return
	}
	depth := min(crowded, p.Context-r.Tokens)
	for i := range phase {
		if o := &p.Phases[i]; o.Longest.Max == 1 && o.Least[sym.T] == ph.Least[sym.T] {
			depth = max(depth, int(o.Bounds[sym.Smax]))
		}
	}
	s := step{depth: depth, tokens: r.Tokens, sequences: int(n), random: true, apart: true, phase: phase, first: r.blocks}
	blocks := len(batch.Contiguous(p.Block(), depth+r.Tokens))
	sizes := sym.Sizes{sym.T: n, sym.B: n, sym.R: n, sym.NB: int64(blocks), sym.Smax: int64(depth + r.Tokens)}
	if depth+r.Tokens <= p.Context && p.PhaseFor(&sizes, 1) == phase {
		r.steps = append(r.steps, s)
		r.blocks += blocks * s.sequences
	}
}

// phaseOf is the phase of so many tokens after others.
func (r *runner) phaseOf(tokens, depth int) int {
	n := int64(tokens)
	blocks := int64(len(batch.Contiguous(r.base.plan.Block(), r.base.plan.Context)))
	return r.base.plan.PhaseFor(&sym.Sizes{sym.T: n, sym.B: 1, sym.R: 1, sym.NB: blocks, sym.Smax: int64(depth) + n}, n)
}

// touched lists the steps, by index, whose phases have a site with another setting. The others
// are the same Plan.
func (r *runner) touched(settings map[string]plan.Setting) (steps []int) {
	for i, s := range r.steps {
		if slices.ContainsFunc(r.base.plan.Phases[s.phase].Sites, func(at plan.Site) bool { return settings[at.Key()] != nil }) {
			steps = append(steps, i)
		}
	}
	return steps
}

// variant is other settings than the defaults at some sites.
type variant struct {
	what     string
	settings map[string]plan.Setting // by key of the site
}

// variants has, for each choice, one for each setting: at all of its sites at once, for they
// do not touch each other.
func (r *runner) variants() (all []variant) {
	at := map[string]int{} // index in all
	for _, key := range r.order {
		for _, setting := range r.sites[key].settings {
			what := r.sites[key].Choice + ": " + setting.String()
			i, ok := at[what]
			if !ok {
				i = len(all)
				at[what] = i
				all = append(all, variant{what, map[string]plan.Setting{}})
			}
			all[i].settings[key] = setting
		}
	}
	return all
}

// tuning is a variant as the compiler takes it.
func (r *runner) tuning(settings map[string]plan.Setting) *lower.Tuning {
	t := &lower.Tuning{}
	for key, setting := range settings {
		s := r.sites[key]
		t.Keep(lower.Winner{Choice: s.Choice, Kernel: s.Kernel, Shape: s.Shape, Setting: setting})
	}
	return t
}

// try measures a variant.
func (r *runner) try(ctx context.Context, v variant) error {
	r.Progress(v.what)
	l, err := r.sound(ctx, v)
	if err != nil || l == nil {
		return err
	}
	defer l.close()
	all, err := r.compare(ctx, l, r.touched(v.settings))
	if err != nil {
		return err
	}
	for key, setting := range v.settings {
		if c, ok := all[key]; ok {
			s := r.sites[key]
			s.Micros = c.without
			s.Tried = append(s.Tried, Timed{setting, c.with, c.ratio, true, c.wins() && s.Exact})
		}
	}
	return nil
}

// sound loads a variant without the sites whose settings change bits, which it removes from
// it; nil where none is left.
func (r *runner) sound(ctx context.Context, v variant) (*loaded, error) {
	l, same, err := r.checked(ctx, v.settings)
	if err != nil || same {
		return l, err
	}
	l.close()
	for _, key := range slices.Sorted(maps.Keys(v.settings)) {
		setting := v.settings[key]
		l, same, err := r.checked(ctx, map[string]plan.Setting{key: setting})
		if err != nil {
			return nil, err
		}
		l.close()
		if !same {
			delete(v.settings, key)
			r.sites[key].Tried = append(r.sites[key].Tried, Timed{Setting: setting})
		}
	}
	if len(v.settings) == 0 {
		return nil, nil
	}
	if l, same, err = r.checked(ctx, v.settings); err != nil || same {
		return l, err
	}
	l.close()
	return nil, errors.New("settings that change no bit alone do together")
}

// checked loads the model with some settings and tells whether its results are those of the
// defaults, bit for bit.
func (r *runner) checked(ctx context.Context, settings map[string]plan.Setting) (*loaded, bool, error) {
	l, err := r.load(r.tuning(settings))
	if err != nil {
		return nil, false, err
	}
	got, err := l.results(ctx, r, r.touched(settings))
	if err == nil && l.rearranged() < r.base.rearranged() && matrices(l.plan) == matrices(r.base.plan) {
		err = errors.New("there is no memory for two models with rearranged weights")
	}
	if err != nil {
		l.close()
		return nil, false, err
	}
	for i := range got {
		if !slices.Equal(r.want[i], got[i]) {
			return l, false, nil
		}
	}
	return l, true, nil
}

// confirm runs all winners together, and takes back those that save nothing there.
func (r *runner) confirm(ctx context.Context) error {
	v := variant{"all winners together", map[string]plan.Setting{}}
	for key, s := range r.sites {
		best := Timed{Ratio: 1}
		for _, t := range s.Tried {
			if t.wins && t.Ratio < best.Ratio {
				best = t
			}
		}
		if s.Took = s.Micros; best.Setting != nil {
			v.settings[key] = best.Setting
		}
	}
	if len(v.settings) == 0 {
		return nil
	}
	r.Progress(v.what)
	l, err := r.sound(ctx, v)
	if err != nil || l == nil {
		return err
	}
	defer l.close()
	all, err := r.compare(ctx, l, r.touched(v.settings))
	if err != nil {
		return err
	}
	for key, setting := range v.settings {
		if s, c := r.sites[key], all[key]; c.wins() {
			s.Winner, s.Took, s.Micros = setting, c.with, c.without
		}
	}
	return nil
}

// comparison is a site's time in a variant beside that by default.
type comparison struct {
	with, without float64 // µs, medians
	ratio         float64 // the median of the rounds
	most          float64 // that three rounds of four do not exceed
}

func (c comparison) wins() bool { return c.with > 0 && c.ratio < 1-Margin && c.most < 1 }

// compare times a variant and the defaults in turn. A site that several phases have counts
// by the means of its ratios there.
func (r *runner) compare(ctx context.Context, l *loaded, steps []int) (map[string]comparison, error) {
	type place struct {
		phase int
		key   string
	}
	var with, without = map[place][]float64{}, map[place][]float64{}
	for round := range r.Rounds + 1 { // the first warms up
		turns := []*loaded{r.base, l}
		if round%2 == 1 {
			slices.Reverse(turns)
		}
		for _, turn := range turns {
			times, err := turn.time(ctx, r, steps)
			if err != nil {
				return nil, err
			}
			into := with
			if turn == r.base {
				into = without
			}
			for phase, ns := range times {
				for key, us := range turn.bySite(r.base, phase, ns) {
					if round > 0 && r.sites[key] != nil {
						into[place{phase, key}] = append(into[place{phase, key}], us)
					}
				}
			}
		}
	}
	logs := map[string][][2]float64{}
	all := map[string]comparison{}
	for at, us := range with {
		each := make([]float64, len(us))
		for i := range us {
			each[i] = us[i] / max(without[at][i], 1e-3)
		}
		q := stats.Quantiles(each, 0.5, 0.75)
		logs[at.key] = append(logs[at.key], [2]float64{math.Log(q[0]), math.Log(q[1])})
		c := all[at.key]
		c.with += stats.Median(us)
		c.without += stats.Median(without[at])
		all[at.key] = c
	}
	for key, phases := range logs {
		var sums [2]float64
		for _, l := range phases {
			sums[0], sums[1] = sums[0]+l[0], sums[1]+l[1]
		}
		c, n := all[key], float64(len(phases))
		c.ratio, c.most = math.Exp(sums[0]/n), math.Exp(sums[1]/n)
		all[key] = c
	}
	return all, nil
}

func (r *runner) found() *Found {
	f := &Found{}
	for _, key := range r.order {
		if s := r.sites[key]; s.Micros > 0 {
			f.Sites = append(f.Sites, &s.Site)
		}
	}
	return f
}

// loaded is a Plan on the device, with a sequence, and many more once a step wants them.
type loaded struct {
	plan       *plan.Plan
	executable *device.Executable
	sequence   *engine.Sequence
	many       *engine.Runner
}

func (r *runner) load(t *lower.Tuning) (*loaded, error) {
	plan, err := r.Compile(t)
	if err != nil {
		return nil, err
	}
	l := &loaded{plan: plan}
	if l.executable, err = r.Device.Load(plan, r.Fetch); err != nil {
		return nil, err
	}
	if l.sequence, err = engine.NewSequence(plan, l.executable); err != nil {
		l.executable.Close()
		return nil, err
	}
	return l, nil
}

func (l *loaded) close() {
	if l.many != nil {
		l.many.Close()
	}
	l.sequence.Close()
	l.executable.Close()
}

// rearranged is how many dispatches of the last step read weights in the device's order.
func (l *loaded) rearranged() int {
	if n := l.sequence.Instance().Counters().Rearranged; n > 0 || l.many == nil {
		return n
	}
	return l.many.Instance().Counters().Rearranged
}

// matrices is how many weights the device may rearrange.
func matrices(p *plan.Plan) (n int) {
	for i := range p.Buffers {
		if p.Buffers[i].Rearrange {
			n++
		}
	}
	return n
}

// tokens are random ones, the same each time.
func (l *loaded) tokens(n int) []int32 {
	rng := rand.New(rand.NewPCG(3, 4))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(rng.IntN(l.sequence.Vocab()))
	}
	return ids
}

// begin makes the sequence as long as a step wants it, of tokens or of random contents.
func (l *loaded) begin(ctx context.Context, s step, random bool) error {
	l.sequence.Reset()
	if s.depth == 0 {
		return nil
	}
	if random || s.random {
		return l.sequence.FillRandom(s.depth, rand.New(rand.NewPCG(1, 2)))
	}
	_, err := l.sequence.Feed(ctx, l.tokens(s.depth))
	return err
}

// together runs a step of many sequences so often, each time a token further. Nobody writes
// where another step reads, so that what is random is so once.
func (l *loaded) together(r *runner, s step, times int, run func(*engine.Runner, []batch.Piece) error) (err error) {
	if l.many == nil {
		if l.many, err = engine.NewRunner(l.plan, l.executable, r.blocks); err != nil {
			return err
		}
		if err := l.many.Instance().RandomiseCaches(r.blocks, rand.New(rand.NewPCG(1, 2))); err != nil {
			return err
		}
	}
	ids := l.tokens(times * s.sequences)
	own := batch.Contiguous(l.plan.Block(), s.depth+s.tokens)
	pieces := make([]batch.Piece, s.sequences)
	for i := range pieces {
		for _, b := range own {
			pieces[i].Blocks = append(pieces[i].Blocks, int32(s.first+i*len(own))+b)
		}
	}
	for n := range times {
		for i := range pieces {
			pieces[i].Start, pieces[i].Tokens = s.depth+n, ids[n*s.sequences+i:][:1]
		}
		if err := run(l.many, pieces); err != nil {
			return err
		}
	}
	return nil
}

// shown is how many tokens of a prompt give logits that are compared, beside the last, and
// shownTogether how many of each of many sequences.
const shown, shownTogether = 32, 2

// results runs steps and returns the bits of logits, by step: of what is fed one by one after
// each, of a prompt after the last and of a short one everywhere.
func (l *loaded) results(ctx context.Context, r *runner, steps []int) (map[int][]uint32, error) {
	all := map[int][]uint32{}
	for _, i := range steps {
		add := func(_ int, logits []float32) error {
			for _, v := range logits {
				all[i] = append(all[i], math.Float32bits(v))
			}
			return nil
		}
		s := r.steps[i]
		if s.sequences > 1 {
			err := l.together(r, s, min(shownTogether, s.tokens), func(on *engine.Runner, pieces []batch.Piece) error {
				if err := on.Run(ctx, pieces...); err != nil {
					return err
				}
				logits, err := on.Logits()
				return errors.Join(err, add(0, logits))
			})
			if err != nil {
				return nil, err
			}
			continue
		}
		if !s.apart {
			l.sequence.Reset()
			if err := l.sequence.Score(ctx, l.tokens(min(shown, s.tokens)), add); err != nil {
				return nil, err
			}
		}
		if err := l.begin(ctx, s, false); err != nil {
			return nil, err
		}
		for _, ids := range s.pieces(l) {
			logits, err := l.sequence.Feed(ctx, ids)
			if err != nil {
				return nil, err
			}
			_ = add(0, logits)
		}
	}
	return all, nil
}

// pieces are the tokens of a step, as they are fed.
func (s step) pieces(l *loaded) [][]int32 {
	ids := l.tokens(s.depth + s.tokens)[s.depth:]
	if !s.apart {
		return [][]int32{ids}
	}
	return slices.Collect(slices.Chunk(ids, 1))
}

// time runs steps and returns the nanoseconds of each dispatch in a step of a phase: the
// median of those that took the same phase.
func (l *loaded) time(ctx context.Context, r *runner, steps []int) (map[int][]float64, error) {
	all := map[int][][]float64{} // by phase and dispatch
	add := func(steps ...engine.Profiled) {
		for _, step := range steps {
			if all[step.Phase] == nil {
				all[step.Phase] = make([][]float64, len(step.Nanoseconds))
			}
			for i, ns := range step.Nanoseconds {
				all[step.Phase][i] = append(all[step.Phase][i], float64(ns))
			}
		}
	}
	for _, i := range steps {
		s := r.steps[i]
		if s.sequences > 1 {
			err := l.together(r, s, s.tokens, func(on *engine.Runner, pieces []batch.Piece) error {
				step, err := on.Profile(ctx, pieces...)
				add(step)
				return err
			})
			if err != nil {
				return nil, err
			}
			continue
		}
		if err := l.begin(ctx, s, true); err != nil {
			return nil, err
		}
		for _, ids := range s.pieces(l) {
			steps, err := l.sequence.Profile(ctx, ids)
			if err != nil {
				return nil, err
			}
			add(steps...)
		}
	}
	medians := map[int][]float64{}
	for phase, dispatches := range all {
		for _, ns := range dispatches {
			medians[phase] = append(medians[phase], stats.Median(ns))
		}
	}
	return medians, nil
}

// bySite adds up the µs of a step's dispatches by the sites of the defaults.
func (l *loaded) bySite(base *loaded, phase int, ns []float64) map[string]float64 {
	ph := &l.plan.Phases[phase]
	sums := map[string]float64{}
	sites := base.plan.Phases[phase].Sites
	for i := range sites {
		key := sites[i].Key()
		for j := range ph.Dispatches {
			if sites[i].Reads(&ph.Dispatches[j]) {
				sums[key] += ns[j] / 1e3
			}
		}
	}
	return sums
}
