package engine

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/engine/pages"
	"github.com/smelt-ml/smelt/lower/plan"
)

// Draft is a smaller model with the same vocabulary, loaded on a device.
type Draft struct {
	Plan       *plan.Plan
	Executable *device.Executable
	Limits     Limits // of its steps, for at least as many sequences as the engine has
	Blocks     int    // of its cache
}

// drafter continues an engine's sequences with a smaller model over a cache of its own. It is
// used by the engine's goroutines, one at a time.
type drafter struct {
	runner *Runner
	pool   *pages.Pool
	tokens int // maximum number of tokens of a step
	piece  int // maximum number of tokens of a sequence in a step
	vocab  int // number of ids that both models have

	chains  []*chain // that have blocks
	pieces  []batch.Piece
	stepped []*chain // by piece of the step
}

// chain is a sequence in a drafter: its tokens, followed by those that the drafter made.
type chain struct {
	table      *pages.Table
	sampler    *Sampler   // nil: greedy
	constraint Constraint // nil: any
	tokens     []int32
	agreed     int // leading tokens that are the sequence's own
	computed   int // leading tokens that are in the cache

	made []Proposal // tokens after the agreed ones
	sure []float64  // log-odds of each made token's probability, and of the next one's where it is computed
	lost bool       // whether the chain cannot be continued in this step
}

// newDrafter allocates the cache. Ids from vocab on are not in the engine's model.
func newDrafter(d *Draft, vocab int) (*drafter, error) {
	r, err := NewRunner(d.Plan, d.Executable, d.Blocks)
	if err != nil {
		return nil, err
	}
	return &drafter{
		runner: r, pool: r.newPool(d.Blocks), tokens: d.Limits.Tokens, piece: longest(d.Plan), vocab: min(vocab, r.vocab),
	}, nil
}

// begin returns a chain for a request.
func (d *drafter) begin(q *Request) *chain {
	c := &chain{table: d.pool.NewTable(q.Salt), constraint: q.Constraint}
	if q.Sampling.Temperature > 0 {
		c.sampler = newSampler(q.Sampling, ofDrafts)
	}
	return c
}

// end releases a chain.
func (d *drafter) end(c *chain) {
	if i := slices.Index(d.chains, c); i >= 0 {
		d.release(i)
	}
}

func (d *drafter) release(i int) {
	c := d.chains[i]
	c.table.Release()
	c.computed = 0
	d.chains = slices.Delete(d.chains, i, i+1)
}

// follow sets the agreed tokens to the sequence's and drops made tokens that differ from them.
func (c *chain) follow(tokens []int32) {
	n := c.agreed
	for n < min(len(c.tokens), len(tokens)) && c.tokens[n] == tokens[n] {
		n++
	}
	c.tokens = append(c.tokens[:n], tokens[n:]...)
	c.agreed, c.computed = len(tokens), min(c.computed, n, len(tokens)-1)
	c.made, c.sure, c.lost = c.made[:0], c.sure[:0], false
}

// behind returns the number of tokens to compute before another can be made.
func (c *chain) behind() int { return len(c.tokens) - c.computed }

// room returns the number of tokens that can be made after a sequence of the given length.
func (d *drafter) room(tokens int) int {
	return max(0, min(d.runner.plan.Context, d.pool.Blocks()*d.runner.block)-tokens)
}

// next returns the slot for the next made token, reusing memory.
func (c *chain) next() *Proposal {
	if n := len(c.made); n == cap(c.made) {
		c.made = append(c.made, Proposal{})[:n]
	}
	return &c.made[:len(c.made)+1][len(c.made)]
}

// take makes the next token from the logits of the last step.
func (c *chain) take() {
	p := c.next()
	if c.sampler != nil {
		c.sampler.propose(p)
	}
	c.made, c.tokens = c.made[:len(c.made)+1], append(c.tokens, p.ID)
}

// step computes all missing tokens of chains, so that each can make one more token, and returns
// their number. It marks the chains that it has no blocks for as lost.
func (d *drafter) step(ctx context.Context, chains []*chain) (tokens int, err error) {
	for _, c := range chains {
		c.lost = !d.grow(c, chains)
	}
	for {
		d.pieces, d.stepped = d.pieces[:0], d.stepped[:0]
		left := d.tokens
		for _, c := range chains {
			if n := min(c.behind(), left, d.piece); n > 0 && !c.lost && len(c.sure) == len(c.made) {
				p := batch.Piece{Tokens: c.tokens[c.computed:][:n], Start: c.computed, Blocks: c.table.Blocks(), Rows: batch.None}
				if n == c.behind() {
					p.Rows = batch.Last
				}
				d.pieces, d.stepped = append(d.pieces, p), append(d.stepped, c)
				left -= n
			}
		}
		if len(d.pieces) == 0 {
			return tokens, nil
		}
		tokens += d.tokens - left
		if err := d.run(ctx); err != nil {
			d.forget()
			return tokens, fmt.Errorf("draft model %s: %w", d.runner.plan.Model, err)
		}
	}
}

// run runs one step and reads its logits.
func (d *drafter) run(ctx context.Context) error {
	if err := d.runner.copyFor(ctx, d.pool); err != nil {
		return err
	}
	if err := d.runner.Run(ctx, d.pieces...); err != nil {
		return err
	}
	logits, err := d.runner.Logits()
	if err != nil {
		return err
	}
	for i, c := range d.stepped {
		c.computed += len(d.pieces[i].Tokens)
		c.table.Commit(c.tokens, min(c.computed, c.agreed))
		if d.pieces[i].Rows == batch.Last {
			if err := c.look(logits[:d.vocab]); err != nil {
				return fmt.Errorf("%w after %d tokens", err, len(c.tokens))
			}
			logits = logits[d.runner.vocab:]
		}
	}
	return nil
}

// look finds the candidate for the next token and its log-odds. It considers only tokens that
// the constraint allows, and marks the chain as lost where these are not known.
func (c *chain) look(logits []float32) error {
	if c.constraint != nil {
		if ok, err := c.constraint.Limit(c.made, logits); err != nil || !ok {
			c.lost = true
			return err
		}
	}
	if c.sampler == nil {
		best, second, err := firstTwo(logits)
		if err != nil {
			return err
		}
		c.next().ID, c.sure = best, append(c.sure, float64(logits[best]-second))
		return nil
	}
	from := &c.next().from
	if err := c.sampler.spread(logits, from); err != nil {
		return err
	}
	p := from.largest()
	c.sure = append(c.sure, math.Log(p/(1-p)))
	return nil
}

// grow allocates blocks for all of a chain's tokens, and evicts chains outside the step where
// none are free.
func (d *drafter) grow(c *chain, step []*chain) bool {
	for {
		if len(c.table.Blocks()) == 0 {
			if n, ok := c.table.Begin(c.tokens[:c.agreed], len(c.tokens), 0); ok {
				c.computed = n
				d.chains = append(d.chains, c)
				return true
			}
		} else if c.table.Extend(c.computed, len(c.tokens)) {
			return true
		}
		i := slices.IndexFunc(d.chains, func(other *chain) bool { return !slices.Contains(step, other) })
		if i < 0 {
			return false
		}
		d.release(i)
	}
}

// forget drops the whole cache, whose contents are unknown after a failed step.
func (d *drafter) forget() {
	d.pool.Forget()
	for len(d.chains) > 0 {
		d.release(len(d.chains) - 1)
	}
}
