package device

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"

	"github.com/smelt-ml/smelt/ir/dtype"
)

// Fetch returns the bytes and the stored type of a tensor of the model file. The
// bytes must stay readable and unchanged until [Executable.Close].
type Fetch func(name string) (data []byte, elem dtype.Type, err error)

// Executable is a Plan on a device, with its weights.
type Executable struct {
	device    *Device
	plan      *plan.Plan
	kernels   []string
	natives   []bool // by kernel
	memory    Memory
	pins      runtime.Pinner // weights in Go memory
	ranges    []Handle       // memory of the model file, of which weights are slices
	buffers   []Handle       // by buffer of the Plan; nil where each instance has its own
	handle    Handle
	intact    []func() error
	reader    *reader // prefetches weights until a step has run; may be nil
	closed    bool
	instances map[*Instance]struct{}
}

// Load prepares a Plan for execution: it looks up kernels, flattens tables and binds weights in
// place. It returns plan.ErrPlan for a Plan that is not [plan.Plan.Valid], ErrKernel for kernels
// that the device lacks, ErrWeights for tensors that are missing or of another type or size than
// the Plan's, and a *MemoryError where converted copies do not fit. The Plan must not be changed
// until Close.
//
// Load and each step, once they have read weights, return the error of intact, if it has one:
// what was read may not be what the file had.
func (d *Device) Load(compiled *plan.Plan, fetch Fetch, intact ...func() error) (*Executable, error) {
	p, err := d.load(compiled, fetch, intact)
	if err != nil {
		return nil, fmt.Errorf("device %s: loading %s: %w", d.info.Name, compiled.Model, err)
	}
	return p, nil
}

func (d *Device) load(compiled *plan.Plan, fetch Fetch, intact []func() error) (*Executable, error) {
	if !compiled.Valid() {
		return nil, fmt.Errorf("%w: it was not validated", plan.ErrPlan)
	}
	d.lock()
	defer d.unlock()
	if d.closed {
		return nil, fmt.Errorf("the device is %w", ErrClosed)
	}
	p := &Executable{device: d, plan: compiled, intact: intact, kernels: Kernels(compiled), buffers: make([]Handle, len(compiled.Buffers)), instances: map[*Instance]struct{}{}}
	weights, err := p.bind(fetch)
	if err != nil {
		p.release()
		return nil, p.explain(err, 0)
	}
	matrices := matricesOf(compiled)
	p.makeRoom(matrices)
	p.readAhead(weights, matrices)
	if p.handle, err = d.driver.Load(compiled, matrices, p.buffers); err != nil {
		p.release()
		return nil, p.explain(err, 0)
	}
	if err := p.check(); err != nil {
		p.release()
		return nil, err
	}
	p.natives = d.driver.Natives(p.handle, len(p.kernels))
	d.executables[p] = struct{}{}
	return p, nil
}

// check returns the error of weights that are not intact.
func (p *Executable) check() error {
	for _, intact := range p.intact {
		if err := intact(); err != nil {
			return err
		}
	}
	return nil
}

// matricesOf returns the weights that a device may rearrange, by buffer; others have 0 rows.
func matricesOf(p *plan.Plan) []Matrix {
	matrices := make([]Matrix, len(p.Buffers))
	tensors := make(map[string]*plan.Tensor, len(p.Tensors))
	for i := range p.Tensors {
		tensors[p.Tensors[i].Name] = &p.Tensors[i]
	}
	for i := range p.Buffers {
		if b := &p.Buffers[i]; b.Rearrange {
			shape := tensors[b.Name].Shape
			last, stack := len(shape)-1, 1
			for _, n := range shape[:last-1] {
				stack *= n
			}
			matrices[i] = Matrix{Rows: uint64(stack * shape[last-1]), Columns: uint64(shape[last]), Type: uint32(b.DType), Stack: uint32(stack)}
		}
	}
	return matrices
}

// makeRoom reserves memory for rearranged weights. Where it is short, it clears matrices, which
// then stay in the file's order: experts first, as a token reads few of them and copying would read
// all.
func (p *Executable) makeRoom(matrices []Matrix) {
	if !p.device.rearranges() {
		return
	}
	for _, stays := range []func(m *Matrix) bool{
		func(*Matrix) bool { return false },
		func(m *Matrix) bool { return m.Stack > 1 },
		func(*Matrix) bool { return true },
	} {
		m := Memory{}
		for i := range matrices {
			if stays(&matrices[i]) {
				matrices[i] = Matrix{}
			}
			if matrices[i].Rows != 0 {
				m.Rearranged += p.device.driver.Rearranged(&matrices[i])
			}
		}
		if err := p.device.reserve("rearranged weights", m); err == nil {
			p.memory.Rearranged = m.Rearranged
			return
		}
	}
}

// weight is a tensor of the file.
type weight struct {
	data  []byte
	dtype dtype.Type
	copy  bool // because of its type, order or alignment, or because its page must not be used
}

// vectorBytes is the size up to which a weight counts as a vector, such as the gain of a norm.
const vectorBytes = 64 << 10

// dropsPages reports whether the pages of rearranged weights are dropped. Vectors between them are
// then copied: reading one would fault in up to 2 MiB around it, where the page cache holds the
// file in large folios.
func (d *Device) dropsPages() bool {
	return d.opts.Mapped && d.rearranges()
}

// seesPages reports whether the device would map whole pages that hold more than the weights.
func (d *Device) seesPages() bool { return d.info.GPU != "" && !d.opts.Mapped }

// rearranges reports whether the device rearranges weights at some time.
func (d *Device) rearranges() bool {
	return d.info.ISA != "" && d.info.GPU == "" && d.opts.Rearrange != RearrangeNever
}

// bind makes the buffers that instances share, of weights and constants, and returns the weights by
// buffer.
func (p *Executable) bind(fetch Fetch) ([]weight, error) {
	weights := make([]weight, len(p.plan.Buffers))
	var missing []error
	for i := range p.plan.Buffers {
		b := &p.plan.Buffers[i]
		if b.Kind != plan.Weight {
			continue
		}
		w, err := find(b, fetch)
		if err != nil {
			missing = append(missing, err)
			continue
		}
		n, _ := b.Bytes.IsConst()
		w.copy = w.copy || b.Lines || n <= vectorBytes && !b.Rearrange && p.device.dropsPages() || p.device.seesPages()
		weights[i] = w
		p.memory.Weights += n
		if w.copy {
			p.memory.Converted += n
		}
	}
	if missing != nil {
		return nil, fmt.Errorf("%w: %w", ErrWeights, errors.Join(missing...))
	}
	if p.device.info.GPU != "" {
		p.memory.InPlace = p.memory.Weights - p.memory.Converted
	}
	if err := p.device.reserve("the model "+p.plan.Model, Memory{Converted: p.memory.Converted, InPlace: p.memory.InPlace}); err != nil {
		p.memory.Converted, p.memory.InPlace = 0, 0
		return nil, err
	}
	if p.device.opts.Mapped {
		for i := range weights {
			if weights[i].copy && len(weights[i].data) > 0 {
				askPages(weights[i].data) // all before the first copy: they are scattered over the file
			}
		}
	}
	if err := p.wrap(weights); err != nil {
		return nil, err
	}
	for i := range p.plan.Buffers {
		var err error
		switch b := &p.plan.Buffers[i]; {
		case b.Kind == plan.Weight && p.buffers[i] == nil:
			p.buffers[i], err = p.convert(b, weights[i])
		case b.Kind == plan.Const:
			p.buffers[i], err = p.fill(int64(len(b.Data)), func(to []byte) { copy(to, b.Data) })
		}
		if err != nil {
			return nil, fmt.Errorf("%s %q: %w", p.plan.Buffers[i].Kind, p.plan.Buffers[i].Name, err)
		}
	}
	return weights, nil
}

// find fetches a weight and checks it against the Plan.
func find(b *plan.Buffer, fetch Fetch) (weight, error) {
	data, stored, err := fetch(b.Name)
	if err != nil {
		return weight{}, fmt.Errorf("tensor %q: %w", b.Name, err)
	}
	converted := stored != b.DType
	if converted && !(b.DType == dtype.F32 && stored.IsFloat()) {
		return weight{}, fmt.Errorf("tensor %q is %s, but the Plan reads %s", b.Name, stored, b.DType)
	}
	want, _ := b.Bytes.IsConst()
	if converted {
		want = want / b.DType.Bytes(1) * stored.Bytes(1)
	}
	if int64(len(data)) != want {
		return weight{}, fmt.Errorf("tensor %q has %d bytes, but the Plan reads %d", b.Name, len(data), want)
	}
	return weight{data, stored, converted || !Aligned(data, stored)}, nil
}

// wrap binds the weights that are read in place: a buffer of the device for each
// run of them, and a slice of it for each weight.
func (p *Executable) wrap(weights []weight) error {
	d := p.device.driver
	inPlace := make([][]byte, len(weights))
	for i := range weights {
		if !weights[i].copy {
			inPlace[i] = weights[i].data
		}
	}
	runs, err := spans(inPlace, int64(p.device.info.Page), int64(p.device.info.MaxBuffer))
	if err != nil {
		var e *tensorError
		errors.As(err, &e)
		return fmt.Errorf("%w: tensor %q has %w", ErrMemory, p.plan.Buffers[e.index].Name, e)
	}
	for _, run := range runs {
		memory := run.bytes(inPlace[run.members[0]])
		for _, i := range run.members {
			p.pins.Pin(&inPlace[i][0])
		}
		whole, err := d.Wrap(memory)
		if err != nil {
			return fmt.Errorf("tensors from %q on: %w", p.plan.Buffers[run.members[0]].Name, err)
		}
		p.ranges = append(p.ranges, whole)
		for _, i := range run.members {
			at := uintptr(unsafe.Pointer(&inPlace[i][0])) - run.begin
			if p.buffers[i], err = d.Slice(whole, int64(at), int64(len(inPlace[i]))); err != nil {
				return fmt.Errorf("tensor %q: %w", p.plan.Buffers[i].Name, err)
			}
		}
	}
	return nil
}

func (p *Executable) convert(b *plan.Buffer, w weight) (Handle, error) {
	n, _ := b.Bytes.IsConst()
	return p.fill(n, func(to []byte) {
		switch {
		case b.Lines:
			kernels.PutLines(uint32(b.DType), to, w.data)
		case w.dtype == b.DType:
			copy(to, w.data)
		default:
			widen(to, w.data, w.dtype)
		}
	})
}

// fill makes a buffer of C memory and fills it by calling with.
func (p *Executable) fill(bytes int64, with func(to []byte)) (Handle, error) {
	h, err := p.device.driver.Create(bytes, Shared)
	if err != nil {
		return nil, err
	}
	with(p.device.driver.Contents(h, bytes))
	return h, nil
}

// Plan returns the Plan that was loaded.
func (p *Executable) Plan() *plan.Plan { return p.plan }

// Memory returns the memory of the executable's weights. Caches and arenas belong to instances.
func (p *Executable) Memory() Memory { return p.memory }

// Compiled counts the pipelines that were made when an executable was loaded, one for each kernel
// with its function constants that the device did not have yet.
type Compiled struct {
	Pipelines int
	Kept      int // of Pipelines, those read from an earlier process's archive
	Time      time.Duration
}

// Compiled returns the pipelines that Load made; none on the host.
func (p *Executable) Compiled() Compiled { return p.device.driver.Compiled(p.handle) }

// Kernels returns the host names of the Plan's kernels, in the order of their first
// dispatch.
func (p *Executable) Kernels() []string { return append([]string(nil), p.kernels...) }

// Natives reports, for each kernel of the Plan, whether native code runs all its dispatches with
// every size at its bound; others are emulated, at least partly. [Counters] has the figures of a
// step.
func (p *Executable) Natives() map[string]bool {
	m := make(map[string]bool, len(p.kernels))
	for i, k := range p.kernels {
		m[k] = p.natives[i]
	}
	return m
}

// Close closes the executable with its instances. The weights are not read afterwards.
func (p *Executable) Close() error {
	p.device.lock()
	defer p.device.unlock()
	p.release()
	return nil
}

// release is Close of an executable that may be half made. The caller holds the device's turn.
func (p *Executable) release() {
	if p.closed {
		return
	}
	p.closed = true
	p.reader.stop()
	for s := range p.instances {
		s.release()
	}
	if p.handle != nil {
		p.device.driver.Unload(p.handle)
	}
	for _, b := range slices.Concat(p.buffers, p.ranges) {
		if b != nil {
			p.device.driver.Free(b)
		}
	}
	p.device.restore(p.memory)
	p.pins.Unpin()
	delete(p.device.executables, p)
}

// explain adds the Plan's names to an error of the driver. first is the index, over all phases, of
// the dispatch that the driver counts from.
func (p *Executable) explain(err error, first int) error {
	var e *DriverError
	if !errors.As(err, &e) {
		return err
	}
	named := err
	if e.Dispatch >= 0 {
		named = p.locate(e, first+e.Dispatch)
	}
	if s := errors.Unwrap(e); s != nil {
		return fmt.Errorf("%w: %w", s, named)
	}
	return named
}

// locate returns the DispatchError of an error at a dispatch, by index over all phases.
func (p *Executable) locate(e *DriverError, index int) error {
	for i := range p.plan.Phases {
		ph := &p.plan.Phases[i]
		if index >= len(ph.Dispatches) {
			index -= len(ph.Dispatches)
			continue
		}
		d := &ph.Dispatches[index]
		named := &DispatchError{Phase: ph.Name, Dispatch: index, Label: d.Label(), Kernel: d.Kernel, Message: e.Message}
		if e.Argument >= 0 {
			b := &p.plan.Buffers[d.Bindings[e.Argument].Buffer]
			named.Buffer = fmt.Sprintf("argument %d, %s %q", d.Bindings[e.Argument].Index, b.Kind, b.Name)
		}
		return named
	}
	return e
}

// firstDispatch returns the index of a phase's first dispatch over all phases.
func (p *Executable) firstDispatch(phase int) int {
	n := 0
	for i := range phase {
		n += len(p.plan.Phases[i].Dispatches)
	}
	return n
}
