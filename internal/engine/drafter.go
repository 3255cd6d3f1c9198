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

// Draft is a smaller model of the same vocabulary, on a device.
type Draft struct {
	Plan       *plan.Plan
	Executable *device.Executable
	Limits     Limits // of its steps, for as many sequences as the engine has
	Blocks     int    // of its cache
}

// drafter is a smaller model that continues the sequences of an engine, over a cache of its
// own. It is of the engine's goroutines, one at a time.
type drafter struct {
	runner *Runner
	pool   *pages.Pool
	tokens int // most of a step
	piece  int // most of a sequence in a step
	vocab  int // ids that both models know

	chains  []*chain // that have blocks
	pieces  []batch.Piece
	stepped []*chain // by piece
}

// chain is a sequence as a drafter has it: its tokens, and those that were made after them.
type chain struct {
	table      *pages.Table
	sampler    *Sampler   // nil: the most likely tokens
	constraint Constraint // nil: any
	tokens     []int32
	agreed     int // of them, the first ones, which are the sequence's
	computed   int // of them, those in the cache

	made []Proposal // since agreed
	sure []float64  // of each that is made, and of the next where it can be: the logarithm of the odds
	lost bool       // there are no blocks for more
}

// newDrafter makes the cache. Ids from vocab on are not the other model's.
func newDrafter(d *Draft, vocab int) (*drafter, error) {
	r, err := NewRunner(d.Plan, d.Executable, d.Blocks)
	if err != nil {
		return nil, err
	}
	return &drafter{
		runner: r, pool: r.newPool(d.Blocks), tokens: d.Limits.Tokens, piece: longest(d.Plan), vocab: min(vocab, r.vocab),
	}, nil
}

// begin makes a chain for a request.
func (d *drafter) begin(q *Request) *chain {
	c := &chain{table: d.pool.NewTable(q.Salt), constraint: q.Constraint}
	if q.Sampling.Temperature > 0 {
		c.sampler = newSampler(q.Sampling, ofDrafts)
	}
	return c
}

// end forgets a chain.
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

// follow takes what the sequence has become: what was made and is not of it is forgotten.
func (c *chain) follow(tokens []int32) {
	n := c.agreed
	for n < min(len(c.tokens), len(tokens)) && c.tokens[n] == tokens[n] {
		n++
	}
	c.tokens = append(c.tokens[:n], tokens[n:]...)
	c.agreed, c.computed = len(tokens), min(c.computed, n, len(tokens)-1)
	c.made, c.sure, c.lost = c.made[:0], c.sure[:0], false
}

// behind returns how many tokens are to be computed before another can be made.
func (c *chain) behind() int { return len(c.tokens) - c.computed }

// room returns how many tokens may be made after a sequence of so many.
func (d *drafter) room(tokens int) int {
	return max(0, min(d.runner.plan.Context, d.pool.Blocks()*d.runner.block)-tokens)
}

// next returns the place of the token behind those that are made, in memory that is used again.
func (c *chain) next() *Proposal {
	if n := len(c.made); n == cap(c.made) {
		c.made = append(c.made, Proposal{})[:n]
	}
	return &c.made[:len(c.made)+1][len(c.made)]
}

// take makes the next token, which the last step has brought the logits for.
func (c *chain) take() {
	p := c.next()
	if c.sampler != nil {
		c.sampler.propose(p)
	}
	c.made, c.tokens = c.made[:len(c.made)+1], append(c.tokens, p.ID)
}

// step computes the last tokens of chains and what else they are behind, so that each can
// make one more. Those are lost that there are no blocks for. It returns how many tokens it
// computed.
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
			return tokens, fmt.Errorf("the draft %s: %w", d.runner.plan.Model, err)
		}
	}
}

// run runs a step and looks at its logits.
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

// look finds what the next token can be, and how sure it is: of those that the constraint allows,
// without which the chain is lost.
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

// grow gets blocks for all of a chain's tokens, from chains that are not of the step where
// there are none left.
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

// forget drops all that is in the cache, which is not known after a step that failed.
func (d *drafter) forget() {
	d.pool.Forget()
	for len(d.chains) > 0 {
		d.release(len(d.chains) - 1)
	}
}
