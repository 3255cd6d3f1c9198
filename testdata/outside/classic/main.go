// Classic defines, from outside of smelt's module, decoders as they were before Llama:
// biases, LayerNorm, GELU, learned positions, or ALiBi in their place. It gives them random
// weights, runs them on the device that it is told, and prints as JSON the graphs, the
// weights and the logits, for whoever wants to compute them another way:
//
//	go run ./classic -device cpu
package main

import (
	"context"
	"encoding/json"
	"flag"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
)

// The sizes of every model here.
const (
	vocab   = 96
	width   = 64
	layers  = 2
	heads   = 4
	kvHeads = 2
	head    = width / heads
	inner   = 160
	longest = 128 // positions with an embedding, where there are such
	eps     = 1e-5
)

// model says what a decoder is made of.
type model struct {
	Name       string
	activation ir.Activation
	gated      bool
	biases     bool // of products
	shift      bool // of LayerNorms
	learned    bool // positions have embeddings
	alibi      bool // scores fall with distance
	quantized  bool // matrices are Q8_0
}

var models = []model{
	{Name: "gpt2", activation: ir.GELUTanh, biases: true, shift: true, learned: true},
	{Name: "bloom", activation: ir.GELUTanh, biases: true, shift: true, alibi: true, quantized: true},
	{Name: "mpt", activation: ir.GELU, alibi: true},
	{Name: "everything", activation: ir.GELU, gated: true, biases: true, shift: true, learned: true, alibi: true},
}

// define writes the model down: in each layer, with n = LayerNorm(x),
//
//	x += Wo · attention(Wq·n + bq, Wk·n + bk, Wv·n + bv) + bo
//	x += Wdown · activation(Wup·n + bup) + bdown
func (m model) define(b *ir.Builder) {
	vector := func(name string, n int, there bool) *ir.Value {
		if !there {
			return nil
		}
		return b.Weight(name+".bias", n)
	}
	linear := func(name string, x *ir.Value, rows, columns int) *ir.Value {
		return b.LinearBias(x, b.Weight(name, rows, columns), vector(name, rows, m.biases))
	}
	norm := func(name string, x *ir.Value) *ir.Value {
		return b.LayerNorm(x, b.Weight(name, width), vector(name, width, m.shift), eps)
	}
	x := b.Embed(b.Input(sym.Tokens), b.Weight("embedding", vocab, width))
	if m.learned {
		x = b.Add(x, b.Embed(b.Input(sym.Positions), b.Weight("positions", longest, width)))
	}
	for i := range layers {
		b.Layer(i, func() {
			at := func(name string) string { return strconv.Itoa(i) + "." + name }
			n := norm(at("attention.norm"), x)
			q := b.SplitHeads(linear(at("q"), n, width, width), heads)
			k := b.SplitHeads(linear(at("k"), n, kvHeads*head, width), kvHeads)
			v := b.SplitHeads(linear(at("v"), n, kvHeads*head, width), kvHeads)
			x = b.Add(x, linear(at("o"), m.attend(b, q, k, v), width, width))

			n = norm(at("mlp.norm"), x)
			up := linear(at("up"), n, inner, width)
			if m.gated {
				up = b.Mul(b.Activate(m.activation, linear(at("gate"), n, inner, width)), up)
			} else {
				up = b.Activate(m.activation, up)
			}
			x = b.Add(x, linear(at("down"), up, width, inner))
		})
	}
	b.Return("logits", b.Linear(norm("norm", b.GatherRows(x)), b.Weight("head", vocab, width)))
}

// attend is softmax(q·kᵀ/√head + slope·distance)·v over what the cache holds.
func (m model) attend(b *ir.Builder, q, k, v *ir.Value) *ir.Value {
	headFirst := [3]int{1, 0, 2}
	keys, values := b.CacheRead(b.CacheWrite(b.Cache(kvHeads, head), k, v))
	keys, values = b.RepeatKV(keys, heads/kvHeads), b.RepeatKV(values, heads/kvHeads)
	scores := b.Scale(b.MatmulT(b.Transpose(q, headFirst), b.Transpose(keys, headFirst)), 1/math.Sqrt(head))
	if m.alibi {
		scores = b.MaskSlopes(scores, b.Const(slopes()), 0)
	} else {
		scores = b.Mask(scores)
	}
	return b.MergeHeads(b.Transpose(b.Matmul(b.Softmax(scores), b.Transpose(values, headFirst)), headFirst))
}

// slopes are ALiBi's for a power of two of heads: 2^(−8/heads), its square, and so on.
func slopes() []float32 {
	out := make([]float32, heads)
	for i := range out {
		out[i] = float32(math.Exp2(-8 * float64(i+1) / heads))
	}
	return out
}

// weights makes tensors up as they are asked for.
type weights struct {
	m       model
	tensors smelt.Tensors
}

// Weight implements ir.Weights.
func (w weights) Weight(name string, want []int) (dtype.Type, []int, bool) {
	if _, ok := w.tensors[name]; !ok && want != nil {
		w.tensors[name] = w.m.random(name, want)
	}
	return w.tensors.Weight(name, want)
}

// Data implements smelt.Weights.
func (w weights) Data(name string) (dtype.Type, []byte, bool) { return w.tensors.Data(name) }

// random is a tensor by its name: matrices that keep the size of what they multiply, gains
// about 1, and other vectors about 0.
func (m model) random(name string, shape []int) smelt.Tensor {
	seed := uint64(14695981039346656037)
	for _, c := range []byte(m.Name + name) {
		seed = (seed ^ uint64(c)) * 1099511628211
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	if m.quantized && len(shape) == 2 {
		return blocks(rng, shape)
	}
	n, mean, spread := 1, 0.0, 0.2
	for _, extent := range shape {
		n *= extent
	}
	switch {
	case len(shape) == 2:
		spread = 1 / math.Sqrt(float64(shape[1]))
	case len(name) > 4 && name[len(name)-4:] == "norm":
		mean = 1
	}
	data := make([]float32, n)
	for i := range data {
		data[i] = float32(mean + spread*rng.NormFloat64())
	}
	return smelt.Float32(data, shape...)
}

// blocks is a matrix of Q8_0: of every 32 elements a half as their scale, here 2⁻¹⁰, and 32
// bytes.
func blocks(rng *rand.Rand, shape []int) smelt.Tensor {
	data := make([]byte, 0, shape[0]*shape[1]/32*34)
	for range shape[0] * shape[1] / 32 {
		data = append(data, 0x00, 0x14)
		for range 32 {
			data = append(data, byte(int8(rng.IntN(255)-127)))
		}
	}
	return smelt.Tensor{DType: dtype.Q8_0, Shape: shape, Data: data}
}

// run is what is printed of a model.
type run struct {
	Name    string
	Graph   string // the source graph, in its text form
	Fused   map[string]string
	Fusions map[string]map[string]int // by phase and rule
	Kernels map[string]map[string]int // by phase and kernel
	Native  map[string]bool           // by kernel: native code runs it on the device
	Weights map[string]tensor
	Tokens  []int32
	Steps   []int // tokens of each step
	Logits  [][]float32
}

type tensor struct {
	Type  string
	Shape []int
	Data  []byte
}

// follow compiles a model for a device and runs it: a prompt in two pieces and single tokens.
func (m model) follow(device string) (run, error) {
	w := weights{m, smelt.Tensors{}}
	out := run{Name: m.Name, Steps: []int{5, 40, 1, 1, 1}, Fused: map[string]string{}, Fusions: map[string]map[string]int{},
		Kernels: map[string]map[string]int{}, Weights: map[string]tensor{}}
	definition := smelt.Define(m.Name, w, m.define)
	options := smelt.Options{Device: smelt.Device{Name: device}, Act: dtype.F32, KV: dtype.F32, Context: 64}
	source, err := definition.Source(ir.Options{KV: options.KV, Block: options.Context})
	if err != nil {
		return out, err
	}
	out.Graph = source.String()
	program, err := definition.Compile(options)
	if err != nil {
		return out, err
	}
	defer program.Close()
	for name, t := range w.tensors {
		out.Weights[name] = tensor{t.DType.String(), t.Shape, t.Data}
	}
	loaded, err := program.Load(smelt.Device{Name: device})
	if err != nil {
		return out, err
	}
	defer loaded.Close()
	for _, phase := range []string{"prefill", "decode"} {
		e, err := program.Explain(phase)
		if err != nil {
			return out, err
		}
		out.Fusions[phase], out.Kernels[phase] = e.Fusions, e.Kernels
		_, stages, err := program.Phase(phase)
		if err != nil {
			return out, err
		}
		out.Fused[phase] = stages.Fused.String()
	}
	out.Native = loaded.OnDevice().Natives()
	session, err := loaded.NewSession()
	if err != nil {
		return out, err
	}
	defer session.Close()
	for _, n := range out.Steps {
		ids := make([]int32, n)
		for i := range ids {
			ids[i] = int32((len(out.Tokens) + i*i + 7) % vocab)
		}
		logits, err := session.Feed(context.Background(), ids)
		if err != nil {
			return out, err
		}
		out.Tokens, out.Logits = append(out.Tokens, ids...), append(out.Logits, slices.Clone(logits))
	}
	return out, nil
}

func main() {
	device := flag.String("device", "cpu", "cpu, emu or metal")
	flag.Parse()
	var runs []run
	for _, m := range models {
		r, err := m.follow(*device)
		if err != nil {
			log.Fatalf("%s on %s: %v", m.Name, *device, err)
		}
		runs = append(runs, r)
	}
	if err := json.NewEncoder(os.Stdout).Encode(runs); err != nil {
		log.Fatal(err)
	}
}
