package draft

import "math/bits"

// Allowance is the share of the time of plain decoding that guesses may lose.
const Allowance = 0.01

const (
	worthwhile = 1.03 // tokens a second against plain decoding, from where guesses are taken
	hopeless   = 0.02 // probability to survive, from where none follow
	soon       = 8    // steps with guesses at least, after which one goes without: what that takes may have changed
	late       = 64   // and at most
	enough     = 8    // steps of plain decoding before any guesses
	few        = 3    // of so many sequences as there are
	credit     = 2    // steps of plain decoding that may be lost to begin with
	recent     = 0.1  // weight of a measurement beside all before it
	curious    = 16   // steps whose guesses were not worthwhile, after which some are taken all the same
	saved      = 8    // steps of plain decoding: most that gains are remembered for
	caughtUp   = 3    // or as many times what a model takes to catch up, where that is more
	memory     = 0.98 // of a count, when one more comes
	doubt      = 4    // verified guesses that weigh as much as what was known before them
)

// Guess is what is proposed for one sequence in a step.
type Guess struct {
	Rates  *Rates
	Agreed int // tokens before it that speak for it
	Tokens int // how many there are, or may be
	Take   int // how many shall be verified

	// Of what a model guesses, a token after the other and only those that are wanted.
	Model   bool
	Sampled bool      // drawn, and not the most likely ones
	Made    int       // how many are made: these are verified in any case
	Sure    []float64 // how sure the model is of each, of one more than are made where it has come so far: the logarithm of the odds
	Behind  int       // tokens that it computes before it can make the next of which nothing is in Sure

	survives float64 // how probable it is that one more than Take are all right
}

// class is what the guess's tokens are counted with: by length of agreement, or by how sure a
// model is.
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

// anySure is the class of a model's guesses all together.
func (g *Guess) anySure() int {
	if g.Sampled {
		return looked + modelled
	}
	return looked
}

// sure are the logarithms of odds from where a model counts as surer.
var sure = [...]float64{0.5, 1, 2, 3, 5}

// The classes: of guesses that were looked up, of a model's most likely tokens and of those
// that it draws, first of all of these and then by how sure it is.
const (
	looked   = 8
	modelled = 1 + 1 + len(sure)
	classes  = looked + 2*modelled
)

// atFirst is how probable it is that a guess is right before any was verified.
var atFirst = [classes]float64{
	0.35, 0.5, 0.6, 0.6, 0.7, 0.8, 0.85, 0.9,
	0.7, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95,
	0.7, 0.6, 0.65, 0.7, 0.8, 0.9, 0.95,
}

// Rates count how often guesses were right, each after those before it were.
type Rates struct{ right, verified [classes]float64 }

func (r *Rates) add(class int, right bool) {
	r.right[class] *= memory
	r.verified[class] = r.verified[class]*memory + 1
	if right {
		r.right[class]++
	}
}

// Budget says how many guesses are verified. It is used by one goroutine at a time.
type Budget struct {
	all   Rates
	first []float64 // seconds of a step of so many tokens before there was anything to decode; 0: not measured
	plain curve     // of a step of so many sequences that bring a token each
	mixed curve     // of a step of so many tokens, guesses among them
	model scale     // of a step of the model that guesses

	balance float64 // seconds that may be lost
	spent   float64 // seconds of the model for the step that comes
	behind  float64 // seconds that the model takes at least to make a first guess
	gain    float64 // of steps with guesses, of late: tokens a second against plain decoding
	begun   int     // steps of plain decoding
	trying  bool    // guesses that are not worthwhile are made for that step
	refused int     // steps whose guesses were not worthwhile
	wary    int     // steps with fewer guesses than could be tried to see what they take
	further int     // guesses that are made for the step that comes, to see it
	order   []int
	levels  []int // by steps of the model to come: tokens
}

// NewBudget returns one for steps of at most so many tokens.
func NewBudget(tokens int) *Budget {
	return &Budget{first: make([]float64, tokens+1), plain: make(curve, tokens+1), mixed: make(curve, tokens+1)}
}

// curve is what was measured, by tokens.
type curve []estimate

// estimate is the seconds of steps alike.
type estimate struct {
	seconds float64 // 0: nothing was measured
	steps   int     // that were
	age     int     // steps with guesses since
}

// add takes a measurement. What others do on the machine makes steps longer, never shorter.
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

// at returns the estimate of steps of so many tokens; what is beyond the curve is forgotten.
func (c curve) at(tokens int) *estimate {
	if tokens < 0 || tokens >= len(c) {
		return new(estimate)
	}
	return &c[tokens]
}

// perToken is what a token more is taken to cost before any was measured, in steps of one.
const perToken = 0.1

// line is what steps take by tokens, between what was measured, from a step without guesses on.
type line struct {
	budget       *Budget
	decoding     int     // tokens of the step without guesses
	plain        float64 // and its seconds
	ratio        float64 // of what steps take to what they took at first; 0: not known
	n, next      int     // measured, between which it is; next: 0 before it was asked
	at, per      float64
	least        float64 // that a token costs where nothing was measured
	extrapolated bool
}

func (b *Budget) lineFrom(decoding int) line {
	plain := b.plain[decoding].seconds
	per := perToken * plain / float64(decoding)
	l := line{budget: b, decoding: decoding, plain: plain, n: decoding, at: plain, per: per, least: per / 4}
	if first := b.firstOf(decoding); first > 0 {
		l.ratio = plain / first
	}
	return l
}

// firstOf returns what a step of so many tokens took at first, between those that were
// measured: 0 beyond them.
func (b *Budget) firstOf(tokens int) float64 {
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

// measured returns what steps of so many tokens take: 0 where it is not known. What they took
// at first says it by its ratio to a step without guesses, as the machine may have been busier
// then. A token that takes as long as such a step is not believed: else it would never be
// tried, and so not be measured again.
func (l *line) measured(tokens int) float64 {
	if e := l.budget.mixed.at(tokens); e.steps > 0 {
		return e.seconds
	}
	if seconds := l.ratio * l.budget.first[tokens]; seconds < l.plain*float64(tokens)/float64(l.decoding) {
		return seconds
	}
	return 0
}

// seconds returns what a step of so many tokens takes; it is asked in rising order.
func (l *line) seconds(tokens int) float64 {
	for !l.extrapolated && tokens > l.next {
		if l.next > 0 {
			l.n, l.at = l.next, l.at+l.per*float64(l.next-l.n)
		}
		most := len(l.budget.mixed)
		next := max(l.next, l.n) + 1
		for next < most && l.measured(next) == 0 {
			next++
		}
		if next >= most { // it goes on as it came
			l.extrapolated, l.per = true, max(l.per, l.least)
			break
		}
		l.next, l.per = next, max(0, l.measured(next)-l.at)/float64(next-l.n)
	}
	return l.at + l.per*float64(tokens-l.n)
}

// scale is seconds by tokens, kept at powers of two: for steps of up to whole prompts.
type scale [32]float64

// place returns the power of two that is not above a number of tokens, and how far this is on
// the way to the next.
func place(tokens int) (power int, way float64) {
	power = bits.Len(uint(tokens)) - 1
	return power, float64(tokens)/float64(int(1)<<power) - 1
}

// seconds returns what a step of so many tokens takes: 0 of none, and before any was measured.
func (s *scale) seconds(tokens int) float64 {
	if tokens == 0 {
		return 0
	}
	i, way := place(tokens)
	return s.point(i)*(1-way) + s.point(i+1)*way
}

// point returns the seconds at a power of two: where they were not measured, as many times
// those of the next lower one as it has tokens, or those of the next higher one.
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

// add takes a measurement.
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

// rate returns how probable it is that a guess is right, when those before it are.
func (b *Budget) rate(r *Rates, class int) float64 {
	others := (b.all.right[class] + doubt*atFirst[class]) / (b.all.verified[class] + doubt)
	return (r.right[class] + doubt*others) / (r.verified[class] + doubt)
}

// Choose sets how many of the guesses are verified in a step in which so many sequences bring
// a token each, of all together at most so many, and returns their sum. Where more of a model's
// are taken than it has made, it makes one more of each of these, and Choose is asked again.
func (b *Budget) Choose(decoding int, guesses []Guess, most int) int {
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
		if seconds-plain > b.balance/2 { // which is lost when all are wrong; the rest is for another time
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

// take takes one more of a guess, and returns how probable it is that it brings a token.
func (b *Budget) take(g *Guess) (survives float64) {
	survives = g.survives
	g.Take++
	g.survives *= b.rate(g.Rates, g.class(g.Take))
	return survives
}

// makes returns the seconds that a model takes to make one more of a guess than it takes to
// make those that were taken of all: sequences share the model's steps.
func (b *Budget) makes(g *Guess) float64 {
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

// Likelier reports whether the first token of one guess is right more often than that of
// another.
func (b *Budget) Likelier(one, other *Guess) bool {
	return b.rate(one.Rates, one.class(0)) > b.rate(other.Rates, other.class(0))
}

// known returns how many guesses a step may have whose time can be told from what was
// measured: about twice as many as any had.
func (l *line) known() int {
	most := len(l.budget.mixed) - 1
	n := most
	for n > l.decoding && l.measured(n) == 0 {
		n--
	}
	return min(2*(n-l.decoding)+1, most-l.decoding)
}

// Verified tells how many of the guesses that were taken were right.
func (b *Budget) Verified(g *Guess, right int) {
	for i := range min(right+1, g.Take) {
		b.count(g, g.class(i), i < right)
		if g.Model {
			b.count(g, g.anySure(), i < right)
		}
	}
}

func (b *Budget) count(g *Guess, class int, right bool) {
	b.all.add(class, right)
	g.Rates.add(class, right)
}

// Measured tells what a step took of so many tokens of one sequence, with a row of logits
// each, before there was anything to decode. Such steps are compared with each other.
func (b *Budget) Measured(tokens int, seconds float64) {
	if tokens < len(b.first) {
		b.first[tokens] = seconds
	}
}

// MeasuredModel is Measured for a step of the model that guesses.
func (b *Budget) MeasuredModel(tokens int, seconds float64) { b.model.add(tokens, seconds) }

// Made tells what the model that guesses took to compute so many tokens, for guesses of the
// step that comes.
func (b *Budget) Made(tokens int, seconds float64) {
	if was := b.model.seconds(tokens); was > 0 {
		b.spent += min(seconds, 2*was) // more than that is not its own
	} else {
		b.spent += seconds
	}
	b.model.add(tokens, seconds)
}

// Sought tells what else it took to guess for the step that comes.
func (b *Budget) Sought(seconds float64) { b.spent += seconds }

// Plain tells what a step took of so many sequences that brought a token each and nothing
// else.
func (b *Budget) Plain(decoding int, seconds float64) {
	plain := b.plain.at(decoding)
	plain.add(seconds)
	if b.begun++; b.begun == enough {
		b.balance += credit * plain.seconds
	}
	b.save(Allowance*seconds, plain)
}

// Drafted tells what a step took of so many tokens, of which these sequences brought one
// each and the others were guesses, and how many came of it. Where prompts were in the step
// too, the time says nothing: then it is 0.
func (b *Budget) Drafted(decoding, tokens, came int, seconds float64) {
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
			seconds = min(seconds, 2*was) // more than that is not the step's own
		}
	} else {
		steps := b.lineFrom(decoding)
		seconds = steps.seconds(tokens)
	}
	gained := plain.seconds * float64(came) / float64(decoding)
	b.gain += recent * (gained/(seconds+b.spent) - b.gain)
	b.save(gained-seconds, plain)
}

// save adds what a step has gained to the balance, less what was spent for it.
func (b *Budget) save(seconds float64, plain *estimate) {
	b.balance = min(b.balance+seconds-b.spent, max(saved*plain.seconds, caughtUp*b.behind))
	b.spent, b.trying, b.further = 0, false, 0
}

// interval returns how many steps with guesses there are between two without, which say what
// guesses are compared with: so many that these lose half of the allowance, if they do, where
// the others gain as much as they did of late.
func (b *Budget) interval() int {
	return int(min(max((1-1/max(b.gain, 1))/(Allowance/2), soon), late))
}
