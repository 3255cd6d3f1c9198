package smelt

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/smelt-ml/smelt/constrain"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// Loaded is a program with its weights on a device, shared by any number of sessions and
// engines. It is safe for concurrent use: the device runs the steps of concurrent
// sessions one at a time, each with all its threads.
type Loaded struct {
	program    *Program
	device     *device.Device
	executable *device.Executable
	session    device.Memory // memory of one session
	tokenizer  func() (*tokenizer.Tokenizer, error)
	vocabulary func() (*constrain.Vocabulary, error)
	elapsed    time.Duration
	release    func()
	owns       bool     // Close also closes the model, see [Load]
	engines    sync.Map // set of open *Engine
}

// Load opens a device and binds the program's weights there. The error wraps [ErrTarget] if
// the device is not of the program's target.
func (p *Program) Load(d Device) (*Loaded, error) {
	start := time.Now()
	if !p.model.HasWeights() {
		return nil, p.model.noWeights()
	}
	d, err := Resolve(d)
	if err == nil {
		err = compiler.Accept(p.Plan.Target, d.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("loading %s: %w", p.Plan.Model, err)
	}
	release, err := p.model.use()
	if err != nil {
		return nil, err
	}
	l := &Loaded{program: p, tokenizer: sync.OnceValues(p.model.Tokenizer), release: sync.OnceFunc(release)}
	l.vocabulary = sync.OnceValues(func() (*constrain.Vocabulary, error) {
		t, err := l.tokenizer()
		if err != nil {
			return nil, err
		}
		return constrain.New(t.Texts(), t.StopIDs())
	})
	if err := l.open(d); err != nil {
		l.release()
		return nil, err
	}
	l.elapsed = time.Since(start)
	return l, nil
}

func (l *Loaded) open(d Device) (err error) {
	options := d.options()
	options.Mapped = l.program.model.file != nil
	options.Debug = options.Debug || l.program.compiled.Options.Debug.GPU
	if l.device, err = device.Open(d.Name, options); err != nil {
		return err
	}
	plan := l.program.Plan
	if l.executable, err = l.program.model.load(l.device, plan); err == nil {
		l.session, err = l.executable.InstanceMemory(len(batch.Contiguous(plan.Block(), plan.Context)), engine.SequenceStates(plan)...)
	}
	if err != nil {
		l.device.Close()
	}
	return err
}

// load binds the model's weights to a plan on a device.
func (m *Model) load(d *device.Device, p *plan.Plan) (*device.Executable, error) {
	return d.Load(p, compiler.Fetch(m.name, m.weights), m.intact)
}

// NewSession returns an empty session with a KV cache and an arena of its own.
func (l *Loaded) NewSession() (*Session, error) {
	sequence, err := engine.NewSequence(l.program.Plan, l.executable)
	if err != nil {
		return nil, err
	}
	return &Session{loaded: l, sequence: sequence}, nil
}

// Close closes the engines and sessions, and releases the weights and the device.
// Further calls do nothing.
func (l *Loaded) Close() error {
	l.engines.Range(func(e, _ any) bool {
		_ = e.(*Engine).Close()
		return true
	})
	err := l.device.Close()
	l.release()
	if l.owns {
		err = errors.Join(err, l.program.Close())
	}
	return err
}

// Info returns a description of the device.
func (l *Loaded) Info() device.Info { return l.device.Info() }

// Program returns the program.
func (l *Loaded) Program() *Program { return l.program }

// OnDevice returns the program's executable on the device, with its counters.
func (l *Loaded) OnDevice() *device.Executable { return l.executable }

// LoadTime returns the time of Load: opening the device and binding the weights.
func (l *Loaded) LoadTime() time.Duration { return l.elapsed }

// Memory returns the bytes of the program's weights, and those of each session: its cache, its
// arena of intermediate values, and its inputs and outputs, mostly rows of logits.
func (l *Loaded) Memory() device.Memory {
	m := l.session
	m.Weights = 0
	for i := range l.program.Plan.Tensors {
		t := &l.program.Plan.Tensors[i]
		m.Weights += t.DType.Bytes(t.Elements())
	}
	return m
}

// Tokenizer returns the model's tokenizer.
func (l *Loaded) Tokenizer() (*tokenizer.Tokenizer, error) { return l.tokenizer() }

// Vocabulary returns the model's vocabulary for constraints: its methods, such as JSONSchema,
// make a [Generation]'s Constraint. It is computed once.
func (l *Loaded) Vocabulary() (*constrain.Vocabulary, error) { return l.vocabulary() }
