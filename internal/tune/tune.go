// Package tune times a Plan's choices by size on a device, and returns the fastest settings.
//
// [plan.Phase.Sites] lists, for each kind of dispatch, the settings of its choice. A variant is the
// model compiled with another setting of one choice at all of its sites. It runs in alternation with
// the default Plan, on the same tokens and weights. Each dispatch is timed within its trial, so that
// memory and caches are in the same state as when the model runs.
//
//	found, err := tune.Run(ctx, tune.Subject{Compile: compile, Device: device, Fetch: fetch}, tune.Options{})
//	tuning.Keep(found.Winners()...)
//
// Laws: a setting is discarded if its logits differ in a bit from the default Plan's, on a prompt,
// on tokens after it, on a token of each of as many sequences as a phase takes, and on a long
// context if the Plan has a phase for one. A few tokens can miss such a bit; so choices whose
// kernels do not guarantee bit-identical results are timed, but no setting is kept. A setting
// replaces the default if it takes 3 % less time, alone and together with all other winners, in at
// least three rounds of four.
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
	Compile func(*lower.Tuning) (*plan.Plan, error) // nil: without a tuning
	Device  *device.Device                          // opened with device.RearrangeNow or RearrangeNever
	Fetch   device.Fetch
}

// Options configure the amount of measurement. Zero fields stand for defaults.
type Options struct {
	Prompt int // maximum tokens of the timed prompt; 0: the largest step of the Plan
	Tokens int // decoded after it and timed, in each round; 0: 8
	Rounds int // of each variant and the defaults; 0: 7
	// Only, if not nil, restricts tuning to choices of these names.
	Only []string
	// Known holds the keys of sites to skip, as they are measured already.
	Known map[string]bool
	// Progress, if not nil, is called with the name of each variant before it runs.
	Progress func(what string)
}

// Timed is the result of one setting.
type Timed struct {
	Setting plan.Setting `json:"setting"`
	Micros  float64      `json:"us"`    // median over steps of the sum of the site's dispatches
	Ratio   float64      `json:"ratio"` // to the default's time, the median of the rounds
	Same    bool         `json:"same"`  // bit-identical results; else the setting is not timed

	wins bool // see comparison.wins
}

// SiteResult is the result of a choice at a site of the Plan.
type SiteResult struct {
	Choice  string       `json:"choice"`
	Kernel  string       `json:"kernel"`
	Shape   string       `json:"shape"`
	Exact   bool         `json:"exact"` // kernels guarantee the same bits with every setting; else none is kept
	Default plan.Setting `json:"default"`
	Micros  float64      `json:"default_us"`
	Tried   []Timed      `json:"tried"`
	Winner  plan.Setting `json:"winner"`
	Took    float64      `json:"us"`
}

// Result is the result of [Run], by site.
type Result struct {
	Sites []*SiteResult
}

// Key returns the site's [plan.Site.Key].
func (s *SiteResult) Key() string {
	return (&plan.Site{Choice: s.Choice, Kernel: s.Kernel, Shape: s.Shape}).Key()
}

// Winners returns the settings to keep, including defaults.
func (f *Result) Winners() (winners []lower.Winner) {
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

// round rounds to tenths of a microsecond, finer than the measurement.
func round(us float64) float64 { return math.Round(us*10) / 10 }

// Run measures a subject's choices. It returns an error if a variant does not compile or run; a
// result without better settings is none.
func Run(ctx context.Context, s Subject, o Options) (*Result, error) {
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
	every := make([]int, len(r.trials))
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
	return r.result(), nil
}

// site is a SiteResult with the settings that are not measured yet.
type site struct {
	SiteResult
	settings []plan.Setting // to be tried
}

type runner struct {
	Subject
	Options
	base   *loaded
	trials []trial
	blocks int // of the cache, for steps of many sequences
	sites  map[string]*site
	order  []string         // keys of sites
	want   map[int][]uint32 // bits of the results of the defaults, by index of the trial
}

// trial is a timed run: tokens after a context, one by one or in one step, or tokens of each of
// several sequences in a batch.
type trial struct {
	depth, tokens int
	sequences     int  // 0 or 1: one
	random        bool // the cache has random contents; always with several sequences
	apart         bool // one step per token
	phase         int
	first         int // cache block of the first of several sequences
}

// crowded is the minimum context of each sequence of a batch, in tokens.
const crowded = 256

// plan sets the trials, and the sites of their phases.
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
			r.trials = append(r.trials, trial{tokens: tokens, phase: i})
		}
	}
	r.Tokens = min(r.Tokens, context)
	depth, last := max(prompt, 0), context-r.Tokens
	after := trial{depth: depth, tokens: r.Tokens, apart: true, phase: r.phaseOf(1, depth)}
	r.trials = append(r.trials, after)
	if long := r.phaseOf(1, last); long != after.phase {
		r.trials = append(r.trials, trial{depth: last, tokens: r.Tokens, random: true, apart: true, phase: long})
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
				SiteResult: SiteResult{Choice: at.Choice, Kernel: at.Kernel, Shape: at.Shape, Exact: at.Exact, Default: at.Taken, Winner: at.Taken},
				settings:   slices.DeleteFunc(slices.Clone(at.Settings), func(s plan.Setting) bool { return maps.Equal(s, at.Taken) }),
			}
		}
	}
	r.trials = slices.DeleteFunc(r.trials, func(s trial) bool {
		return !slices.ContainsFunc(p.Phases[s.phase].Sites, func(at plan.Site) bool { return r.sites[at.Key()] != nil })
	})
}

// crowd adds the largest step of a phase that takes a token of each of several sequences, with
// contexts too long for earlier phases.
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
	s := trial{depth: depth, tokens: r.Tokens, sequences: int(n), random: true, apart: true, phase: phase, first: r.blocks}
	blocks := len(batch.Contiguous(p.Block(), depth+r.Tokens))
	sizes := sym.Sizes{sym.T: n, sym.B: n, sym.R: n, sym.NB: int64(blocks), sym.Smax: int64(depth + r.Tokens)}
	if depth+r.Tokens <= p.Context && p.PhaseFor(&sizes, 1) == phase {
		r.trials = append(r.trials, s)
		r.blocks += blocks * s.sequences
	}
}

// phaseOf returns the phase of a step of some tokens after depth others.
func (r *runner) phaseOf(tokens, depth int) int {
	n := int64(tokens)
	blocks := int64(len(batch.Contiguous(r.base.plan.Block(), r.base.plan.Context)))
	return r.base.plan.PhaseFor(&sym.Sizes{sym.T: n, sym.B: 1, sym.R: 1, sym.NB: blocks, sym.Smax: int64(depth) + n}, n)
}

// touched returns the indices of the trials whose phases have a site in settings. The Plans of other
// trials do not change.
func (r *runner) touched(settings map[string]plan.Setting) (trials []int) {
	for i, s := range r.trials {
		if slices.ContainsFunc(r.base.plan.Phases[s.phase].Sites, func(at plan.Site) bool { return settings[at.Key()] != nil }) {
			trials = append(trials, i)
		}
	}
	return trials
}

// variant holds settings that differ from the defaults at some sites.
type variant struct {
	what     string
	settings map[string]plan.Setting // by key of the site
}

// variants returns one variant for each setting of each choice, at all of its sites at once, as sites
// are independent.
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

// tuning returns the lower.Tuning of a variant's settings.
func (r *runner) tuning(settings map[string]plan.Setting) *lower.Tuning {
	t := &lower.Tuning{}
	for key, setting := range settings {
		s := r.sites[key]
		t.Keep(lower.Winner{Choice: s.Choice, Kernel: s.Kernel, Shape: s.Shape, Setting: setting})
	}
	return t
}

// measure compares a variant with the defaults, less the settings that change bits; nil if none is left.
func (r *runner) measure(ctx context.Context, v variant) (map[string]comparison, error) {
	r.Progress(v.what)
	l, err := r.sound(ctx, v)
	if err != nil || l == nil {
		return nil, err
	}
	defer l.close()
	return r.compare(ctx, l, r.touched(v.settings))
}

// try measures a variant, and notes the results.
func (r *runner) try(ctx context.Context, v variant) error {
	all, err := r.measure(ctx, v)
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

// sound loads a variant, after removing the sites whose settings change bits; nil if no site is left.
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
	return nil, errors.New("settings that change no bit one by one change some together")
}

// checked loads the model with some settings and reports whether its results are bit-identical to
// those of the defaults.
func (r *runner) checked(ctx context.Context, settings map[string]plan.Setting) (*loaded, bool, error) {
	l, err := r.load(r.tuning(settings))
	if err != nil {
		return nil, false, err
	}
	got, err := l.results(ctx, r, r.touched(settings))
	if err == nil && l.rearranged() < r.base.rearranged() && matrices(l.plan) == matrices(r.base.plan) {
		err = errors.New("memory does not suffice for two models with rearranged weights")
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

// confirm runs all winners together, and keeps those that still win.
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
	all, err := r.measure(ctx, v)
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

// comparison holds a site's time in a variant and by default.
type comparison struct {
	with, without float64 // µs, medians
	ratio         float64 // the median of the rounds
	most          float64 // the third quartile of the rounds
}

func (c comparison) wins() bool { return c.with > 0 && c.ratio < 1-Margin && c.most < 1 }

// compare times a variant and the defaults in alternation. The ratio of a site in several phases is
// the geometric mean of its ratios there.
func (r *runner) compare(ctx context.Context, l *loaded, trials []int) (map[string]comparison, error) {
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
			times, err := turn.time(ctx, r, trials)
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
	phases := slices.SortedFunc(maps.Keys(with), func(a, b place) int { return cmp.Or(cmp.Compare(a.phase, b.phase), cmp.Compare(a.key, b.key)) })
	for _, at := range phases { // in order, since sums of floats depend on it
		us := with[at]
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

func (r *runner) result() *Result {
	f := &Result{}
	for _, key := range r.order {
		if s := r.sites[key]; s.Micros > 0 {
			f.Sites = append(f.Sites, &s.SiteResult)
		}
	}
	return f
}

// loaded is a Plan on the device, with one sequence and, once a trial needs it, a batch runner.
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

// rearranged returns the number of dispatches of the last step that read rearranged weights.
func (l *loaded) rearranged() int {
	if n := l.sequence.Instance().Counters().Rearranged; n > 0 || l.many == nil {
		return n
	}
	return l.many.Instance().Counters().Rearranged
}

// matrices returns the number of weights that the device may rearrange.
func matrices(p *plan.Plan) (n int) {
	for i := range p.Buffers {
		if p.Buffers[i].Rearrange {
			n++
		}
	}
	return n
}

// tokens returns n random tokens, the same in each call.
func (l *loaded) tokens(n int) []int32 {
	rng := rand.New(rand.NewPCG(3, 4))
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = int32(rng.IntN(l.sequence.Vocab()))
	}
	return ids
}

// begin fills the sequence to a trial's depth, with tokens or with random cache contents.
func (l *loaded) begin(ctx context.Context, s trial, random bool) error {
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

// together runs a trial of several sequences a number of times, each one token further. Steps do not
// write to each other's blocks, so the cache is randomised once.
func (l *loaded) together(r *runner, s trial, times int, run func(*engine.Runner, []batch.Piece) error) (err error) {
	if l.many == nil {
		if l.many, err = engine.NewRunner(l.plan, l.executable, r.blocks, device.Window{Keys: device.States, Blocks: r.blocks}); err != nil {
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
		pieces[i].State = batch.State{Read: int32(i), Write: int32(i)}
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

// shown is the number of tokens of a prompt whose logits are compared, beside the last, and
// shownTogether that of each of several sequences.
const shown, shownTogether = 32, 2

// results runs trials and returns the bits of logits, by trial: after every token if they are fed one
// by one, else after the last token of the prompt and after every token of a short one.
func (l *loaded) results(ctx context.Context, r *runner, trials []int) (map[int][]uint32, error) {
	all := map[int][]uint32{}
	for _, i := range trials {
		add := func(_ int, logits []float32) error {
			for _, v := range logits {
				all[i] = append(all[i], math.Float32bits(v))
			}
			return nil
		}
		s := r.trials[i]
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

// pieces returns the tokens of each call of Feed in a trial.
func (s trial) pieces(l *loaded) [][]int32 {
	ids := l.tokens(s.depth + s.tokens)[s.depth:]
	if !s.apart {
		return [][]int32{ids}
	}
	return slices.Collect(slices.Chunk(ids, 1))
}

// time runs trials and returns the nanoseconds of each dispatch, by phase: medians over the steps of
// the phase.
func (l *loaded) time(ctx context.Context, r *runner, trials []int) (map[int][]float64, error) {
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
	for _, i := range trials {
		s := r.trials[i]
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

// bySite sums the µs of a step's dispatches by the sites of the defaults.
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
