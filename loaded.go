package smelt

import (
	"fmt"
	"sync"
	"time"

	"github.com/smelt-ml/smelt/constrain"
	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/internal/engine"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/models/checkpoint"
	"github.com/smelt-ml/smelt/models/tokenizer"
)

// Loaded is a program on a device with its weights, once for any number of sequences.
// It is safe for concurrent use: sessions may be made and run from several goroutines,
// and the device takes their steps in turn, with all its threads for each.
type Loaded struct {
	program    *Program
	device     *device.Device
	metal      *device.Executable
	session    device.Memory // of each
	tokenizer  func() (*tokenizer.Tokenizer, error)
	vocabulary func() (*constrain.Vocabulary, error)
	elapsed    time.Duration
	release    func()
	engines    sync.Map // of *Engine, which run goroutines until they are closed
}

// Load opens a device and binds the program's weights there. A device of another target
// than the program's refuses it with a [*TargetError].
func (p *Program) Load(d Device) (*Loaded, error) {
	start := time.Now()
	if p.model == nil {
		return nil, fmt.Errorf("the plan of %s without its model: %w", p.Plan.Model, ErrNoWeights)
	}
	if !p.model.HasWeights() {
		return nil, fmt.Errorf("%s: %w", checkpoint.ArchPrefix+p.model.name, ErrNoWeights)
	}
	d, err := Resolve(d)
	if err == nil {
		err = d.accept(p.Plan.Target)
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
	options.Debug = options.Debug || l.program.options.Debug.GPU
	if l.device, err = device.Open(d.Name, options); err != nil {
		return err
	}
	plan := l.program.Plan
	if l.metal, err = l.device.Load(plan, l.program.model.tensor); err == nil {
		l.session, err = l.metal.InstanceMemory(len(batch.Contiguous(plan.Block(), plan.Context)))
	}
	if err != nil {
		l.device.Close()
	}
	return err
}

// tensor gives a device the bytes of a weight.
func (m *Model) tensor(name string) ([]byte, dtype.Type, error) {
	t, data, ok := m.weights.Data(name)
	if !ok {
		return nil, dtype.Invalid, fmt.Errorf("%s has no such tensor", m.name)
	}
	return data, t, nil
}

// NewSession starts an empty sequence with a cache and an arena of its own.
func (l *Loaded) NewSession() (*Session, error) {
	sequence, err := engine.NewSequence(l.program.Plan, l.metal)
	if err != nil {
		return nil, err
	}
	return &Session{loaded: l, sequence: sequence}, nil
}

// Close ends the engines and releases the sessions, the weights and the device. Further
// calls do nothing.
func (l *Loaded) Close() error {
	l.engines.Range(func(e, _ any) bool {
		_ = e.(*Engine).Close()
		return true
	})
	err := l.device.Close()
	l.release()
	return err
}

// Info describes the device.
func (l *Loaded) Info() device.Info { return l.device.Info() }

// Program returns what was loaded.
func (l *Loaded) Program() *Program { return l.program }

// OnDevice returns the program as the device has it, with its counters.
func (l *Loaded) OnDevice() *device.Executable { return l.metal }

// LoadTime is how long opening the device and binding the weights took.
func (l *Loaded) LoadTime() time.Duration { return l.elapsed }

// Memory is what a loaded program takes, in bytes: its weights, and for each session a
// cache, an arena for what a step computes on the way, and room for what it is given and
// for its results, most of which are rows of logits.
type Memory struct{ Weights, Cache, Arena, Inputs, Outputs int64 }

// Session returns what one more session takes.
func (m Memory) Session() int64 { return m.Cache + m.Arena + m.Inputs + m.Outputs }

// Memory returns what the program and each of its sessions take.
func (l *Loaded) Memory() Memory {
	plan := l.program.Plan
	var m Memory
	for i := range plan.Tensors {
		t := &plan.Tensors[i]
		m.Weights += t.DType.Bytes(t.Elements())
	}
	s := &l.session
	m.Cache, m.Arena, m.Inputs, m.Outputs = s.Cache, s.Arena, s.Inputs, s.Outputs
	return m
}

// Tokenizer returns the model's tokenizer.
func (l *Loaded) Tokenizer() (*tokenizer.Tokenizer, error) { return l.tokenizer() }

// Vocabulary is the model's tokens as constraints take them: v.JSONSchema and the like make
// one for [Generation]. It is made once.
func (l *Loaded) Vocabulary() (*constrain.Vocabulary, error) { return l.vocabulary() }
