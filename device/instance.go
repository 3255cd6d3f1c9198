package device

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/lower/plan"

	"github.com/smelt-ml/smelt/ir/dtype"
)

// ringSlots is the number of slots of each input, so that those of the next step can be written
// while a GPU still reads the last step's.
const ringSlots = 2

// bufferAlign is the alignment of slots in the ring in bytes, that of vector loads.
const bufferAlign = 64

// Instance runs the steps of one user of an Executable: it holds the caches and recurrent
// states of all layers, an arena, and buffers for inputs and outputs.
type Instance struct {
	executable *Executable
	blocks     int
	memory     Memory
	sizes      []int64 // by buffer of the Plan; of one slot if there are several
	handle     Handle
	buffers    []Handle         // by buffer of the Plan; nil where the executable's
	bytes      [][]byte         // contents of inputs, outputs and the arena, by buffer
	strides    []uint64         // of inputs, by buffer
	filled     [][ringSlots]int // values of the last step in each slot, by buffer
	checks     []check

	running  sync.Mutex // one step at a time
	closed   bool       // guarded by the device's turn
	steps    uint32
	record   Command
	counts   Counts
	times    []uint64
	phase    int // of the last step
	produced sym.Sizes
	stop     stopFlag
}

// Step is one execution of a phase.
type Step struct {
	Phase int // index in Plan.Phases
	Sizes sym.Sizes
	// Inputs by name, all of [Executable.Inputs], in the shapes that Sizes gives.
	// Others are ignored.
	Inputs map[string][]int32
	// Outputs by name, each as long as the output; Run fills them. [Instance.Output] returns
	// those that are not listed here.
	Outputs map[string][]float32
	// Profile times each dispatch, which makes dispatches run one after the other.
	Profile bool
}

// Inputs returns the names of the inputs that a step must have.
func (p *Executable) Inputs() []string { return p.named(plan.Input) }

// Outputs returns the names of the Plan's outputs.
func (p *Executable) Outputs() []string { return p.named(plan.Output) }

func (p *Executable) named(kind plan.Kind) []string {
	var names []string
	for i := range p.plan.Buffers {
		if b := &p.plan.Buffers[i]; b.Kind == kind && b.Owners == nil {
			names = append(names, b.Name)
		}
	}
	return names
}

// Window is the number of cache blocks for layers whose tokens see the last Keys keys only, or, with
// Keys [States], the number of recurrent states.
type Window struct{ Keys, Blocks int }

// States is the Keys of the [Window] that has the number of recurrent states.
const States = -1

// NewInstance allocates an instance with that number of cache blocks, and other numbers for layers
// with some windows. It has one recurrent state unless a window says otherwise. It returns a
// *MemoryError, which has the sizes, if memory does not suffice.
func (p *Executable) NewInstance(blocks int, windows ...Window) (*Instance, error) {
	s, err := p.newInstance(blocks, windows)
	if err != nil {
		return nil, p.device.named(err)
	}
	return s, nil
}

func (p *Executable) newInstance(blocks int, windows []Window) (*Instance, error) {
	sizes, memory, err := p.instanceBytes(blocks, windows)
	if err != nil {
		return nil, err
	}
	p.device.lock()
	defer p.device.unlock()
	if p.closed {
		return nil, fmt.Errorf("the program is %w", ErrClosed)
	}
	if err := p.device.reserve(fmt.Sprintf("a session of %d cache blocks", blocks), memory); err != nil {
		return nil, err
	}
	n := len(p.plan.Buffers)
	s := &Instance{
		executable: p, blocks: blocks, memory: memory, sizes: sizes,
		buffers: make([]Handle, n), bytes: make([][]byte, n), strides: make([]uint64, n), filled: make([][ringSlots]int, n),
		counts: Counts{Kernels: make([]Ran, len(p.kernels))},
		checks: p.inputChecks(blocks, windows),
	}
	if err := s.allocate(); err != nil {
		s.release()
		return nil, err
	}
	p.instances[s] = struct{}{}
	return s, nil
}

// InstanceMemory returns the memory of an instance with these numbers of cache blocks.
func (p *Executable) InstanceMemory(blocks int, windows ...Window) (Memory, error) {
	_, m, err := p.instanceBytes(blocks, windows)
	if err != nil {
		return m, p.device.named(err)
	}
	return m, nil
}

// instanceBytes returns the size of each of an instance's own buffers, and their sums.
func (p *Executable) instanceBytes(blocks int, windows []Window) ([]int64, Memory, error) {
	sizes := make([]int64, len(p.plan.Buffers))
	var m Memory
	for i := range p.plan.Buffers {
		b := &p.plan.Buffers[i]
		var n int64
		for j := range p.plan.Phases {
			n = max(n, b.Bytes.Eval(&p.plan.Phases[j].Bounds))
		}
		switch b.Kind {
		case plan.CacheK, plan.CacheV, plan.State:
			blocks := blocks
			if b.Kind == plan.State {
				blocks = blocksOf(States, 1, windows)
			} else {
				blocks = blocksOf(p.plan.Caches[b.Layer].Window, blocks, windows)
			}
			if blocks < 1 || n > 0 && int64(blocks) > plan.MaxValue/n {
				return nil, m, fmt.Errorf("a session of %d cache blocks", blocks)
			}
			n *= int64(blocks)
			m.Cache += n
		case plan.Arena:
			m.Arena += n
		case plan.Input:
			n = roundUp(n, bufferAlign)
			m.Inputs += n * ringSlots
		case plan.Output:
			m.Outputs += n
		}
		sizes[i] = n
	}
	return sizes, m, nil
}

// blocksOf returns the number of cache blocks of layers with a window, or of [States].
func blocksOf(window, blocks int, windows []Window) int {
	for _, w := range windows {
		if w.Keys == window {
			return w.Blocks
		}
	}
	return blocks
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }

var purposes = map[plan.Kind]Purpose{plan.Arena: Dense, plan.CacheK: Sparse, plan.CacheV: Sparse, plan.State: Sparse}

func (s *Instance) allocate() error {
	d := s.executable.device.driver
	for i, n := range s.sizes {
		kind := s.executable.plan.Buffers[i].Kind
		if kind == plan.Weight || kind == plan.Const {
			continue
		}
		if kind == plan.Input {
			s.strides[i] = uint64(n)
			n *= ringSlots
		}
		var err error
		if s.buffers[i], err = d.Create(n, purposes[kind]); err != nil {
			return s.executable.explain(err, 0)
		}
		if kind == plan.Input || kind == plan.Output || kind == plan.Arena {
			s.bytes[i] = d.Contents(s.buffers[i], n)
		}
	}
	var err error
	if s.handle, err = d.Begin(s.executable.handle, s.buffers, s.strides); err != nil {
		return s.executable.explain(err, 0)
	}
	return nil
}

// Memory returns the memory that the instance holds.
func (s *Instance) Memory() Memory { return s.memory }

// Blocks returns the number of cache blocks.
func (s *Instance) Blocks() int { return s.blocks }

// Run executes a step. It returns ErrStep for inputs that contradict each other or would make a
// kernel leave the cache, and a *DispatchError for a kernel that fails. When ctx ends, the step
// stops at its next command buffer, or barrier where the Plan has no command buffers, and Run
// returns the context's error.
func (s *Instance) Run(ctx context.Context, step *Step) error {
	if err := s.runStep(ctx, step); err != nil {
		return s.executable.device.named(err)
	}
	return nil
}

func (s *Instance) runStep(ctx context.Context, step *Step) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.running.Lock()
	defer s.running.Unlock()
	device := s.executable.device
	select {
	case device.turn <- struct{}{}:
		defer device.unlock()
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.closed || s.stop.isFinal() {
		return fmt.Errorf("the session is %w", ErrClosed)
	}
	if err := s.prepare(step); err != nil {
		return fmt.Errorf("%w: %w", ErrStep, err)
	}
	err := s.execute(ctx, step)
	return cmp.Or(s.executable.check(), err)
}

// prepare checks a step and copies its inputs into their slot of the ring.
func (s *Instance) prepare(step *Step) error {
	compiled := s.executable.plan
	if step.Phase < 0 || step.Phase >= len(compiled.Phases) {
		return fmt.Errorf("phase %d of %d", step.Phase, len(compiled.Phases))
	}
	ph := &compiled.Phases[step.Phase]
	for i, n := range step.Sizes {
		if n < ph.Least[i] || n > ph.Bounds[i] {
			return fmt.Errorf("%s = %d; %s takes %d to %d", sym.Sym(i).String(), n, ph.Name, ph.Least[i], ph.Bounds[i])
		}
	}
	slot := s.steps % ringSlots
	for i := range compiled.Buffers {
		b := &compiled.Buffers[i]
		switch b.Kind {
		case plan.Input:
			if b.Owners != nil { // filled below, once cu_seqlens is checked
				continue
			}
			values, ok := sym.Given(step.Inputs, b.Name)
			n := b.Bytes.Eval(&step.Sizes)
			if !ok && n > 0 {
				return fmt.Errorf("input %q is missing", b.Name)
			}
			if int64(len(values))*4 != n {
				return fmt.Errorf("input %q has %d values; these sizes need %d", b.Name, len(values), n/4)
			}
			copy(s.input(i, slot, len(values)), values)
		case plan.Output:
			to, ok := step.Outputs[b.Name]
			if n := b.Bytes.Eval(&step.Sizes); ok && (b.DType != dtype.F32 || int64(len(to))*4 != n) {
				return fmt.Errorf("output %q is %d bytes of %s, for %d floats", b.Name, n, b.DType, len(to))
			}
		}
	}
	for _, c := range s.checks {
		if err := c.run(c, step); err != nil {
			return fmt.Errorf("input %q: %w", c.input, err)
		}
	}
	for i := range compiled.Buffers {
		if b := &compiled.Buffers[i]; b.Owners != nil {
			n := int(b.Bytes.Eval(&step.Sizes) / 4)
			b.Owners.Fill(s.input(i, slot, n), step.Inputs[sym.CuSeqlens])
		}
	}
	s.record = Command{Phase: uint32(step.Phase), Slot: slot, Seed: s.executable.device.opts.Seed + s.steps}
	if step.Profile {
		s.record.Profile = 1
	}
	copy(s.record.Sizes[:], step.Sizes[:])
	s.steps++
	return nil
}

// input returns the memory of n values of an input, in its slot of the ring. It clears those behind
// them, so that a kernel finds no index there that was checked for another step.
func (s *Instance) input(buffer int, slot uint32, n int) []int32 {
	whole := view[int32](s.bytes[buffer][uint64(slot)*s.strides[buffer]:], int(s.strides[buffer]/4))
	if last := &s.filled[buffer][slot]; *last > n {
		clear(whole[n:*last])
	}
	s.filled[buffer][slot] = n
	return whole[:n]
}

func (s *Instance) execute(ctx context.Context, step *Step) error {
	compiled := s.executable.plan
	device := s.executable.device
	if device.opts.Poison {
		s.poison()
	}
	s.times = s.times[:0]
	if step.Profile {
		s.times = slices.Grow(s.times, len(compiled.Phases[step.Phase].Dispatches))[:len(compiled.Phases[step.Phase].Dispatches)]
	}
	if ctx.Done() != nil {
		watch := s.stop.arm()
		undo := context.AfterFunc(ctx, func() { s.stop.raise(watch, func() { device.driver.Cancel(s.handle, true) }) })
		defer func() {
			undo()
			s.stop.disarm(func() { device.driver.Cancel(s.handle, false) })
		}()
	}
	s.phase, s.produced = step.Phase, step.Sizes
	if err := device.driver.Run(s.handle, &s.record, &s.counts, s.times); err != nil {
		s.produced = sym.Sizes{}
		var e *DriverError
		if errors.As(err, &e) && e.Code == CodeCancelled {
			cause := context.Cause(ctx)
			if cause == nil {
				cause = fmt.Errorf("the session is %w", ErrClosed)
			}
			return s.stopped(&compiled.Phases[step.Phase], cause)
		}
		return s.executable.explain(err, s.executable.firstDispatch(step.Phase))
	}
	s.executable.reader.stepDone()
	for i := range compiled.Buffers {
		if b := &compiled.Buffers[i]; b.Kind == plan.Output {
			if to := step.Outputs[b.Name]; len(to) > 0 {
				copy(to, view[float32](s.bytes[i], len(to)))
			}
		}
	}
	return nil
}

// stopped returns the error of a cancelled step, with the number of dispatches or command buffers
// that were executed.
func (s *Instance) stopped(ph *plan.Phase, cause error) error {
	if n := len(ph.CommandBuffers); n > 0 {
		return fmt.Errorf("%s after %d of %d command buffers: %w", ph.Name, s.counts.CommandBuffers, n, cause)
	}
	return fmt.Errorf("%s after %d of %d dispatches: %w", ph.Name, s.counts.Dispatches, len(ph.Dispatches), cause)
}

// poison fills arena and outputs with 0xff bytes, NaN in every float type.
func (s *Instance) poison() {
	for i := range s.executable.plan.Buffers {
		if kind := s.executable.plan.Buffers[i].Kind; kind == plan.Arena || kind == plan.Output {
			for j := range s.bytes[i] {
				s.bytes[i][j] = 0xff
			}
		}
	}
}

// Output returns the floats of an output after the last step. It is a view of the
// instance's memory, valid until the next step or Close.
func (s *Instance) Output(name string) ([]float32, error) { return output[float32](s, name, dtype.F32) }

// OutputInts is Output for an output of integers.
func (s *Instance) OutputInts(name string) ([]int32, error) {
	return output[int32](s, name, dtype.I32)
}

func output[T int32 | float32](s *Instance, name string, elem dtype.Type) ([]T, error) {
	s.running.Lock()
	defer s.running.Unlock()
	s.executable.device.lock()
	defer s.executable.device.unlock()
	if s.closed {
		return nil, s.executable.device.named(fmt.Errorf("the session is %w", ErrClosed))
	}
	for i := range s.executable.plan.Buffers {
		b := &s.executable.plan.Buffers[i]
		if b.Kind != plan.Output || b.Name != name {
			continue
		}
		switch {
		case b.DType != elem:
			return nil, s.executable.device.named(fmt.Errorf("output %q is %s, not %s", name, b.DType, elem))
		case s.produced == (sym.Sizes{}):
			return nil, s.executable.device.named(fmt.Errorf("output %q: no step has run yet", name))
		}
		return view[T](s.bytes[i], int(b.Bytes.Eval(&s.produced)/4)), nil
	}
	return nil, s.executable.device.named(fmt.Errorf("the Plan has no output %q", name))
}

// view reinterprets C memory as n elements.
func view[T int32 | float32](memory []byte, n int) []T {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&memory[:4*n][0])), n)
}

// Counters holds what a step executed.
type Counters struct {
	Phase          int
	Dispatches     int
	Barriers       int
	CommandBuffers int
	Rearranged     int           // dispatches that read rearranged weights
	Kernels        []KernelCount // those that ran, in the order of Executable.Kernels
	Nanoseconds    []int64       // by dispatch of the phase; nil without Step.Profile
}

// KernelCount holds the number of a kernel's dispatches.
type KernelCount struct {
	Kernel     string
	Dispatches int
	Native     int // of Dispatches; the others were emulated
}

// Counters returns the counters of the last step.
func (s *Instance) Counters() Counters {
	s.running.Lock()
	defer s.running.Unlock()
	c := Counters{
		Phase: s.phase, Dispatches: int(s.counts.Dispatches), Barriers: int(s.counts.Barriers),
		CommandBuffers: int(s.counts.CommandBuffers), Rearranged: int(s.counts.Rearranged),
	}
	for i, k := range s.counts.Kernels {
		if k.Dispatches > 0 {
			c.Kernels = append(c.Kernels, KernelCount{s.executable.kernels[i], int(k.Dispatches), int(k.Native)})
		}
	}
	for _, n := range s.times {
		c.Nanoseconds = append(c.Nanoseconds, int64(n))
	}
	return c
}

// Interrupt stops the running step as the end of its context would, and makes later ones fail with
// [ErrClosed]. Unlike a context it costs a step nothing. Outputs of earlier steps stay readable.
func (s *Instance) Interrupt() {
	device := s.executable.device
	s.stop.finally(func() {
		device.driver.Cancel(s.handle, true)
	})
}

// Close frees the instance's memory, once its running step has ended.
func (s *Instance) Close() error {
	s.executable.device.lock()
	defer s.executable.device.unlock()
	s.release()
	return nil
}

// release is Close of an instance that may be half made. The caller holds the device's turn.
func (s *Instance) release() {
	if s.closed {
		return
	}
	s.closed = true
	s.stop.finally(func() {}) // a later Interrupt must not use the handle
	d := s.executable.device.driver
	if s.handle != nil {
		d.End(s.handle)
	}
	for _, b := range s.buffers {
		if b != nil {
			d.Free(b)
		}
	}
	clear(s.bytes)
	s.executable.device.restore(s.memory)
	delete(s.executable.instances, s)
}

// stopFlag ties a context to one step: context.AfterFunc may call after that step, and must not
// stop a later one.
type stopFlag struct {
	mu     sync.Mutex
	step   uint64 // of the armed watch
	armed  bool
	raised bool
	final  bool // stopped once and for all
}

// finally calls stop once; disarm does not undo it.
func (f *stopFlag) finally(stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.final {
		f.final = true
		stop()
	}
}

func (f *stopFlag) isFinal() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.final
}

func (f *stopFlag) arm() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.step++
	f.armed = true
	return f.step
}

// raise calls stop if the watch is still armed.
func (f *stopFlag) raise(watch uint64, stop func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.armed && f.step == watch {
		f.raised = true
		stop()
	}
}

// disarm ends the watch, and calls undo if it was raised.
func (f *stopFlag) disarm(undo func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = false
	if f.raised {
		f.raised = false
		if !f.final {
			undo()
		}
	}
}
