//go:build cgo && linux && (amd64 || arm64)

package device_test

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt/device"
	"github.com/smelt-ml/smelt/device/host"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/emulated"
	"github.com/smelt-ml/smelt/kernels/native"
	"github.com/smelt-ml/smelt/lower/plan"
)

// fenced is a device whose buffers lie between pages that nothing may touch: a kernel that leaves its
// buffer by more than 63 bytes ends the process.
type fenced struct {
	device.Driver
	whole map[device.Handle]device.Handle // by the part of it between the fences
}

var fence = int64(syscall.Getpagesize())

func (f *fenced) Create(bytes int64, purpose device.Purpose) (device.Handle, error) {
	pages := (bytes + fence - 1) / fence * fence
	whole, err := f.Driver.Create(pages+2*fence, purpose)
	if err != nil {
		return nil, err
	}
	memory := f.Contents(whole, pages+2*fence)
	for _, page := range [][]byte{memory[:fence], memory[fence+pages:]} {
		if err := syscall.Mprotect(page, syscall.PROT_NONE); err != nil {
			return nil, err
		}
	}
	part, err := f.Slice(whole, fence+(pages-bytes)/64*64, bytes)
	f.whole[part] = whole
	return part, err
}

func (f *fenced) Free(h device.Handle) {
	f.Driver.Free(h)
	if whole, ok := f.whole[h]; ok {
		f.Driver.Free(whole)
		delete(f.whole, h)
	}
}

func init() {
	for name, native := range map[string]unsafe.Pointer{"fenced-emu": nil, "fenced-cpu": native.Provider()} {
		device.Register(device.Row{Name: name, Target: "cpu", Options: host.Options(), Open: func(o device.Options) (device.Driver, error) {
			d, err := host.Open(o, emulated.Provider(), native)
			return &fenced{d, map[device.Handle]device.Handle{}}, err
		}})
	}
}

// The sizes of the Plans below, whose layers have caches of each type.
const (
	lyingT, lyingB, lyingNB, lyingBlock, lyingHeads, lyingHead = 8, 3, 2, 8, 2, 32
	lyingSmax                                                  = lyingNB * lyingBlock
	lyingCache                                                 = lyingHeads * lyingHead * lyingBlock // elements of a block
	lyingStack                                                 = 4                                   // experts
)

var lyingInputs = map[string]plan.Expr{
	sym.Tokens: perToken, sym.Positions: perToken, sym.Ends: perToken, sym.TokenTypes: perToken, sym.Slots: perToken, sym.Ahead(2): perToken,
	sym.CuSeqlens: plan.Size(sym.B).Times(4).Plus(plan.Number(4)), sym.ContextLens: plan.Size(sym.B).Times(4), sym.States: plan.Size(sym.B).Times(8),
	sym.LogitRows: plan.Size(sym.R).Times(4), sym.Copies: plan.Size(sym.C).Times(8),
	sym.BlockTable: {Terms: []plan.Term{{Mul: 4, Div: 1, Pow: [sym.Count]uint8{sym.B: 1, sym.NB: 1}}}},
}

// lying is a Plan in the making with a buffer of every kind, and a phase of tokens and one of copies.
type lying struct {
	*sketch
	r       *rand.Rand
	inputs  map[string]int32
	caches  map[kernels.Element][2]int32
	latents map[kernels.Element]int32
	state   map[int64]int32 // by elements
	one     map[plan.Kind]int32
	next    int64          // free byte of the arena
	orders  []plan.Binding // of the last dispatch of group_by_expert: its order and starts
	last    error          // why a dispatch was left out
}

func newLying(r *rand.Rand) *lying {
	l := &lying{newSketch(lyingT), r, map[string]int32{}, map[kernels.Element][2]int32{}, map[kernels.Element]int32{}, map[int64]int32{}, map[plan.Kind]int32{}, 0, nil, nil}
	p := &l.plan
	p.Context, p.Vocab = lyingSmax, 16
	ph := &p.Phases[0]
	ph.CommandBuffers = nil
	ph.Bounds = sym.Sizes{sym.T: lyingT, sym.B: lyingB, sym.R: lyingT, sym.NB: lyingNB, sym.Smax: lyingSmax}
	ph.Least = sym.Sizes{sym.T: 1, sym.B: 1, sym.R: 1, sym.NB: lyingNB, sym.Smax: lyingSmax}
	p.Phases = append(p.Phases, plan.Phase{Name: "copy", Least: sym.Sizes{sym.C: 1},
		Bounds: sym.Sizes{sym.NB: lyingNB, sym.Smax: lyingSmax, sym.C: 3}})
	for _, name := range slices.Sorted(maps.Keys(lyingInputs)) {
		l.inputs[name] = l.input(name, lyingInputs[name]).buffer
	}
	for _, o := range []*plan.Owners{{Tile: 1, Least: 1, Most: plan.MaxTokens}, {Tile: 32, Least: 1, Most: plan.MaxTokens}} {
		l.inputs[o.Name()] = l.buffer(plan.Buffer{Kind: plan.Input, Name: o.Name(), DType: dtype.I32, Bytes: o.Bytes(), Owners: o}).buffer
	}
	for _, c := range []struct {
		e kernels.Element
		d dtype.Type
	}{{kernels.Float, dtype.F32}, {kernels.Half, dtype.F16}, {kernels.Bfloat, dtype.BF16}, {kernels.Blocks, dtype.Q8_0}} {
		layer := len(p.Caches)
		p.Caches = append(p.Caches, plan.Cache{DType: c.d, KVHeads: lyingHeads, Head: lyingHead, Block: lyingBlock})
		bytes := plan.Number(c.d.Bytes(lyingCache))
		l.caches[c.e] = [2]int32{
			l.buffer(plan.Buffer{Kind: plan.CacheK, DType: c.d, Layer: layer, Bytes: bytes}).buffer,
			l.buffer(plan.Buffer{Kind: plan.CacheV, DType: c.d, Layer: layer, Bytes: bytes}).buffer,
		}
		p.Caches = append(p.Caches, plan.Cache{DType: c.d, KVHeads: 1, Head: lyingHead, Block: lyingBlock, Latent: true})
		l.latents[c.e] = l.buffer(plan.Buffer{Kind: plan.CacheK, DType: c.d, Layer: layer + 1, Bytes: plan.Number(c.d.Bytes(lyingCache / lyingHeads))}).buffer
	}
	for _, rows := range []int{2, lyingHeads * lyingHead} { // of short_conv and of delta_net
		width := lyingHead
		l.state[int64(rows*width)] = l.buffer(plan.Buffer{Kind: plan.State, DType: dtype.F32, Recurrent: plan.Recurrent{Rows: rows, Width: width, Block: lyingBlock},
			Bytes: plan.Number(int64(4 * rows * width))}).buffer
	}
	l.one[plan.Weight] = l.weight("w", dtype.F32, dtype.F32, 16<<10).buffer
	l.one[plan.Const] = l.buffer(plan.Buffer{Kind: plan.Const, Name: "evil", DType: dtype.I32, Bytes: plan.Number(4096), Data: slices.Repeat([]byte{0xff, 0xff, 0xff, 0x1f}, 1024)}).buffer
	l.one[plan.Output] = l.output("out", plan.Number(64<<10)).buffer
	l.one[plan.Arena] = l.buffer(plan.Buffer{Kind: plan.Arena, Bytes: plan.Number(4 << 20)}).buffer
	return l
}

// lyingLatent are the sizes of a latent cache, and of what is written to it.
var lyingLatent = map[string]int64{"kv_heads": 1, "rotated": 16, "rows": 5, "block_stride": lyingBlock * lyingHead}

// word returns what a compiler would give a kernel's parameter, or, rarely, anything. Widths and
// the like are those of a head.
func (l *lying) word(k *kernels.Kernel, name string) plan.Expr {
	size := map[string]plan.Expr{
		"tokens": tokens, "rows": tokens, "seqs": plan.Size(sym.B), "table_stride": plan.Size(sym.NB), "pairs": plan.Size(sym.C), "m": tokens,
		"heads": plan.Number(4), "kv_heads": plan.Number(lyingHeads), "key_heads": plan.Number(lyingHeads), "block": plan.Number(lyingBlock), "block_stride": plan.Number(lyingCache),
		"head_stride": plan.Number(lyingBlock * lyingHead), "row_stride": plan.Number(lyingHead), "context": plan.Size(sym.Smax), "taps": plan.Number(3),
		"q_stride": plan.Number(8 * lyingHead), "k_stride": plan.Number(8 * lyingHead), "v_stride": plan.Number(8 * lyingHead), "x_stride": plan.Number(8 * lyingHead), "out_stride": plan.Number(96),
		"groups": plan.Number(lyingStack + 1), "partitions": plan.Number(1), "vocab": plan.Number(16), "batch": plan.Number(2), "each": plan.Number(2), "chosen": plan.Number(3), "used_groups": plan.Number(2), "repeats": plan.Number(2),
		"share": plan.Number(1), "dt_from": plan.Number(0), "z_stride": plan.Number(8 * lyingHead), "beta_from": plan.Number(0), "z_from": plan.Number(0), "first": plan.Number(0), "n1": plan.Number(0), "n2": plan.Number(0), "n3": plan.Number(0), "qkv_stride": plan.Number(8 * lyingHead), "gate_stride": plan.Number(8 * lyingHead), "gate_from": plan.Number(0), "window": plan.Number(0), "size[0]": plan.Number(2), "offset": plan.Number(0), "seq_q": tokens, "seq_kv": tokens,
	}
	switch {
	case k.Family == "copy_blocks" && name == "width":
		return plan.Number(lyingCache)
	case strings.HasPrefix(k.Family, "latent_") && lyingLatent[name] != 0:
		return plan.Number(lyingLatent[name])
	case strings.HasPrefix(k.Family, "delta_net") && name == "heads", strings.HasPrefix(k.Family, "mamba2") && (name == "heads" || name == "groups"):
		return plan.Number(lyingHeads)
	case strings.HasSuffix(k.Family, "_norm") && name == "groups" || k.Family == "norm_residual" && name == "groups":
		return plan.Number(1)
	case k.Family == "linear_mat" && l.orders != nil && name == "out_stride":
		return plan.Number(32)
	case k.Family == "group_by_expert" && name == "rows":
		return tokens
	case k.Family == "concat" && (name == "n0" || name == "n1"): // of two parts
		return plan.Number(lyingHead / 2)
	case k.Family == "router" && name == "groups":
		return plan.Number(4)
	}
	if l.r.IntN(60) == 0 {
		return []plan.Expr{plan.Number(int64(l.r.IntN(200))), tokens, plan.Size(sym.B), plan.Size(sym.NB), expression(l.r)}[l.r.IntN(5)]
	}
	if e, ok := size[name]; ok {
		return e
	}
	return plan.Number(lyingHead)
}

// constants of a kernel, those of weights float.
func (l *lying) constants(k *kernels.Kernel) (out []plan.Constant) {
	for _, c := range k.Constants {
		bits := uint32(0)
		switch {
		case c.Name == "fc_experts" || c.Name == "fc_top":
			if k.Family != "linear_vec" && len(l.orders) == 0 || l.r.IntN(2) == 0 {
				continue
			}
			bits = map[string]uint32{"fc_experts": lyingStack, "fc_top": 1}[c.Name]
		case c.Type == "uint" && c.Name != "fc_type0" && c.Name != "fc_type" && c.Optional && l.r.IntN(8) > 0:
			continue
		case c.Type == "uint":
			bits = uint32(l.r.IntN(3))
			if strings.HasPrefix(c.Name, "fc_type") {
				bits = uint32(dtype.F32)
			}
		case l.r.IntN(6) == 0 || c.Name == "fc_map" && l.r.IntN(2) == 0:
			bits = 1
		case c.Optional:
			continue
		}
		out = append(out, plan.Constant{Index: uint32(c.Index), Bits: bits})
	}
	return out
}

// whole binds a buffer from its start to its end.
func (l *lying) whole(a *kernels.Arg, buffer int32) plan.Binding {
	return plan.Binding{Index: uint32(a.Index), Buffer: buffer, Bytes: l.plan.Buffers[buffer].Bytes, Read: a.Access == kernels.Read, Write: a.Access == kernels.Write}
}

// bind binds an argument as a compiler would, or, once in a while, anywhere.
func (l *lying) bind(k *kernels.Kernel, a *kernels.Arg, d *plan.Dispatch, lies bool) plan.Binding {
	index, isIndex := k.Index(a)
	if lies && l.r.IntN(8) == 0 || isIndex && lies && l.r.IntN(4) == 0 {
		return l.whole(a, int32(l.r.IntN(len(l.plan.Buffers))))
	}
	switch {
	case index.Made != "" && len(l.orders) > 0:
		b := l.orders[len(l.orders)-2]
		if index.Made == "starts" {
			b = l.orders[len(l.orders)-1]
		}
		b.Index, b.Read, b.Write = uint32(a.Index), true, false
		return b
	case isIndex && index.Owners && k.Family == "attention_tile":
		return l.whole(a, l.inputs["owners.32"])
	case isIndex && index.Owners:
		return l.whole(a, l.inputs["owners.1"])
	case isIndex && len(index.Inputs) > 0:
		return l.whole(a, l.inputs[index.Inputs[0]])
	case isIndex:
		return l.whole(a, l.inputs[sym.Tokens])
	case a.IsKept() && strings.HasPrefix(a.Name, "state"):
		elements := int64(2 * lyingHead)
		if strings.HasPrefix(k.Family, "delta_net") || strings.HasPrefix(k.Family, "mamba2") {
			elements = lyingHeads * lyingHead * lyingHead
		}
		return l.whole(a, l.state[elements])
	case a.IsKept() && strings.HasPrefix(k.Family, "latent_"):
		return l.whole(a, l.latents[a.Element])
	case a.IsKept():
		side := 0
		if strings.HasPrefix(a.Name, "v_") {
			side = 1
		}
		return l.whole(a, l.caches[a.Element][side])
	case a.Element == kernels.Bytes:
		return l.whole(a, l.one[plan.Weight])
	}
	b := l.whole(a, l.one[plan.Arena])
	b.Offset, b.Bytes = l.next%(4<<20), plan.Number(256<<10)
	l.next += 256 << 10
	return b
}

// of appends a dispatch of a kernel, and reports whether a grid was found with which the Plan is valid.
func (l *lying) of(k *kernels.Kernel, lies bool) bool {
	ph := &l.plan.Phases[0]
	if k.Family == "copy_blocks" {
		ph = &l.plan.Phases[1]
	}
	d := plan.Dispatch{Kernel: k.Name, Value: int32(1 + len(ph.Dispatches)), Layer: -1, ParamsAt: uint32(k.ParamsIndex), Barrier: true, Constants: l.constants(k)}
	for _, name := range k.ParamNames {
		d.Params = append(d.Params, l.word(k, name))
	}
	for i := range k.Args {
		if a := &k.Args[i]; !a.Optional || l.r.IntN(3) > 0 {
			d.Bindings = append(d.Bindings, l.bind(k, a, &d, lies))
		}
	}
	num, b := plan.Number, plan.Size(sym.B)
	axes := [][]plan.Expr{
		{num(1), num(2), num(4), num(3), num(5), num(8), tokens, b, tokens.Over(32), tokens.Over(32).Plus(b), tokens.Over(32).Plus(num(5)), tokens.Over(64)},
		{num(1), tokens, num(2), num(4), b, tokens.Over(32), tokens.Plus(b), plan.Expr{Terms: []plan.Term{{Mul: 1, Div: 1, Pow: [sym.Count]uint8{sym.B: 1, sym.Smax: 1}}}}, plan.Size(sym.C)},
		{num(1), tokens, num(4), num(2)},
	}
	if k.Grid != nil {
		for i := range axes {
			e := num(1)
			for _, word := range k.Grid[i].Words {
				if word < len(d.Params) {
					if n, err := plan.Multiply(e, d.Params[word]); err == nil {
						e = n
					}
				}
			}
			if len(e.Terms) < 2 {
				if len(e.Terms) == 0 || e.Terms[0].Div == 1 && e.Constant == 0 {
					e = e.Over(int64(k.Grid[i].Tile))
				}
			}
			axes[i] = []plan.Expr{e}
		}
	}
	ph.Dispatches = append(ph.Dispatches, d)
	last := &ph.Dispatches[len(ph.Dispatches)-1]
	for _, threads := range []uint32{uint32(k.MaxThreads), 32} {
		for _, x := range axes[0] {
			for _, y := range axes[1] {
				for _, z := range axes[2] {
					last.Grid, last.Group = [3]plan.Expr{x, y, z}, [3]uint32{threads, 1, 1}
					err := l.plan.Validate()
					if l.last = err; err == nil {
						if k.Family == kernels.GroupByExpert {
							l.orders = append(l.orders, last.Bindings[1], last.Bindings[2])
						}
						return true
					}
					if !strings.Contains(err.Error(), "grid") && !strings.Contains(err.Error(), "threadgroup") && !strings.Contains(err.Error(), "the sizes ask for") {
						ph.Dispatches = ph.Dispatches[:len(ph.Dispatches)-1]
						return false
					}
				}
			}
		}
	}
	ph.Dispatches = ph.Dispatches[:len(ph.Dispatches)-1]
	return false
}

// mutations are ways in which a Plan from a file may lie.
var mutations = []func(r *rand.Rand, p *plan.Plan){
	func(r *rand.Rand, p *plan.Plan) { anyBinding(r, p).Offset = number(r) },
	func(r *rand.Rand, p *plan.Plan) { anyBinding(r, p).Buffer = int32(r.IntN(len(p.Buffers)+2) - 1) },
	func(r *rand.Rand, p *plan.Plan) { anyBinding(r, p).Index = uint32(r.IntN(36)) },
	func(r *rand.Rand, p *plan.Plan) { anyBinding(r, p).Bytes = expression(r) },
	func(r *rand.Rand, p *plan.Plan) { anyDispatch(r, p).ParamsAt = uint32(r.IntN(36)) },
	func(r *rand.Rand, p *plan.Plan) { anyDispatch(r, p).Params[0] = expression(r) },
	func(r *rand.Rand, p *plan.Plan) { anyDispatch(r, p).Params = nil },
	func(r *rand.Rand, p *plan.Plan) {
		anyDispatch(r, p).Grid[r.IntN(3)] = plan.Number(int64(r.IntN(50) - 3))
	},
	func(r *rand.Rand, p *plan.Plan) { anyDispatch(r, p).Group[r.IntN(3)] = uint32(r.IntN(3000)) },
	func(r *rand.Rand, p *plan.Plan) {
		anyDispatch(r, p).Constants = []plan.Constant{{Index: uint32(r.IntN(40))}}
	},
	func(r *rand.Rand, p *plan.Plan) { p.Phases[0].CommandBuffers = []int{r.IntN(3) - 1, r.IntN(12)} },
	func(r *rand.Rand, p *plan.Plan) { p.Phases[0].Bounds[r.IntN(sym.Count)] = number(r) },
	func(r *rand.Rand, p *plan.Plan) { p.Phases[0].Least[r.IntN(sym.Count)] = number(r) },
	func(r *rand.Rand, p *plan.Plan) { p.Phases[0].Longest.Max = number(r) },
	func(r *rand.Rand, p *plan.Plan) { anyBuffer(r, p).Bytes = expression(r) },
	func(r *rand.Rand, p *plan.Plan) { anyBuffer(r, p).Kind = plan.Kind(r.IntN(9)) },
	func(r *rand.Rand, p *plan.Plan) { anyBuffer(r, p).DType = dtype.Type(r.IntN(20)) },
	func(r *rand.Rand, p *plan.Plan) { p.Phases[0].Dispatches = p.Phases[0].Dispatches[:r.IntN(3)] },
	func(r *rand.Rand, p *plan.Plan) { p.Buffers = p.Buffers[:r.IntN(len(p.Buffers))] },
}

func anyDispatch(r *rand.Rand, p *plan.Plan) *plan.Dispatch {
	return &p.Phases[0].Dispatches[r.IntN(len(p.Phases[0].Dispatches))]
}

func anyBinding(r *rand.Rand, p *plan.Plan) *plan.Binding {
	d := anyDispatch(r, p)
	return &d.Bindings[r.IntN(len(d.Bindings))]
}

func anyBuffer(r *rand.Rand, p *plan.Plan) *plan.Buffer { return &p.Buffers[r.IntN(len(p.Buffers))] }

func number(r *rand.Rand) int64 {
	return []int64{0, 1, -1, 4, 64, 4096, math.MaxInt32, math.MaxUint32, math.MaxInt64, math.MinInt64}[r.IntN(10)]
}

func expression(r *rand.Rand) plan.Expr {
	e := plan.Number(number(r))
	for range r.IntN(3) {
		t := plan.Term{Mul: number(r), Add: number(r), Div: number(r)}
		t.Pow[r.IntN(sym.Count)] = uint8(r.IntN(6))
		e.Terms = append(e.Terms, t)
	}
	return e
}

// step returns a step of the Plan, as the engine would make it.
func (l *lying) step(blocks int) *device.Step {
	r := l.r
	n := 1 + r.IntN(lyingT)
	b := 1 + r.IntN(min(n, lyingB))
	s := &device.Step{Sizes: sym.Sizes{sym.T: int64(n), sym.B: int64(b), sym.NB: lyingNB, sym.Smax: lyingSmax}, Inputs: map[string][]int32{sym.CuSeqlens: {0}, sym.Copies: {}}}
	add := func(name string, v int) { s.Inputs[name] = append(s.Inputs[name], int32(v)) }
	for seq := range b {
		tokens := 1
		if seq == b-1 {
			tokens = n - seq
		}
		first := r.IntN(lyingSmax - tokens + 1)
		for i := range tokens {
			add(sym.Tokens, r.IntN(16))
			add(sym.Positions, first+i)
			add(sym.Ends, first+tokens-1)
			add(sym.TokenTypes, r.IntN(2))
			add(sym.Slots, r.IntN(blocks*lyingBlock+1)-1)
		}
		add(sym.CuSeqlens, seq+tokens)
		add(sym.ContextLens, first+tokens)
		add(sym.States, r.IntN(2)*(seq+1)-1)
		add(sym.States, seq)
		for range lyingNB {
			add(sym.BlockTable, r.IntN(blocks))
		}
	}
	s.Sizes[sym.R] = int64(1 + r.IntN(n))
	for range s.Sizes[sym.R] {
		add(sym.LogitRows, r.IntN(n))
	}
	return s
}

// run runs a few steps of each phase.
func (l *lying) run(t *testing.T, name string) (ran int) {
	const blocks = 4
	d, err := device.Open("fenced-"+name, device.Options{Threads: 2, MemoryLimit: 64 << 20})
	require.NoError(t, err)
	defer d.Close()
	weights := make([]byte, 64<<10)
	p, err := load(d, &l.plan, func(string) ([]byte, dtype.Type, error) { return weights, dtype.F32, nil })
	if err != nil {
		return 0
	}
	instance, err := p.NewInstance(blocks, device.Window{Keys: device.States, Blocks: blocks})
	if err != nil {
		return 0
	}
	for range 3 {
		if instance.Run(t.Context(), l.step(blocks)) == nil {
			ran++
		}
	}
	if len(l.plan.Phases) > 1 {
		copies := device.Step{Phase: 1, Sizes: sym.Sizes{sym.NB: lyingNB, sym.Smax: lyingSmax, sym.C: 2}, Inputs: map[string][]int32{sym.Copies: {0, 1, 2, 3}, sym.CuSeqlens: {0}}}
		for name := range lyingInputs {
			if copies.Inputs[name] == nil {
				copies.Inputs[name] = []int32{}
			}
		}
		if instance.Run(t.Context(), &copies) == nil {
			ran++
		}
	}
	return ran
}

// TestTruePlans checks that the Plans of FuzzLyingPlan, without lies, reach every kernel.
func TestTruePlans(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	all, ordered := kernels.All(), 0
	for i := range all {
		k, found := &all[i], false
		var l *lying
		for range 100 {
			l = newLying(r)
			if k.Family == "linear_mat" {
				group, _ := kernels.Lookup(kernels.GroupByExpert)
				l.of(group, false)
			}
			if found = l.of(k, false); found {
				break
			}
		}
		require.True(t, found, "%s: %v", k.Name, l.last)
		require.Equal(t, 4, l.run(t, "cpu"), k.Name)
		if k.Family == "linear_mat" && len(l.orders) > 0 {
			d, experts := &l.plan.Phases[0].Dispatches[1], set(k.Name, map[string]uint32{"fc_experts": lyingStack})
			if slices.Contains(d.Constants, experts[len(experts)-1]) {
				ordered++
			}
		}
	}
	require.NotZero(t, ordered, "no product of experts in their order")
}

// A Plan that lies is refused, or runs within its buffers: an access outside them ends the process.
func FuzzLyingPlan(f *testing.F) {
	for seed := range uint64(100) {
		f.Add(seed)
	}
	all := kernels.All()
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 0))
		l := newLying(r)
		for range 1 + r.IntN(4) {
			l.of(&all[r.IntN(len(all))], true)
		}
		for range r.IntN(3) {
			func() {
				defer func() { _ = recover() }() // of a mutation of what another took away
				mutations[r.IntN(len(mutations))](r, &l.plan)
			}()
		}
		l.run(t, []string{"cpu", "emu"}[seed%2])
	})
}
