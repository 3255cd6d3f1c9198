package ir

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
)

// Weights looks tensors of the model file up for a Builder, which calls it once for each
// weight with the shape that the model definition expects.
type Weights interface {
	// Weight returns the stored element type and shape of a tensor, outermost extent
	// first; ok reports whether it exists.
	Weight(name string, want []int) (t dtype.Type, shape []int, ok bool)
}

// Options are the parameters of a graph besides its definition and its weights.
type Options struct {
	KV    dtype.Type // element type of the KV cache; F16 if unset
	Block int        // tokens per cache block; a contiguous cache is one block of the context length
	// Context is the maximum number of tokens of a sequence, for models that depend on it; 0: Block.
	Context int
	// Embeddings makes the graph return the hidden states in place of logits.
	Embeddings bool
}

// WeightError lists every weight that a model definition requires and the file lacks, or holds
// in another shape.
type WeightError struct {
	Missing   []string // names
	Misshapen []string // "name is [2,3], want [3,2]"
}

// Error returns a heading and one line for each weight.
func (e *WeightError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d weights do not fit the model definition:", len(e.Missing)+len(e.Misshapen))
	for _, name := range e.Missing {
		b.WriteString("\n  " + name + " is missing")
	}
	for _, text := range e.Misshapen {
		b.WriteString("\n  " + text)
	}
	return b.String()
}

// Builder is the core of the DSL: each method adds one op and returns its value.
// A mistake, such as a shape that does not fit, stops Build with an error that names
// the op and layer, so that definitions need no error handling.
type Builder struct {
	f       *Func
	opts    Options
	weights Weights
	wrong   WeightError
	layer   int
	inputs  map[string]*Value
	named   map[string]*Value
	caches  []*Value // the newest version of each layer's cache
	states  []*Value // the newest version of each recurrent state, in order of their State calls
}

// buildError carries an error from a Builder method to Build.
type buildError struct{ err error }

// Build runs a model definition and returns its source graph, verified. Weights
// that are missing or misshapen are reported together, as a WeightError.
func Build(name string, w Weights, opts Options, define func(b *Builder)) (f *Func, err error) {
	if opts.KV == dtype.Invalid {
		opts.KV = dtype.F16
	}
	b := &Builder{
		f: NewFunc(name, Source), opts: opts, weights: w, layer: NoLayer,
		inputs: make(map[string]*Value), named: make(map[string]*Value),
	}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case buildError:
			f, err = nil, fmt.Errorf("building %s: %w", name, errors.Join(b.weightError(), r.err))
		default:
			panic(r)
		}
	}()
	define(b)
	if err := b.weightError(); err != nil {
		return nil, fmt.Errorf("building %s: %w", name, err)
	}
	for layer, c := range b.caches {
		if c != nil {
			b.Return(fmt.Sprintf("cache.%d", layer), c)
		}
	}
	for _, s := range b.states {
		a := stateAttr(s)
		b.Return(fmt.Sprintf("state.%s.%d", a.Name, a.Layer), s)
	}
	if err := b.f.Verify(); err != nil {
		return nil, fmt.Errorf("building: %w", err)
	}
	return b.f, nil
}

func (b *Builder) weightError() error {
	if len(b.wrong.Missing)+len(b.wrong.Misshapen) == 0 {
		return nil
	}
	return &b.wrong
}

// Fail stops Build with an error that names the current layer.
func (b *Builder) Fail(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	if b.layer != NoLayer {
		err = fmt.Errorf("layer %d: %w", b.layer, err)
	}
	panic(buildError{err})
}

// require stops Build where an operand is nil.
func (b *Builder) require(op Op, args ...*Value) {
	for i, a := range args {
		if a == nil {
			b.Fail("%s: operand %d is nil", op, i)
		}
	}
}

func (b *Builder) emit(op Op, attr any, args ...*Value) *Value {
	b.require(op, args...)
	v, err := b.f.Emit(op, attr, b.layer, args...)
	if err != nil {
		b.Fail("%w", err)
	}
	return v
}

func (b *Builder) given(op Op, t Type, attr any, layer int, args ...*Value) *Value {
	if _, err := op.check(args, attr, t); err != nil {
		b.Fail("%w", err)
	}
	return b.f.Append(op, t, attr, layer, args...)
}

// Layer runs define and assigns every value that it adds to transformer layer i.
func (b *Builder) Layer(i int, define func()) {
	if i < 0 || i >= maxLayers {
		b.Fail("no layer can have the number %d", i)
	}
	defer func(outer int) { b.layer = outer }(b.layer)
	b.layer = i
	define()
}

// Outside calls define, whose values belong to no layer.
func (b *Builder) Outside(define func()) {
	defer func(outer int) { b.layer = outer }(b.layer)
	b.layer = NoLayer
	define()
}

// inputShapes is the shape of every per-step input.
var inputShapes = map[string]Shape{
	sym.Tokens:      {Var(sym.T)},
	sym.Positions:   {Var(sym.T)},
	sym.Ends:        {Var(sym.T)},
	sym.TokenTypes:  {Var(sym.T)},
	sym.Slots:       {Var(sym.T)},
	sym.CuSeqlens:   {Var(sym.B).Plus(1)},
	sym.ContextLens: {Var(sym.B)},
	sym.BlockTable:  {Var(sym.B), Var(sym.NB)},
	sym.LogitRows:   {Var(sym.R)},
	sym.States:      {Var(sym.B), Const(2)},
	sym.Copies:      {Var(sym.C), Const(2)},
}

// Input returns a per-step input by name.
func (b *Builder) Input(name string) *Value {
	if v := b.inputs[name]; v != nil {
		return v
	}
	base, _ := sym.Window(name)
	shape, ok := inputShapes[base]
	if sym.Derived(name) {
		shape, ok = inputShapes[sym.Positions], true
	}
	if !ok {
		b.Fail("no per-step input is called %q", name)
	}
	v := b.given(OpInput, TensorOf(dtype.I32, shape...), NameAttr{name}, NoLayer)
	b.inputs[name] = v
	return v
}

// HasWeight reports whether the file holds a tensor of that name, for optional
// weights (an untied output head, RoPE factors).
func (b *Builder) HasWeight(name string) bool {
	_, _, ok := b.weights.Weight(name, nil)
	return ok
}

// Weight binds a tensor of the file by name. A missing or misshapen weight does not
// stop the definition, so that Build reports all of them in one WeightError.
func (b *Builder) Weight(name string, shape ...int) *Value {
	dims := make(Shape, len(shape))
	for i, n := range shape {
		dims[i] = Const(n)
	}
	if v := b.named[name]; v != nil {
		if !slices.Equal(v.Type.Shape, dims) {
			b.Fail("weight %q is asked for as %s and as %s", name, v.Type.Shape, dims)
		}
		return v
	}
	t, have, ok := b.weights.Weight(name, shape)
	same := slices.Equal(have, shape)
	want := TensorOf(t, dims...)
	switch {
	case !ok:
		b.wrong.Missing = append(b.wrong.Missing, name)
		want.DType = dtype.F32
	case !same:
		b.wrong.Misshapen = append(b.wrong.Misshapen, fmt.Sprintf("%s is %v, want %v", name, have, shape))
		want.DType = dtype.F32
	}
	v := b.given(OpWeight, want, NameAttr{name}, b.layer)
	b.named[name] = v
	return v
}

// Const returns a float32 vector whose elements the definition computes.
func (b *Builder) Const(data []float32) *Value {
	raw := make([]byte, 0, 4*len(data))
	for _, x := range data {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	return b.given(OpConst, TensorOf(dtype.F32, Const(len(data))), ConstAttr{string(raw)}, b.layer)
}

// Cache returns the current version of the layer's KV cache; the first version is the
// cache at the start of the step.
func (b *Builder) Cache(kvHeads, head int) *Value { return b.CacheWindow(kvHeads, head, 0) }

// CacheWindow is Cache for a layer whose tokens see the last window keys only; 0: all. In blocks that
// are smaller than the context, it has [Cache.Window].
func (b *Builder) CacheWindow(kvHeads, head, window int) *Value {
	c := Cache{KVHeads: kvHeads, Head: head}
	if b.opts.Block < b.opts.Context && window < b.opts.Context {
		c.Window = window
	}
	return b.CacheLike(c)
}

// LatentCache is Cache for a layer whose tokens have one row of width elements, which is the key and
// the value of all heads (DeepSeek-AI, "DeepSeek-V2", 2024, multi-head latent attention).
func (b *Builder) LatentCache(width int) *Value {
	return b.CacheLike(Cache{KVHeads: 1, Head: width, Latent: true})
}

// CacheLike is Cache for a layer whose cache has the heads and the window of c, and the options' type
// and blocks.
func (b *Builder) CacheLike(c Cache) *Value {
	if b.layer == NoLayer {
		b.Fail("a cache belongs to a layer")
	}
	for len(b.caches) <= b.layer {
		b.caches = append(b.caches, nil)
	}
	c.DType, c.Block = b.opts.KV, b.opts.Block
	if v := b.caches[b.layer]; v != nil {
		if v.Type.Cache != c {
			b.Fail("there is a cache of %s already, want %s", v.Type, StateOf(c))
		}
		return v
	}
	v := b.given(OpCache, StateOf(c), CacheAttr{b.layer}, b.layer)
	b.caches[b.layer] = v
	return v
}

// CacheOf returns the current version of an earlier layer's KV cache, for a layer that reads the keys
// and values of that one and has none of its own (Sun et al., "You Only Cache Once", 2024).
func (b *Builder) CacheOf(layer int) *Value {
	if layer < 0 || layer >= len(b.caches) || layer >= b.layer || b.caches[layer] == nil {
		b.Fail("layer %d has no cache to read, or comes no earlier", layer)
	}
	return b.caches[layer]
}

// CacheWrite stores k and v, [T,KV,D] each, at the tokens' slots and returns the
// cache's next version. Both are the same for a latent cache.
func (b *Builder) CacheWrite(cache, k, v *Value) *Value {
	if cache == nil || b.layer == NoLayer || b.layer >= len(b.caches) || b.caches[b.layer] != cache {
		b.Fail("%s is not the newest version of the layer's cache", cache)
	}
	next := b.emit(OpCacheWrite, nil, cache, k, v, b.Input(sym.Windowed(sym.Slots, cache.Type.Cache.Window)))
	b.caches[b.layer] = next
	return next
}

// CopyBlocks copies the blocks of the layer's cache that the input copies lists, and returns the
// cache's next version.
func (b *Builder) CopyBlocks(cache *Value) *Value {
	if cache == nil || b.layer == NoLayer || b.layer >= len(b.caches) || b.caches[b.layer] != cache {
		b.Fail("%s is not the newest version of the layer's cache", cache)
	}
	next := b.emit(OpCopyBlocks, nil, cache, b.Input(sym.Copies))
	b.caches[b.layer] = next
	return next
}

// CacheRead returns the keys and values of every sequence, [B*Smax,KV,D] each.
func (b *Builder) CacheRead(cache *Value) (k, v *Value) {
	b.require(OpCacheRead, cache)
	lens, table := b.Input(sym.ContextLens), b.Input(sym.Windowed(sym.BlockTable, cache.Type.Cache.Window))
	k = b.emit(OpCacheRead, CacheReadAttr{Values: false}, cache, lens, table)
	v = b.emit(OpCacheRead, CacheReadAttr{Values: true}, cache, lens, table)
	return k, v
}

// State returns a recurrent state of the layer, [rows, width] per sequence, at the start of the
// step: zeros for a new sequence.
func (b *Builder) State(name string, rows, width int) *Value {
	if b.layer == NoLayer {
		b.Fail("a state belongs to a layer")
	}
	attr := StateAttr{b.layer, name}
	if slices.ContainsFunc(b.states, func(s *Value) bool { return stateAttr(s) == attr }) {
		b.Fail("there is a state %q already", name)
	}
	v := b.given(OpState, RecurrentOf(Recurrent{Rows: rows, Width: width, Block: b.opts.Block}), attr, b.layer)
	b.states = append(b.states, v)
	return v
}

// stateAttr returns the attribute of the state that v is a version of.
func stateAttr(v *Value) StateAttr {
	for v.Op != OpState {
		if i := v.Op.Writes(); i >= 0 {
			v = v.Args[i]
		} else {
			v = v.Args[0] // select
		}
	}
	return v.Attr.(StateAttr)
}

// recur emits an op that advances a state, and returns its tensor. The state is the last of
// args; the inputs that locate it in a step follow.
func (b *Builder) recur(op Op, attr any, args ...*Value) *Value {
	b.require(op, args...)
	state := args[len(args)-1]
	at := slices.Index(b.states, state)
	if at < 0 {
		b.Fail("%s is not the newest version of a state", state)
	}
	both := b.emit(op, attr, append(args, b.Input(sym.CuSeqlens), b.Input(sym.States))...)
	b.states[at] = b.emit(OpSelect, SelectAttr{1}, both)
	return b.emit(OpSelect, SelectAttr{0}, both)
}

// ShortConv convolves each column of x, [T,E], with its row of w, [E,K], along the tokens
// of every sequence: y[t] = Σ w[·,K−1−j]·x[t−j], j < K. The state, [K−1,E], holds the x of the
// K−1 tokens before the step, the oldest first.
func (b *Builder) ShortConv(x, w, state *Value) *Value { return b.recur(OpShortConv, nil, x, w, state) }

// DeltaNet is the gated delta rule (Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024)
// over the tokens of every sequence, for each head h of V:
//
//	S ← g·S + k·(β·(v − kᵀ·g·S))ᵀ      y = Sᵀ·q/√D
//	g = exp(decay·softplus(alpha + bias))      β = 1/(1 + exp(−beta))
//
// with q and k of the head that [DeltaNetAttr.Share] gives, divided by their length. qkv concatenates the heads of
// Q, K and V along columns; the state, [H·D,D], is S of every head, a row per element of k.
func (b *Builder) DeltaNet(qkv, alpha, beta, decay, bias, state *Value, attr DeltaNetAttr) *Value {
	return b.recur(OpDeltaNet, attr, qkv, alpha, beta, decay, bias, state)
}

// Mamba2 is the state space of Mamba-2 (Dao and Gu, "Transformers are SSMs", 2024) over the tokens of
// every sequence, for each head h:
//
//	S ← exp(decay·Δ)·S + B·(Δ·x)ᵀ      y = Sᵀ·C + skip·x      Δ = softplus(dt + bias)
//
// with B and C of the head's group. xbc concatenates the heads of x, [H·D], and the groups of B and of
// C, [Groups·N] each, along columns; the state, [H·N,D], is S of every head.
func (b *Builder) Mamba2(xbc, dt, decay, bias, skip, state *Value, groups int) *Value {
	return b.recur(OpMamba2, Mamba2Attr{groups}, xbc, dt, decay, bias, skip, state)
}

// Embed returns the rows of table that tokens index, [T,E].
func (b *Builder) Embed(tokens, table *Value) *Value { return b.emit(OpEmbed, nil, tokens, table) }

// Linear returns x·wᵀ: x is […,K], w is [N,K].
func (b *Builder) Linear(x, w *Value) *Value { return b.emit(OpLinear, nil, x, w) }

// LinearBias returns x·wᵀ + bias: bias is [N], or nil.
func (b *Builder) LinearBias(x, w, bias *Value) *Value {
	if bias == nil {
		return b.Linear(x, w)
	}
	return b.emit(OpLinear, nil, x, w, bias)
}

// ExpertLinear returns x·w[e]ᵀ + bias[e] for every expert e that a token is routed to, [T,S,N]:
// x is [T,K], or [T,S,K] where each expert has an input of its own, w is [E,N,K], experts [T,S]
// and bias [E,N], or nil.
func (b *Builder) ExpertLinear(x, w, experts, bias *Value) *Value {
	if bias == nil {
		return b.emit(OpExpertLinear, nil, x, w, experts)
	}
	return b.emit(OpExpertLinear, nil, x, w, experts, bias)
}

// WeightedSum returns Σ weights[t,s] · x[t,s], [T,N]: x is [T,S,N], weights [T,S].
func (b *Builder) WeightedSum(x, weights *Value) *Value {
	return b.emit(OpWeightedSum, nil, x, weights)
}

// RMSNorm normalises the innermost axis of x and multiplies it by w.
func (b *Builder) RMSNorm(x, w *Value, eps float64) *Value {
	return b.emit(OpRMSNorm, NormAttr{eps}, x, w)
}

// GroupNorm is RMSNorm of each group of x, […,G,K], with weights of its own: w is [G,K].
func (b *Builder) GroupNorm(x, w *Value, eps float64) *Value {
	return b.emit(OpGroupNorm, NormAttr{eps}, x, w)
}

// LayerNorm normalises the innermost axis of x to mean 0 and variance 1, multiplies it by w
// and adds bias. Bias may be nil, or both.
func (b *Builder) LayerNorm(x, w, bias *Value, eps float64) *Value {
	args := []*Value{x}
	for _, a := range []*Value{w, bias} {
		if a != nil {
			args = append(args, a)
		}
	}
	if w == nil && bias != nil {
		b.Fail("%s: a bias without a weight", OpLayerNorm)
	}
	return b.emit(OpLayerNorm, NormAttr{eps}, args...)
}

// Reshape returns the elements of x in another shape.
func (b *Builder) Reshape(x *Value, shape ...Dim) *Value {
	b.require(OpReshape, x)
	return b.given(OpReshape, TensorOf(x.Type.DType, shape...), nil, b.layer, x)
}

// SplitHeads reshapes [T,H·D] to [T,H,D].
func (b *Builder) SplitHeads(x *Value, heads int) *Value {
	b.require(OpReshape, x)
	if heads <= 0 || len(x.Type.Shape) != 2 || x.Type.Shape.Last()%int64(heads) != 0 {
		b.Fail("%s %s does not split into %d heads", x, x.Type, heads)
	}
	return b.Reshape(x, x.Type.Shape[0], Const(heads), Const(int(x.Type.Shape.Last())/heads))
}

// MergeHeads reshapes [T,H,D] to [T,H·D].
func (b *Builder) MergeHeads(x *Value) *Value {
	b.require(OpReshape, x)
	s := x.Type.Shape
	if len(s) != 3 {
		b.Fail("%s %s has no heads to merge", x, x.Type)
	}
	width, ok := s[1].Times(s[2])
	if !ok {
		b.Fail("%s %s has no heads to merge", x, x.Type)
	}
	return b.Reshape(x, s[0], width)
}

// Transpose permutes the three axes of x: axis i of the result is axis axes[i] of x.
func (b *Builder) Transpose(x *Value, axes [3]int) *Value {
	return b.emit(OpTranspose, TransposeAttr{axes[0], axes[1], axes[2]}, x)
}

// Slice returns columns [start, end) of x.
func (b *Builder) Slice(x *Value, start, end int) *Value {
	return b.emit(OpSlice, SliceAttr{Start: start, End: end}, x)
}

// Indices returns 0 … n−1 for each token, [T,n] int32: the choice of all of n experts, in their order.
func (b *Builder) Indices(n int) *Value {
	return b.emit(OpIndices, IndicesAttr{n}, b.Input(sym.Positions))
}

// Concat returns the columns of its operands side by side.
func (b *Builder) Concat(parts ...*Value) *Value { return b.emit(OpConcat, nil, parts...) }

// Rope rotates x, [T,H,D], by the tokens' positions. factors, [Rotated/2] or nil, divide
// the frequencies.
func (b *Builder) Rope(x *Value, attr RopeAttr, factors *Value) *Value {
	if factors == nil {
		return b.emit(OpRope, attr, x, b.Input(sym.Positions))
	}
	return b.emit(OpRope, attr, x, b.Input(sym.Positions), factors)
}

// RepeatKV repeats each head of x, [S,KV,D], n times consecutively: [S,KV·n,D].
func (b *Builder) RepeatKV(x *Value, n int) *Value { return b.emit(OpRepeatKV, RepeatAttr{n}, x) }

// Matmul returns a·b for each head: [H,m,k] by [H,k,n].
func (b *Builder) Matmul(x, y *Value) *Value { return b.emit(OpMatmul, MatmulAttr{}, x, y) }

// MatmulT returns a·bᵀ for each head: [H,m,k] by [H,n,k].
func (b *Builder) MatmulT(x, y *Value) *Value {
	return b.emit(OpMatmul, MatmulAttr{TransB: true}, x, y)
}

// Scale multiplies x by a number.
func (b *Builder) Scale(x *Value, by float64) *Value { return b.emit(OpScale, ScaleAttr{by}, x) }

// Mask sets the scores, [H,T,B*Smax], of keys that are invisible to a token to −∞:
// keys of other sequences, later keys, and keys not yet written.
func (b *Builder) Mask(scores *Value) *Value { return b.MaskWindow(scores, 0) }

// MaskWindow is Mask for sliding-window attention: a token attends to the last window keys
// up to its own (Beltagy et al., "Longformer", 2020, one-sided); window 0 means all.
func (b *Builder) MaskWindow(scores *Value, window int) *Value {
	return b.emit(OpMask, MaskAttr{Window: window}, scores, b.Input(sym.Positions), b.Input(sym.CuSeqlens), b.Input(sym.ContextLens))
}

// MaskSlopes is MaskWindow for ALiBi (Press, Smith and Lewis, "Train Short, Test Long",
// 2022): it adds slopes[h] · (key − position) to visible scores; slopes is [H].
func (b *Builder) MaskSlopes(scores, slopes *Value, window int) *Value {
	return b.emit(OpMask, MaskAttr{Window: window}, scores, b.Input(sym.Positions), b.Input(sym.CuSeqlens), b.Input(sym.ContextLens), slopes)
}

// MaskBoth is Mask for bidirectional attention: a token attends to all keys of its sequence or,
// where window is not 0, to those at most window/2 positions before or after its own. A step
// must hold all tokens of a sequence, since keys not yet written stay masked.
func (b *Builder) MaskBoth(scores *Value, window int) *Value {
	last, attr := sym.Ends, MaskAttr{}
	if window != 0 {
		last, attr = sym.Ahead(window/2), MaskAttr{Window: window/2*2 + 1}
	}
	return b.emit(OpMask, attr, scores, b.Input(last), b.Input(sym.CuSeqlens), b.Input(sym.ContextLens))
}

// SoftCap returns limit · tanh(x / limit): scores of Gemma 2's attention and logits.
func (b *Builder) SoftCap(x *Value, limit float64) *Value {
	return b.emit(OpSoftCap, ScaleAttr{limit}, x)
}

// Softmax normalises the innermost axis of x.
func (b *Builder) Softmax(x *Value) *Value { return b.emit(OpSoftmax, nil, x) }

// SoftmaxSinks is Softmax of scores, [H,T,S], with one more score, sinks[h], in the sum of
// each row: GPT-OSS's attention sinks, which take weight from the keys and have no value.
func (b *Builder) SoftmaxSinks(x, sinks *Value) *Value { return b.emit(OpSoftmax, nil, x, sinks) }

// Activate applies an activation to each element of x.
func (b *Builder) Activate(a Activation, x *Value) *Value {
	return b.emit(OpActivate, ActivationAttr{a}, x)
}

// Gate returns a(x) · y, or the activation's own formula where it exists as a gate only. For
// the others, Mul of Activate computes the same.
func (b *Builder) Gate(a Activation, x, y *Value) *Value {
	return b.emit(OpGate, ActivationAttr{a}, x, y)
}

// SiLU returns x / (1 + exp(−x)).
func (b *Builder) SiLU(x *Value) *Value { return b.Activate(SiLU, x) }

// GELU returns x·Φ(x), Φ being the normal distribution.
func (b *Builder) GELU(x *Value) *Value { return b.Activate(GELU, x) }

// GELUTanh returns the approximation of GELU by tanh, see [GELUTanh].
func (b *Builder) GELUTanh(x *Value) *Value { return b.Activate(GELUTanh, x) }

// Mul multiplies element by element.
func (b *Builder) Mul(x, y *Value) *Value { return b.emit(OpMul, nil, x, y) }

// Add adds element by element.
func (b *Builder) Add(x, y *Value) *Value { return b.emit(OpAdd, nil, x, y) }

// Gain multiplies the elements of each token of x, [T,…], by weights, […].
func (b *Builder) Gain(x, weights *Value) *Value { return b.emit(OpGain, nil, x, weights) }

// Shift adds weights, […], to the elements of each token of x, [T,…].
func (b *Builder) Shift(x, weights *Value) *Value { return b.emit(OpShift, nil, x, weights) }

// GatherRows returns the rows of x that the input logit_rows lists, [R,E].
func (b *Builder) GatherRows(x *Value) *Value {
	return b.emit(OpGatherRows, nil, x, b.Input(sym.LogitRows))
}

// Argmax returns the index of the largest element of each row of x, [R,V] → [R]:
// the smallest index of equals, −1 for a row that holds a NaN.
func (b *Builder) Argmax(x *Value) *Value { return b.emit(OpArgmax, nil, x) }

// Router chooses the experts of each token by its logits, [T,E], as the attribute says. It returns
// their weights and their numbers, both [T,Chosen], the largest score first. bias and gains, both
// [E], may be nil.
func (b *Builder) Router(logits, bias, gains *Value, a RouterAttr) (weights, experts *Value) {
	a.Bias, a.Gains = bias != nil, gains != nil
	in := slices.DeleteFunc([]*Value{logits, bias, gains}, func(v *Value) bool { return v == nil })
	both := b.emit(OpRouter, a, in...)
	return b.emit(OpSelect, SelectAttr{0}, both), b.emit(OpSelect, SelectAttr{1}, both)
}

// Return makes v a result of the graph.
func (b *Builder) Return(name string, v *Value) {
	b.f.Results = append(b.f.Results, Result{name, v})
}
