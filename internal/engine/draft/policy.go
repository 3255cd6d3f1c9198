package draft

import "math/bits"

// Allowance is the share of the time of plain decoding that guessing may lose.
const Allowance = 0.01

const (
	worthwhile = 1.03 // least speedup over plain decoding, in tokens per second, for which guesses are verified
	hopeless   = 0.02 // least probability that a guess counts; less probable ones are dropped
	soon       = 8    // minimum number of steps with guesses between two plain steps that measure the baseline
	late       = 64   // maximum number of these steps
	enough     = 8    // plain decode steps before the first guess
	few        = 3    // plain steps of the same number of sequences that a decision needs
	credit     = 2    // initial balance, in plain decode steps
	recent     = 0.1  // weight of a new measurement in a moving average
	curious    = 16   // rejected rounds of guesses after which some are verified anyway
	saved      = 8    // maximum balance, in plain decode steps
	caughtUp   = 3    // maximum balance, in catch-ups of the draft model, if that is larger
	memory     = 0.98 // decay of a count per observation
	doubt      = 4    // weight of the prior, in verified guesses
)

// Guess is the proposal for one sequence in a step.
type Guess struct {
	Rates  *Rates
	Agreed int // length of the match before it, in tokens
	Tokens int // tokens that are available or can be made
	Take   int // tokens to verify, set by [Policy.Choose]

	// For guesses of a draft model, which makes tokens one by one on demand.
	Model   bool
	Sampled bool      // drawn at random, not greedy
	Made    int       // tokens that are made; they are always verified
	Sure    []float64 // log-odds of each made token's probability, and of the next one's where the model has computed it
	Behind  int       // tokens that the model must compute before it can make the next token that Sure has no entry for

	survives float64 // probability that Take+1 tokens are all right
}

// class returns the class that counts token i of the guess: by match length, or by the draft
// model's confidence.
func (g *Guess) class(i int) int {
	n := g.Agreed + i
	switch {
	case g.Model && i < len(g.Sure):
		class := g.anySure() + 1
		for _, least := range sure {
			if g.Sure[i] >= least {
				class++
			}
		}
		return class
	case g.Model:
		return g.anySure()
	case n <= 3:
		return n
	case n <= 5:
		return 4
	case n <= 8:
		return 5
	case n <= 16:
		return 6
	}
	return 7
}

// anySure returns the class of all guesses of a draft model together.
func (g *Guess) anySure() int {
	if g.Sampled {
		return looked + modelled
	}
	return looked
}

// sure are the thresholds of log-odds between classes of confidence.
var sure = [...]float64{0.5, 1, 2, 3, 5}

// Classes of guesses: by match length of a lookup, then the greedy tokens of a draft model and
// its drawn tokens, for each of these all together first and then by confidence.
const (
	looked   = 8
	modelled = 1 + 1 + len(sure)
	classes  = looked + 2*modelled
)

// atFirst is the prior probability that a guess is right, by class.
var atFirst = [classes]float64{
	0.35, 0.5, 0.6, 0.6, 0.7, 0.8, 0.85, 0.9,
	0.7, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95,
	0.7, 0.6, 0.65, 0.7, 0.8, 0.9, 0.95,
}

// Rates count how often guesses were right, given that those before them were.
type Rates struct{ right, verified [classes]float64 }

func (r *Rates) add(class int, right bool) {
	r.right[class] *= memory
	r.verified[class] = r.verified[class]*memory + 1
	if right {
		r.right[class]++
	}
}

// Policy decides how many guesses are verified. It is used by one goroutine at a time.
type Policy struct {
	all   Rates
	first []float64 // seconds of a step by tokens, measured at start-up; 0: not measured
	plain curve     // of a plain step, by number of sequences
	mixed curve     // of a step with guesses, by number of tokens
	model scale     // of a step of the draft model

	balance float64 // seconds that guessing may lose
	spent   float64 // seconds of guessing for the next step
	behind  float64 // least seconds in which the draft model can make a first guess
	gain    float64 // recent speedup of steps with guesses over plain decoding
	begun   int     // number of plain decode steps
	trying  bool    // whether the next step verifies guesses without an expected speedup
	refused int     // consecutive rounds of guesses that were rejected
	wary    int     // steps that verified fewer guesses than could be tried to measure their time
	further int     // tokens that the next step verifies to measure its time
	order   []int
	levels  []int // by step of the draft model to come: tokens
}

// NewPolicy returns a policy for steps of at most the given number of tokens.
func NewPolicy(tokens int) *Policy {
	return &Policy{first: make([]float64, tokens+1), plain: make(curve, tokens+1), mixed: make(curve, tokens+1)}
}

// curve holds estimates by number of tokens.
type curve []estimate

// estimate is the time of steps of one kind.
type estimate struct {
	seconds float64 // 0: not measured
	steps   int     // measured steps
	age     int     // steps with guesses since
}

// add records a measurement. Longer times weigh less than shorter ones, because other load on
// the machine only lengthens steps.
func (e *estimate) add(seconds float64) {
	if seconds <= 0 {
		return
	}
	e.steps++
	weight := max(1/float64(e.steps), min(recent*float64(1+e.age/soon), 0.5))
	e.age = 0
	switch {
	case e.steps == 1:
		e.seconds = seconds
	case seconds < e.seconds:
		e.seconds += weight * (seconds - e.seconds)
	default:
		e.seconds += weight / 3 * (min(seconds, 2*e.seconds) - e.seconds)
	}
}

// at returns the estimate for steps of n tokens; beyond the curve it returns a scratch value.
func (c curve) at(tokens int) *estimate {
	if tokens < 0 || tokens >= len(c) {
		return new(estimate)
	}
	return &c[tokens]
}

// perToken is the assumed cost of one more token before any measurement, in steps of one token.
const perToken = 0.1

// line interpolates the time of steps by tokens between measurements, starting at a step without
// guesses.
type line struct {
	policy       *Policy
	decoding     int     // tokens in the step without guesses
	plain        float64 // seconds of that step
	ratio        float64 // of the time of steps to that measured at start-up; 0: unknown
	n, next      int     // measured token counts below and above the current one; next is 0 at the start
	at, per      float64
	least        float64 // minimum seconds per token beyond the measurements
	extrapolated bool
}

func (b *Policy) lineFrom(decoding int) line {
	plain := b.plain[decoding].seconds
	per := perToken * plain / float64(decoding)
	l := line{policy: b, decoding: decoding, plain: plain, n: decoding, at: plain, per: per, least: per / 4}
	if first := b.firstOf(decoding); first > 0 {
		l.ratio = plain / first
	}
	return l
}

// firstOf returns the start-up time of a step of the given number of tokens, interpolated
// between measurements; 0 beyond them.
func (b *Policy) firstOf(tokens int) float64 {
	below, above := tokens, tokens
	for below > 0 && b.first[below] == 0 {
		below--
	}
	for above < len(b.first) && b.first[above] == 0 {
		above++
	}
	switch {
	case below == 0 || above == len(b.first):
		return 0
	case below == above:
		return b.first[below]
	}
	return b.first[below] + (b.first[above]-b.first[below])*float64(tokens-below)/float64(above-below)
}

// measured returns the time of steps of n tokens, 0 if unknown. It scales a start-up measurement
// by ratio, because the machine's load may have differed then. It ignores one by which guesses
// would cost as much per token as plain decoding, as such guesses would never run and never be
// measured again.
func (l *line) measured(tokens int) float64 {
	if e := l.policy.mixed.at(tokens); e.steps > 0 {
		return e.seconds
	}
	if seconds := l.ratio * l.policy.first[tokens]; seconds < l.plain*float64(tokens)/float64(l.decoding) {
		return seconds
	}
	return 0
}

// seconds returns the time of a step of n tokens. Calls must be in rising order of n.
func (l *line) seconds(tokens int) float64 {
	for !l.extrapolated && tokens > l.next {
		if l.next > 0 {
			l.n, l.at = l.next, l.at+l.per*float64(l.next-l.n)
		}
		most := len(l.policy.mixed)
		next := max(l.next, l.n) + 1
		for next < most && l.measured(next) == 0 {
			next++
		}
		if next >= most { // extrapolates
			l.extrapolated, l.per = true, max(l.per, l.least)
			break
		}
		l.next, l.per = next, max(0, l.measured(next)-l.at)/float64(next-l.n)
	}
	return l.at + l.per*float64(tokens-l.n)
}

// scale holds seconds at powers of two of tokens, up to whole prompts.
type scale [32]float64

// place returns the exponent of the largest power of two that is not above tokens, and the
// position between it and the next, 0 to 1.
func place(tokens int) (power int, way float64) {
	power = bits.Len(uint(tokens)) - 1
	return power, float64(tokens)/float64(int(1)<<power) - 1
}

// seconds returns the time of a step of n tokens: 0 for none, and before any measurement.
func (s *scale) seconds(tokens int) float64 {
	if tokens == 0 {
		return 0
	}
	i, way := place(tokens)
	return s.point(i)*(1-way) + s.point(i+1)*way
}

// point returns the seconds at a power of two. Where none were measured it scales the next lower
// measurement by the number of tokens, or returns the next higher one.
func (s *scale) point(i int) float64 {
	for below := i; below >= 0; below-- {
		if s[below] > 0 {
			return s[below] * float64(int(1)<<(i-below))
		}
	}
	for _, above := range s[i:] {
		if above > 0 {
			return above
		}
	}
	return 0
}

// add records a measurement.
func (s *scale) add(tokens int, seconds float64) {
	if tokens < 1 || seconds <= 0 {
		return
	}
	i, way := place(tokens)
	was := s.seconds(tokens)
	if was == 0 || s[i] == 0 && way == 0 {
		s[i] = seconds / (1 + way)
		return
	}
	by := 0.3 * (seconds - was) / was
	if seconds > was {
		by = 0.1 * (min(seconds, 2*was) - was) / was
	}
	s[i], s[i+1] = s.point(i)*(1+by*(1-way)), s.point(i+1)*(1+by*way)
}

// rate returns the probability that a guess is right, given that those before it are.
func (b *Policy) rate(r *Rates, class int) float64 {
	others := (b.all.right[class] + doubt*atFirst[class]) / (b.all.verified[class] + doubt)
	return (r.right[class] + doubt*others) / (r.verified[class] + doubt)
}

// Choose sets Take of each guess for a step in which decoding sequences bring one token each, to
// at most most tokens in total, and returns the total. Where Take exceeds a draft model's Made,
// the model makes one more token for each of these guesses and Choose is called again.
func (b *Policy) Choose(decoding int, guesses []Guess, most int) int {
	made, brought := 0, float64(decoding)
	b.behind = 0
	for i := range guesses {
		g := &guesses[i]
		if seconds := b.model.seconds(g.Behind); g.Model && (b.behind == 0 || seconds < b.behind) {
			b.behind = seconds
		}
		g.Take, g.survives = 0, b.rate(g.Rates, g.class(0))
		for g.Take < g.Made {
			brought += b.take(g)
		}
		made += g.Made
	}
	without := b.plain.at(decoding)
	if without.steps < few || b.begun < enough || made == 0 && without.age >= b.interval() {
		return made
	}
	plain, steps, drafting := without.seconds, b.lineFrom(decoding), b.spent
	value := func(brought, seconds float64) float64 { return brought * plain / (seconds * float64(decoding)) }
	best, highest, furthest := made, 0.0, made
	if made > 0 || b.spent > 0 && !b.trying {
		highest = value(brought, steps.seconds(decoding+made)+drafting)
	}
	b.order = b.order[:0]
	clear(b.levels)
	most = min(most, steps.known())
	for n := made + 1; n <= most; n++ {
		next, survives := -1, hopeless
		for i := range guesses {
			if g := &guesses[i]; g.Take < g.Tokens && g.survives > survives {
				next, survives = i, g.survives
			}
		}
		if next < 0 {
			break
		}
		drafting += b.makes(&guesses[next])
		brought += b.take(&guesses[next])
		b.order = append(b.order, next)
		seconds := steps.seconds(decoding+n) + drafting
		if seconds-plain > b.balance/2 { // the loss if all are wrong
			break
		}
		if steps.extrapolated {
			furthest = n
		}
		if value := value(brought, seconds); value > highest {
			best, highest = n, value
		}
	}
	if made == 0 && best > 0 && b.spent == 0 && highest < worthwhile {
		if b.refused++; b.refused < curious {
			best = 0
		} else {
			b.trying, b.further = true, furthest
		}
	}
	if highest >= worthwhile && furthest > best {
		if b.wary++; b.wary >= curious {
			b.wary, b.further = 0, furthest
		}
	}
	if best > 0 {
		best = max(best, min(b.further, furthest))
	}
	for _, i := range b.order[best-made:] {
		guesses[i].Take--
	}
	if best > 0 {
		b.refused = 0
	}
	return best
}

// take increments Take, and returns the probability that the added token is right.
func (b *Policy) take(g *Guess) (survives float64) {
	survives = g.survives
	g.Take++
	g.survives *= b.rate(g.Rates, g.class(g.Take))
	return survives
}

// makes returns the added seconds for a draft model to make one more token of a guess, beside
// those already taken of all guesses: sequences share the model's steps.
func (b *Policy) makes(g *Guess) float64 {
	step := g.Take - len(g.Sure)
	if !g.Model || step < 0 {
		return 0
	}
	tokens := 1
	if step == 0 {
		tokens = g.Behind
	}
	for len(b.levels) <= step {
		b.levels = append(b.levels, 0)
	}
	before := b.levels[step]
	b.levels[step] += tokens
	return b.model.seconds(before+tokens) - b.model.seconds(before)
}

// Likelier reports whether the first token of one guess is more probably right than that of
// another.
func (b *Policy) Likelier(one, other *Guess) bool {
	return b.rate(one.Rates, one.class(0)) > b.rate(other.Rates, other.class(0))
}

// known returns the number of guesses per step whose time can be estimated: about twice the
// largest measured.
func (l *line) known() int {
	most := len(l.policy.mixed) - 1
	n := most
	for n > l.decoding && l.measured(n) == 0 {
		n--
	}
	return min(2*(n-l.decoding)+1, most-l.decoding)
}

// Verified records that the first right tokens of the Take verified ones were right.
func (b *Policy) Verified(g *Guess, right int) {
	for i := range min(right+1, g.Take) {
		b.count(g, g.class(i), i < right)
		if g.Model {
			b.count(g, g.anySure(), i < right)
		}
	}
}

func (b *Policy) count(g *Guess, class int, right bool) {
	b.all.add(class, right)
	g.Rates.add(class, right)
}

// Measured records the start-up time of a step of one sequence with a row of logits for each
// token. Only ratios between such times are used.
func (b *Policy) Measured(tokens int, seconds float64) {
	if tokens < len(b.first) {
		b.first[tokens] = seconds
	}
}

// MeasuredModel records the start-up time of a step of the draft model.
func (b *Policy) MeasuredModel(tokens int, seconds float64) { b.model.add(tokens, seconds) }

// Made records the time in which the draft model computed tokens for guesses of the next step.
func (b *Policy) Made(tokens int, seconds float64) {
	if was := b.model.seconds(tokens); was > 0 {
		b.spent += min(seconds, 2*was) // the excess comes from other load
	} else {
		b.spent += seconds
	}
	b.model.add(tokens, seconds)
}

// Sought records other time spent on guessing for the next step.
func (b *Policy) Sought(seconds float64) { b.spent += seconds }

// Plain records the time of a step of decoding sequences with one token each and nothing else.
func (b *Policy) Plain(decoding int, seconds float64) {
	plain := b.plain.at(decoding)
	plain.add(seconds)
	if b.begun++; b.begun == enough {
		b.balance += credit * plain.seconds
	}
	b.save(Allowance*seconds, plain)
}

// Drafted records the time of a step of tokens, one for each of decoding sequences and else
// guesses, and the number of tokens that it generated. seconds is 0 for a step that held prompts
// too.
func (b *Policy) Drafted(decoding, tokens, came int, seconds float64) {
	plain := b.plain.at(decoding)
	plain.age++
	if seconds > 0 {
		e, steps := b.mixed.at(tokens), b.lineFrom(decoding)
		was := steps.measured(tokens)
		if e.steps == 0 {
			e.add(was)
		}
		e.add(seconds)
		if was > 0 {
			seconds = min(seconds, 2*was) // the excess comes from other load
		}
	} else {
		steps := b.lineFrom(decoding)
		seconds = steps.seconds(tokens)
	}
	gained := plain.seconds * float64(came) / float64(decoding)
	b.gain += recent * (gained/(seconds+b.spent) - b.gain)
	b.save(gained-seconds, plain)
}

// save adds the seconds that a step gained to the balance, less those spent on guessing for it.
func (b *Policy) save(seconds float64, plain *estimate) {
	b.balance = min(b.balance+seconds-b.spent, max(saved*plain.seconds, caughtUp*b.behind))
	b.spent, b.trying, b.further = 0, false, 0
}

// interval returns the number of steps with guesses between two plain ones, which measure the
// baseline. The plain steps then lose at most half of the allowance, given the recent speedup of
// the others.
func (b *Policy) interval() int {
	return int(min(max((1-1/max(b.gain, 1))/(Allowance/2), soon), late))
}
