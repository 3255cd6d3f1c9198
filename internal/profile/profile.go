// Package profile counts the memory accesses of a Plan's dispatches on an Apple GPU
// (kernels/emulated/counted) and compares them with the minimum.
//
//	rows, err := profile.Run(ctx, plan, steps, func(k *kernels.Kernel) bool { return k.Family == "linear_vec" }, chip, 0, nil)
//
// Buffers have the Plan's sizes and synthetic contents: inputs as they are for one sequence,
// random activations and caches, and zero weights, because their values change no address.
//
// # The minimum
//
// [predict.CostOf] returns what each family must read and write: every element that the result
// depends on once, keys as far as tokens see them. Each tile of a tiled product reads again what
// its threadgroups share, so the minimum for its tile is the sum over threadgroups of what each
// reads and writes, a byte counting once in each. The first minimum is derived from the
// dispatch, and a test compares it with the bytes that the emulated kernel touches; the second
// is what it touches.
package profile

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"github.com/smelt-ml/smelt/internal/batch"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/emulated/counted"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/lower/predict"
)

// Budget is the default number of device memory accesses counted per row; see [counted.Machine].
const Budget = 8 << 20

// Bounds on a dispatch, as multiples of the minimum and as shares.
const (
	MostTraffic     = 1.15
	LeastCoalescing = 0.9
)

// Row holds the counts of one dispatch.
type Row struct {
	Model      string `json:"model"`
	Step       string `json:"step"`
	Kernel     string `json:"kernel"`
	Shape      string `json:"shape"`
	Dispatches int    `json:"dispatches"` // in the first step that has it

	Threadgroups int64 `json:"threadgroups"`
	Counted      int64 `json:"counted"` // threadgroups that ran; counts are extrapolated to the grid
	Threads      int64 `json:"threads"` // per threadgroup

	ReadBytes    int64   `json:"read_bytes"` // from memory into the cache
	WrittenBytes int64   `json:"written_bytes"`
	LeastBytes   int64   `json:"least_bytes"`
	TileBytes    int64   `json:"tile_bytes"`         // minimum for its tile: what caches deliver to its threadgroups
	RereadBytes  int64   `json:"reread_bytes"`       // part of TileBytes: keys and values that other threadgroups read too, by [predict.Cost]
	TouchedOnce  int64   `json:"touched_once_bytes"` // by the counted threadgroups, each byte once
	TouchedBytes int64   `json:"touched_bytes"`      // lines that simdgroups touch, before the cache
	Coalescing   float64 `json:"coalescing"`

	// Threadgroup memory: cycles of its banks, and what they would be without conflicts.
	BankCycles      int64 `json:"bank_cycles"`
	LeastBankCycles int64 `json:"least_bank_cycles"`

	Barriers  float64        `json:"barriers"` // per threadgroup, on average
	Meetings  float64        `json:"simdgroup_operations"`
	Branches  int64          `json:"branches"` // per simdgroup
	Divergent int64          `json:"divergent"`
	Sites     []counted.Site `json:"divergent_sites,omitempty"`

	// ShiftCycles is the lanes' use of the pipe that shifts, extracts bits and converts.
	ShiftCycles int64 `json:"shift_cycles"`

	Ops   int64   `json:"ops"`   // floating-point operations
	Ridge float64 `json:"ridge"` // of the chip, operations per byte

	// Tiled reports whether the minimum traffic leaves the dispatch above the ridge, so that it
	// is bound by compute and its threadgroups share more than a cache holds. Its bounds are
	// then the minimum for its tile, and the ridge.
	Tiled bool `json:"tiled"`
}

// Bytes is the traffic between cache and memory.
func (r *Row) Bytes() int64 { return r.ReadBytes + r.WrittenBytes }

// Ratio returns the traffic over the minimum that bounds the kernel.
func (r *Row) Ratio() float64 {
	if r.Tiled {
		return float64(r.Bytes()) / float64(r.TileBytes)
	}
	return float64(r.Bytes()) / float64(r.LeastBytes)
}

// Intensity returns operations per byte of traffic.
func (r *Row) Intensity() float64 { return float64(r.Ops) / float64(max(r.Bytes(), 1)) }

// Conflicts returns the cycles of threadgroup memory relative to those without conflicts.
func (r *Row) Conflicts() float64 {
	if r.LeastBankCycles == 0 {
		return 1
	}
	return float64(r.BankCycles) / float64(r.LeastBankCycles)
}

// Shifting returns the cycles of the pipe that shifts and converts per multiply-add, of which a
// product of one token has one per weight. Above 1, that pipe bounds the cores' arithmetic; it
// is 0 without arithmetic.
func (r *Row) Shifting() float64 {
	if r.Ops == 0 {
		return 0
	}
	return float64(r.ShiftCycles) / (float64(r.Ops) / 2)
}

// Misses returns the bounds that the row violates.
func (r *Row) Misses() []string {
	var out []string
	if r.Ratio() > MostTraffic {
		out = append(out, fmt.Sprintf("%.2f times the least traffic", r.Ratio()))
	}
	if r.Coalescing < LeastCoalescing {
		out = append(out, fmt.Sprintf("%.0f %% coalesced", 100*r.Coalescing))
	}
	if r.Tiled && r.Intensity() < r.Ridge {
		out = append(out, fmt.Sprintf("%.1f operations a byte, the ridge is at %.1f", r.Intensity(), r.Ridge))
	}
	return out
}

// Step is a phase at given sizes, with the contents of its inputs.
type Step struct {
	Name   string
	Phase  *plan.Phase
	Sizes  sym.Sizes
	inputs map[string][]int32
}

// Steps returns one step of each phase. Prefill takes a prompt of the given number of tokens
// from an empty cache, decode one token of each of the maximum number of sequences at the end of
// the longest context, and a copying phase its maximum number of blocks.
func Steps(plan *plan.Plan, tokens int) []Step {
	block := plan.Block()
	blocks := batch.Contiguous(block, plan.Context)
	var steps []Step
	for i := range plan.Phases {
		ph := &plan.Phases[i]
		if n := ph.Bounds[sym.C]; n > 0 {
			copies := make([]batch.Copy, n)
			for i := range copies {
				copies[i] = batch.Copy{From: int32(2 * i), To: int32(2*i + 1)}
			}
			var packed batch.Step
			packed.PackCopies(copies...)
			steps = append(steps, Step{fmt.Sprintf("%s %d", ph.Name, n), ph, packed.Sizes, packed.Inputs})
			continue
		}
		each, sequences, keys := 1, int(ph.Bounds[sym.B]), int(ph.Bounds[sym.Smax])
		if ph.Longest.Min > 1 {
			each, sequences = int(min(max(int64(tokens), ph.Least[sym.T]), ph.Bounds[sym.T])), 1
			keys = each
		}
		of := make([]batch.Piece, sequences)
		for b := range of {
			q := &of[b]
			q.Start = keys - each
			for i := range each {
				q.Tokens = append(q.Tokens, int32(3*(b+i)+1))
			}
			for _, at := range blocks {
				q.Blocks = append(q.Blocks, int32(b*len(blocks))+at)
			}
		}
		packed := batch.Pack(block, plan.Context, of...)
		s := Step{Phase: ph, Sizes: packed.Sizes, inputs: packed.Inputs}
		s.Sizes[sym.Smax] = int64(keys)
		s.Name = fmt.Sprintf("%s %d", ph.Name, s.Sizes[sym.Smax])
		steps = append(steps, s)
	}
	return steps
}

// Run counts the distinct dispatches of the steps whose kernel is wanted, in order; a row
// belongs to the first step that has it. budget limits the accesses counted per dispatch; 0
// counts whole grids. Run compiles kernel sources that have not been compiled, and calls
// compiling, if not nil, for each.
func Run(ctx context.Context, plan *plan.Plan, steps []Step, wanted func(*kernels.Kernel) bool, chip *predict.Chip, budget int64, compiling func(file string)) ([]Row, error) {
	var rows []Row
	var work []func() error
	var files []string
	type first struct{ row, step int }
	seen := map[string]first{}
	for n, s := range steps {
		for i := range s.Phase.Dispatches {
			d := &s.Phase.Dispatches[i]
			k, ok := kernels.Lookup(d.Kernel)
			if !ok {
				return nil, fmt.Errorf("the plan of %s runs %s, an unknown kernel", plan.Model, d.Kernel)
			}
			if !wanted(k) {
				continue
			}
			id := identity(plan, s, d)
			if f, ok := seen[id]; ok {
				if f.step == n {
					rows[f.row].Dispatches++
				}
				continue
			}
			at := len(rows)
			seen[id] = first{at, n}
			rows = append(rows, Row{Dispatches: 1})
			if !slices.Contains(files, k.File) {
				files = append(files, k.File)
			}
			work = append(work, func() error {
				n := rows[at].Dispatches
				row, err := count(plan, s, d, k, chip, budget)
				row.Dispatches = n
				rows[at] = row
				return err
			})
		}
	}
	if err := counted.Compile(ctx, files, compiling); err != nil {
		return nil, err
	}
	return rows, all(ctx, work)
}

// all runs the work on every processor.
func all(ctx context.Context, work []func() error) error {
	next := make(chan func() error)
	errs := make([]error, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() {
			for f := range next {
				if errs[i] == nil {
					errs[i] = f()
				}
			}
		})
	}
	for _, f := range work {
		if ctx.Err() != nil {
			break
		}
		next <- f
	}
	close(next)
	wg.Wait()
	for _, err := range append(errs, ctx.Err()) {
		if err != nil {
			return err
		}
	}
	return nil
}

// identity returns a key that is equal for dispatches that differ only in their buffers and in
// sizes that they do not use.
func identity(plan *plan.Plan, s Step, d *plan.Dispatch) string {
	id := fmt.Sprint(d.Kernel, d.Constants, d.Group, predict.CostOf(plan, d, &s.Sizes))
	for _, e := range d.Grid {
		id += fmt.Sprint(" ", e.Eval(&s.Sizes))
	}
	for _, e := range d.Params {
		id += fmt.Sprint(" ", e.Eval(&s.Sizes))
	}
	for i, b := range d.Bindings {
		shared := 0 // the first binding of the same memory
		for shared < i && (d.Bindings[shared].Buffer != b.Buffer || d.Bindings[shared].Offset != b.Offset) {
			shared++
		}
		id += fmt.Sprint(" ", b.Index, shared, b.Bytes.Eval(&s.Sizes), b.Offset%counted.Line, plan.Buffers[b.Buffer].DType)
	}
	return id
}

func count(plan *plan.Plan, s Step, d *plan.Dispatch, k *kernels.Kernel, chip *predict.Chip, budget int64) (Row, error) {
	row := Row{
		Model: plan.Model, Step: s.Name, Kernel: d.Kernel, Shape: shape(plan, s, d, k),
		Threads: int64(d.Group[0]) * int64(d.Group[1]) * int64(d.Group[2]), Ridge: chip.Ridge(),
	}
	cost := predict.CostOf(plan, d, &s.Sizes)
	row.LeastBytes, row.RereadBytes, row.Ops = cost.Bytes(), cost.Reread, cost.Ops
	row.Tiled = float64(cost.Ops) > row.Ridge*float64(cost.Bytes())
	memory, launch, err := prepare(plan, s, d, k)
	if err != nil {
		return row, fmt.Errorf("%s, %s of %s: %w", d.Label(), s.Name, plan.Model, err)
	}
	c, err := counted.Run(memory, launch, counted.Machine{CacheBytes: chip.Cache, Cores: chip.Cores, Budget: budget, Apart: true})
	if err != nil {
		return row, fmt.Errorf("%s, %s of %s: %w", d.Label(), s.Name, plan.Model, err)
	}
	row.Threadgroups, row.Counted = c.Groups, c.Ran
	row.ReadBytes, row.WrittenBytes, row.TileBytes, row.TouchedBytes = c.Read, c.Written, c.Tile, c.Touched
	row.TouchedOnce, row.Coalescing = c.DistinctRead+c.DistinctWritten, c.Coalescing()
	row.BankCycles, row.LeastBankCycles = c.GroupCycles, c.GroupLeast
	row.Barriers, row.Meetings = float64(c.Barriers)/float64(c.Groups), float64(c.Meetings)/float64(c.Groups)
	row.Branches, row.Divergent, row.Sites, row.ShiftCycles = c.Branches, c.Divergent, c.Sites, c.ShiftCycles
	return row, nil
}

// prepare allocates and fills the buffers that a dispatch binds.
func prepare(plan *plan.Plan, s Step, d *plan.Dispatch, k *kernels.Kernel) (*counted.Memory, counted.Launch, error) {
	l := counted.Launch{Kernel: d.Kernel, Constants: map[uint32]uint32{}, Group: d.Group}
	for _, c := range d.Constants {
		l.Constants[c.Index] = c.Bits
	}
	for i, e := range d.Grid {
		n := e.Eval(&s.Sizes)
		if n < 1 || n > math.MaxUint32 {
			return nil, l, fmt.Errorf("a grid of %d threadgroups", n)
		}
		l.Grid[i] = uint32(n)
	}
	sizes := map[int32]int64{}
	for _, b := range d.Bindings {
		sizes[b.Buffer] = max(sizes[b.Buffer], b.Offset+b.Bytes.Eval(&s.Sizes), size(plan, s, b.Buffer))
	}
	var total int64
	for _, n := range sizes {
		total += counted.Size(n)
	}
	memory, err := counted.NewMemory(total)
	if err != nil {
		return nil, l, err
	}
	l.Buffers = make([][]byte, len(k.Args)+1)
	bind := func(at uint32, b []byte) {
		for len(l.Buffers) <= int(at) {
			l.Buffers = append(l.Buffers, nil)
		}
		l.Buffers[at] = b
	}
	words := make([]byte, 0, 4*len(d.Params))
	for _, e := range d.Params {
		words = binary.LittleEndian.AppendUint32(words, uint32(e.Eval(&s.Sizes)))
	}
	if len(words) > 0 {
		bind(d.ParamsAt, words)
	}
	buffers := map[int32][]byte{}
	for _, b := range d.Bindings {
		if buffers[b.Buffer] == nil {
			if buffers[b.Buffer], err = memory.Alloc(sizes[b.Buffer]); err != nil {
				return nil, l, err
			}
			contents(plan, s, b.Buffer, buffers[b.Buffer])
		}
		part := buffers[b.Buffer][b.Offset:]
		if arg, ok := k.Arg(int(b.Index)); ok && b.Read && !b.Write && isState(plan.Buffers[b.Buffer].Kind) {
			randomise(part[:b.Bytes.Eval(&s.Sizes)], arg.Element)
		}
		bind(b.Index, part)
	}
	return memory, l, nil
}

// size returns the size of a buffer in bytes; of the arena only the bound part matters.
func size(compiled *plan.Plan, s Step, buffer int32) int64 {
	b := &compiled.Buffers[buffer]
	switch b.Kind {
	case plan.Arena:
		return 0
	case plan.CacheK, plan.CacheV, plan.State:
		return b.Bytes.Eval(&s.Sizes) * max(s.Sizes[sym.NB]*s.Sizes[sym.B], 2*s.Sizes[sym.C])
	}
	return b.Bytes.Eval(&s.Sizes)
}

func isState(k plan.Kind) bool {
	return k == plan.Arena || k.Kept()
}

// contents writes the contents of an input or a constant of the plan.
func contents(compiled *plan.Plan, s Step, buffer int32, to []byte) {
	b := &compiled.Buffers[buffer]
	if b.Kind == plan.Const {
		copy(to, b.Data)
	}
	if b.Kind != plan.Input {
		return
	}
	values, _ := sym.Given(s.inputs, b.Name)
	if b.Owners != nil {
		values = make([]int32, len(to)/4)
		b.Owners.Fill(values, s.inputs[sym.CuSeqlens])
	}
	for i, v := range values[:len(to)/4] {
		binary.LittleEndian.PutUint32(to[4*i:], uint32(v))
	}
}

// randomise fills a buffer with numbers in (−1, 1).
func randomise(to []byte, e kernels.Element) {
	random := rand.NewPCG(1, uint64(len(to)))
	switch e {
	case kernels.Float:
		for i := 0; i+4 <= len(to); i += 4 {
			v := float32(int32(random.Uint64())) / (1 << 31)
			binary.LittleEndian.PutUint32(to[i:], math.Float32bits(v))
		}
	case kernels.Half: // a sign, an exponent below that of 1, any fraction
		for i := 0; i+2 <= len(to); i += 2 {
			x := random.Uint64()
			binary.LittleEndian.PutUint16(to[i:], uint16(x&0x83ff|(10+x>>10&3)<<10))
		}
	case kernels.Bfloat:
		for i := 0; i+2 <= len(to); i += 2 {
			x := random.Uint64()
			binary.LittleEndian.PutUint16(to[i:], uint16(x&0x807f|(123+x>>10&3)<<7))
		}
	case kernels.Blocks:
		for i := 0; i+34 <= len(to); i += 34 {
			binary.LittleEndian.PutUint16(to[i:], 0x2000) // 2⁻⁷
			for j := 2; j < 34; j++ {
				to[i+j] = byte(random.Uint64())
			}
		}
	}
}

// shape formats the sizes of a dispatch.
func shape(compiled *plan.Plan, s Step, d *plan.Dispatch, k *kernels.Kernel) string {
	words := make(map[string]int64, k.ParamWords)
	for i := range min(k.ParamWords, len(d.Params)) {
		words[k.ParamNames[i]] = d.Params[i].Eval(&s.Sizes)
	}
	text, ok := shapes[k.Params]
	if !ok {
		return strconv.Itoa(k.ParamWords) + " words"
	}
	out := text(words)
	for _, b := range d.Bindings {
		if compiled.Buffers[b.Buffer].Kind == plan.Weight {
			if arg, ok := k.Arg(int(b.Index)); ok && arg.Element == kernels.Bytes {
				out += " " + compiled.Buffers[b.Buffer].DType.String()
				break
			}
		}
	}
	if k.Params == "AttentionParams" || k.Params == "AttentionWriteParams" {
		out += fmt.Sprintf(" over %d keys", s.Sizes[sym.Smax])
	}
	return out
}

// shapes format the parameters that are sizes, by name of the parameter struct.
var shapes = map[string]func(w map[string]int64) string{
	"EmbedParams": sizes("%d×%d of %d", "tokens", "width", "vocab"),
	"NormParams":  sizes("%d×%d", "rows", "width"),
	"LinearParams": func(w map[string]int64) string {
		n := strconv.FormatInt(w["n0"], 10)
		for _, more := range []string{"n1", "n2", "n3"} {
			if w[more] > 0 {
				n += "+" + strconv.FormatInt(w[more], 10)
			}
		}
		return fmt.Sprintf("%d×%d→%s", w["tokens"], w["k"], n)
	},
	"RopeParams":           sizes("%d×%d×%d", "tokens", "heads", "head"),
	"CacheWriteParams":     sizes("%d×%d×%d", "tokens", "kv_heads", "head"),
	"CopyBlocksParams":     sizes("%d blocks of %d", "pairs", "width"),
	"RopeWriteParams":      sizes("%d×(%d+2·%d)×%d", "tokens", "heads", "kv_heads", "head"),
	"AttentionParams":      sizes("%d×(%d/%d)×%d", "tokens", "heads", "kv_heads", "head"),
	"AttentionWriteParams": sizes("%d×(%d/%d)×%d", "tokens", "heads", "kv_heads", "head"),
	"ReduceParams":         sizes("%d×%d×%d of %d parts", "tokens", "heads", "head", "partitions"),
	"ElementParams":        sizes("%d×%d", "rows", "width"),
}

// sizes returns a function that formats the named parameters.
func sizes(format string, names ...string) func(w map[string]int64) string {
	return func(w map[string]int64) string {
		values := make([]any, len(names))
		for i, name := range names {
			values[i] = w[name]
		}
		return fmt.Sprintf(format, values...)
	}
}
