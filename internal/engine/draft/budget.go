package draft

// Allowance is the share of the time of plain decoding that guesses may lose.
const Allowance = 0.01

const (
	worthwhile = 1.03 // tokens a second against plain decoding, from where guesses are taken
	hopeless   = 0.02 // probability to survive, from where none follow
	stale      = 64   // steps with guesses, after which one goes without: what that takes may have changed
	curious    = 16   // steps whose guesses were not worthwhile, after which some are taken all the same
	saved      = 8    // steps of plain decoding: most that gains are remembered for
	memory     = 0.98 // of a count, when one more comes
	doubt      = 4    // verified guesses that weigh as much as what was known before them
)

// Guess is what is proposed for one sequence in a step.
type Guess struct {
	Rates  *Rates
	Agreed int  // tokens before it that speak for it
	Model  bool // it is a model's, for which nothing has to agree
	Tokens int  // how many are proposed
	Take   int  // how many shall be verified

	survives float64 // how probable it is that one more than Take are all right
}

// class is what the guess's tokens are counted with: by length of agreement, or by how many
// a model has guessed before.
func (g *Guess) class(i int) int {
	n := g.Agreed + i
	switch {
	case g.Model:
		return firstOfModel + min(i, classes-1-firstOfModel)
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

const (
	firstOfModel = 8
	classes      = 12
)

// atFirst is how probable it is that a guess is right before any was verified.
var atFirst = [classes]float64{0.35, 0.5, 0.6, 0.6, 0.7, 0.8, 0.85, 0.9, 0.7, 0.7, 0.7, 0.7}

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
	plain curve // seconds of a step of so many sequences that bring a token each
	mixed curve // of a step of so many tokens, guesses among them

	balance float64 // seconds that may be lost
	begun   bool
	since   int // steps with guesses since one without
	refused int // steps whose guesses were not worthwhile
	order   []int
}

// NewBudget returns one for steps of at most so many tokens.
func NewBudget(tokens int) *Budget {
	return &Budget{plain: make(curve, tokens+1), mixed: make(curve, tokens+1)}
}

// curve is seconds by tokens; 0 where nothing was measured.
type curve []float64

// add takes a measurement. What others do on the machine makes steps longer, never shorter.
func (c curve) add(n int, seconds float64) {
	if n >= len(c) || seconds <= 0 {
		return
	}
	switch was := c[n]; {
	case was == 0:
		c[n] = seconds
	case seconds < was:
		c[n] += 0.3 * (seconds - was)
	default:
		c[n] += 0.1 * (min(seconds, 2*was) - was)
	}
}

// perToken is what a token more is taken to cost before any was measured, in steps of one.
const perToken = 0.1

// line is a curve between what was measured, from a step without guesses on.
type line struct {
	curve        curve
	n, next      int // measured, between which it is; next: 0 before it was asked
	at, per      float64
	least        float64 // that a token costs where nothing was measured
	extrapolated bool
}

func (b *Budget) lineFrom(decoding int) line {
	per := perToken * b.plain[decoding] / float64(decoding)
	return line{curve: b.mixed, n: decoding, at: b.plain[decoding], per: per, least: per / 4}
}

// seconds returns what a step of so many tokens takes; it is asked in rising order.
func (l *line) seconds(tokens int) float64 {
	for !l.extrapolated && tokens > l.next {
		if l.next > 0 {
			l.n, l.at = l.next, l.at+l.per*float64(l.next-l.n)
		}
		next := max(l.next, l.n) + 1
		for next < len(l.curve) && l.curve[next] == 0 {
			next++
		}
		if next >= len(l.curve) { // it goes on as it came
			l.extrapolated, l.per = true, max(l.per, l.least)
			break
		}
		l.next, l.per = next, max(0, l.curve[next]-l.at)/float64(next-l.n)
	}
	return l.at + l.per*float64(tokens-l.n)
}

// rate returns how probable it is that a guess is right, when those before it are.
func (b *Budget) rate(r *Rates, class int) float64 {
	others := (b.all.right[class] + doubt*atFirst[class]) / (b.all.verified[class] + doubt)
	return (r.right[class] + doubt*others) / (r.verified[class] + doubt)
}

// Choose sets how many of the guesses are verified in a step in which so many sequences bring
// a token each, of all together at most so many, and returns their sum.
func (b *Budget) Choose(decoding int, guesses []Guess, most int) int {
	for i := range guesses {
		g := &guesses[i]
		g.Take, g.survives = 0, b.rate(g.Rates, g.class(0))
	}
	if decoding < 1 || decoding >= len(b.plain) || b.plain[decoding] == 0 {
		return 0
	}
	plain := b.plain[decoding]
	if b.since >= stale {
		return 0
	}
	b.order = b.order[:0]
	steps, brought, best, highest := b.lineFrom(decoding), float64(decoding), 0, 0.0
	for n := 1; n <= min(most, b.known(decoding)); n++ {
		next, survives := -1, hopeless
		for i := range guesses {
			if g := &guesses[i]; g.Take < g.Tokens && g.survives > survives {
				next, survives = i, g.survives
			}
		}
		if next < 0 {
			break
		}
		g := &guesses[next]
		g.Take++
		g.survives *= b.rate(g.Rates, g.class(g.Take))
		b.order = append(b.order, next)
		brought += survives
		seconds := steps.seconds(decoding + n)
		if seconds-plain > b.balance/2 { // which is lost when all are wrong; the rest is for another time
			break
		}
		if value := brought * plain / (seconds * float64(decoding)); value > highest {
			best, highest = n, value
		}
	}
	if best > 0 && highest < worthwhile {
		if b.refused++; b.refused < curious {
			best = 0
		}
	}
	for _, i := range b.order[best:] {
		guesses[i].Take--
	}
	if best > 0 {
		b.refused = 0
	}
	return best
}

// known returns how many guesses a step may have whose time can be told from what was
// measured: about twice as many as any had.
func (b *Budget) known(decoding int) int {
	n := len(b.mixed) - 1
	for n > decoding && b.mixed[n] == 0 {
		n--
	}
	return min(2*(n-decoding)+1, len(b.mixed)-1-decoding)
}

// Verified tells how many of the guesses that were taken were right.
func (b *Budget) Verified(g *Guess, right int) {
	for i := range min(right+1, g.Take) {
		b.all.add(g.class(i), i < right)
		g.Rates.add(g.class(i), i < right)
	}
}

// Measured tells what a step took of so many tokens of one sequence, with a row of logits
// each, before there was anything to decode.
func (b *Budget) Measured(tokens int, seconds float64) { b.mixed.add(tokens, seconds) }

// Plain tells what a step took of so many sequences that brought a token each and nothing
// else.
func (b *Budget) Plain(decoding int, seconds float64) {
	b.plain.add(decoding, seconds)
	b.since = 0
	if !b.begun && decoding < len(b.plain) {
		b.begun, b.balance = true, b.plain[decoding]
	}
	b.save(Allowance*seconds, decoding)
}

// Drafted tells what a step took of so many tokens, of which these sequences brought one
// each and the others were guesses, and how many came of it. Where prompts were in the step
// too, the time says nothing: then it is 0.
func (b *Budget) Drafted(decoding, tokens, came int, seconds float64) {
	plain := b.plain[decoding]
	if seconds > 0 {
		b.since++
		if was := b.mixed[tokens]; was > 0 {
			b.mixed.add(tokens, seconds)
			seconds = min(seconds, 2*was) // more than that is not the step's own
		} else {
			b.mixed.add(tokens, seconds)
		}
	} else {
		steps := b.lineFrom(decoding)
		seconds = steps.seconds(tokens)
	}
	b.save(plain*float64(came)/float64(decoding)-seconds, decoding)
}

func (b *Budget) save(seconds float64, decoding int) {
	if decoding < len(b.plain) {
		b.balance = min(b.balance+seconds, saved*b.plain[decoding])
	}
}
