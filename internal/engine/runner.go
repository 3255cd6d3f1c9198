package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/engine/pages"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"
)

// Runner runs steps on a device, with any mixture of sequences whose keys and values lie in
// blocks of one cache. Its user assigns the blocks and chooses the steps; the sizes of a step
// select the Plan's phase. It is used by one goroutine at a time.
type Runner struct {
	plan  *plan.Plan
	run   *device.Instance
	block int    // slots of a cache block
	name  string // of the result: Logits or Embeddings
	vocab int    // width of a row of it
	next  bool   // the plan returns Next

	stateful bool // the plan has recurrent states

	copies int // maximum number of blocks copied in a step; 0 where the plan has no copying phase

	packed, copying batch.Step
	step            device.Step
}

// NewRunner allocates caches of the given numbers of blocks, an arena, and buffers for results.
func NewRunner(plan *plan.Plan, executable *device.Executable, blocks int, windows ...device.Window) (*Runner, error) {
	return newRunner(plan, executable, Logits, blocks, windows...)
}

func newRunner(compiled *plan.Plan, executable *device.Executable, result string, blocks int, windows ...device.Window) (*Runner, error) {
	r := &Runner{plan: compiled, block: compiled.Block(), name: result, stateful: compiled.Stateful()}
	one := sym.Sizes{sym.T: 1, sym.B: 1, sym.R: 1, sym.NB: 1, sym.Smax: 1}
	for i := range compiled.Buffers {
		b := &compiled.Buffers[i]
		switch {
		case b.Kind == plan.Output && b.Name == result:
			r.vocab = int(b.Bytes.Eval(&one) / b.DType.Bytes(1))
		case b.Kind == plan.Output && b.Name == Next:
			r.next = true
		}
	}
	for i := range compiled.Phases {
		r.copies = max(r.copies, int(compiled.Phases[i].Bounds[sym.C]))
	}
	if r.vocab == 0 {
		return nil, fmt.Errorf("the plan of %s returns no %q%s", compiled.Model, result, hints[result])
	}
	var err error
	if r.run, err = executable.NewInstance(blocks, windows...); err != nil {
		return nil, err
	}
	return r, nil
}

// Close releases the memory.
func (r *Runner) Close() error { return r.run.Close() }

// Instance returns the loaded program's instance, for its counters and memory.
func (r *Runner) Instance() *device.Instance { return r.run }

// Vocab returns the width of a row of logits.
func (r *Runner) Vocab() int { return r.vocab }

// Run runs one step of the given pieces of sequences.
func (r *Runner) Run(ctx context.Context, sequences ...batch.Piece) error {
	r.pack(&r.packed, sequences)
	return r.runPacked(ctx, &r.packed)
}

// Profile runs a step like Run and times its dispatches.
func (r *Runner) Profile(ctx context.Context, sequences ...batch.Piece) (Profiled, error) {
	r.step.Profile = true
	defer func() { r.step.Profile = false }()
	err := r.Run(ctx, sequences...)
	return r.profiled(), err
}

// profiled returns the timings of the last step.
func (r *Runner) profiled() Profiled {
	return Profiled{r.step.Phase, r.step.Sizes, r.run.Counters().Nanoseconds}
}

// pack packs a step, and may be called while another step runs.
func (r *Runner) pack(to *batch.Step, sequences []batch.Piece) {
	to.Pack(r.block, r.plan.Context, sequences...)
}

// Copy copies blocks of the cache, in steps of their own that run before a step writes to shared
// blocks. No block may be both read and written, or written twice.
func (r *Runner) Copy(ctx context.Context, copies ...batch.Copy) error {
	for some := range slices.Chunk(copies, max(r.copies, 1)) {
		r.copying.PackCopies(some...)
		if err := r.runPacked(ctx, &r.copying); err != nil {
			return err
		}
	}
	return nil
}

// WindowBlocks returns the blocks that a cache has for each window of layers, and the number of recurrent
// states, where other layers have the given number of blocks: twice what all sequences hold, the second
// half for prefixes that are shared.
func WindowBlocks(plan *plan.Plan, limits Limits, blocks int) (windows []device.Window) {
	for i, keys := range plan.Windows() {
		if i > 0 {
			most := 2 * limits.Sequences * BlocksOf(plan, keys, min(longest(plan), limits.Tokens))
			windows = append(windows, device.Window{Keys: keys, Blocks: min(blocks, most)})
		}
	}
	if plan.Stateful() {
		windows = append(windows, device.Window{Keys: device.States, Blocks: pages.States(min(limits.Sequences, blocks))})
	}
	return windows
}

// ContextMemory returns the memory of an engine for one sequence of a whole context.
func ContextMemory(plan *plan.Plan, executable *device.Executable) (device.Memory, error) {
	blocks, limits := len(batch.Contiguous(plan.Block(), plan.Context)), LimitsOf(plan)
	limits.Sequences = 1
	return executable.InstanceMemory(blocks, WindowBlocks(plan, limits, blocks)...)
}

// BlocksOf returns the largest number of blocks that a sequence holds for layers with a window, when its
// steps add at most the given number of tokens.
func BlocksOf(plan *plan.Plan, window, tokens int) int {
	return pages.Reserve(window, plan.Block(), 1, tokens)
}

// newPool returns a pool of the runner's cache, which has the given numbers of blocks.
func (r *Runner) newPool(blocks int, windows ...device.Window) *pages.Pool {
	groups := []pages.Group{{Blocks: blocks}}
	if all := r.plan.Windows(); len(all) > 0 {
		groups[0].Window = all[0]
	}
	states := 0
	for _, w := range windows {
		if w.Keys == device.States {
			states = w.Blocks
		} else {
			groups = append(groups, pages.Group{Window: w.Keys, Blocks: w.Blocks})
		}
	}
	p := pages.NewGroups(r.block, groups...)
	if states > 0 {
		p.Recur(states)
	}
	if r.copies == 0 {
		p.Uncopied()
	}
	return p
}

// copyFor makes the copies that a pool of the runner's blocks requests.
func (r *Runner) copyFor(ctx context.Context, p *pages.Pool) error {
	if err := r.Copy(ctx, p.Copies()...); err != nil {
		return err
	}
	p.Copied()
	return nil
}

func (r *Runner) runPacked(ctx context.Context, s *batch.Step) error {
	phase := r.plan.PhaseFor(&s.Sizes, s.Longest)
	if phase < 0 {
		return fmt.Errorf("the plan of %s has no phase for a step of sizes %v, of which one sequence brings %d tokens",
			r.plan.Model, s.Sizes, s.Longest)
	}
	r.step.Phase, r.step.Sizes, r.step.Inputs = phase, s.Sizes, s.Inputs
	return r.run.Run(ctx, &r.step)
}

// piece returns the number of tokens, at most left, that a step of this sequence alone can take;
// 0 where no phase takes any.
func (r *Runner) piece(q batch.Piece, left int) (most int) {
	for i := range r.plan.Phases {
		ph := &r.plan.Phases[i]
		n := min(int64(left), ph.Bounds[sym.T], ph.Longest.Max)
		rows := int64(1)
		if q.Rows == batch.All {
			n = min(n, ph.Bounds[sym.R])
			rows = n
		}
		sizes := sym.Sizes{sym.T: n, sym.B: 1, sym.R: rows, sym.NB: int64(len(q.Blocks)), sym.Smax: batch.Smax(q.Start+int(n), r.plan.Context)}
		if ph.Takes(&sizes, n) {
			most = max(most, int(n))
		}
	}
	return most
}

// hints describe the purpose of a plan that lacks a result.
var hints = map[string]string{Logits: ": it embeds texts", Embeddings: ": it is for making text"}

// Logits returns the rows of logits that the last step was asked for, in order, [rows, Vocab],
// valid until the next step.
func (r *Runner) Logits() ([]float32, error) { return r.run.Output(r.name) }

// Chosen returns the most likely token of each row, or −1 where the row has a NaN.
func (r *Runner) Chosen() ([]int32, error) {
	if err := r.chooses(); err != nil {
		return nil, err
	}
	return r.run.OutputInts(Next)
}

func (r *Runner) chooses() error {
	if !r.next {
		return fmt.Errorf("the plan of %s returns no %q; choose from the logits", r.plan.Model, Next)
	}
	return nil
}
