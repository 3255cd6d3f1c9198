package integration_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/smelt-ml/smelt"
	"github.com/smelt-ml/smelt/internal/compiler"
	"github.com/smelt-ml/smelt/internal/fixture"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/kernels/published"
	"github.com/smelt-ml/smelt/lower"
	"github.com/smelt-ml/smelt/lower/plan"
	"github.com/smelt-ml/smelt/passes"
)

// reach is a way to have kernels in a plan: a model, and what the API, the tool's flags and
// --debug say.
type reach struct {
	model   string
	debug   string
	options smelt.Options
}

const expertsShape = "qwen3-30b-a3b,block_count=2"

// reachable are the models of it.
func reachable(t *testing.T) map[string]*smelt.Model {
	models := map[string]*smelt.Model{}
	for name, weights := range map[string]string{"qwen3-0.6b": "q4_0", "llama3.2-1b": "q8_0", "qwen3-8b": "f16", "gemma3-1b": "q4_0", "lfm2-1.2b": "q8_0",
		expertsShape: "q4_0", "qwen3.5-0.8b": "q8_0", "deepseek-v2-lite,block_count=2": "q8_0"} {
		m, err := smelt.Open("arch:"+name, weights)
		require.NoError(t, err)
		models[name] = m
	}
	for name, f := range map[string]featured{
		"everything": {window: 9, softCap: 2, sinks: true, slopes: true, biases: true, layerNorms: true, activation: ir.GELUTanh},
		"clamped":    {gated: true, activation: ir.ClampedSwiGLU, late: true, size: 256},
		"bare":       {bare: true, head: topOf},
		"inner":      {layerNorms: true, mlp: innerNorm},
		"between":    {mlp: normBetween},
		"rule":       {rope: true, mlp: ruled},
		"scan":       {rope: true, mlp: scanned},
	} {
		models[name], _ = f.model()
	}
	return models
}

// topOf routes by the logits, and returns the weights and the experts too.
func topOf(b *ir.Builder, logits *ir.Value) *ir.Value {
	values, at := b.Router(logits, nil, nil, ir.RouterAttr{Score: ir.SqrtSoftplusScore, Chosen: 4})
	b.Return("top", values)
	b.Return("at", at)
	return logits
}

// innerNorm normalises, scales and caps what a product computes, and exchanges its halves, none of
// it on the residual stream.
func innerNorm(b *ir.Builder, x *ir.Value) *ir.Value {
	y := b.Linear(x, b.Weight("inner", featuredWidth, featuredWidth))
	y = b.LayerNorm(y, b.Weight("inner.gain", featuredWidth), nil, 1e-5)
	y = b.SoftCap(b.Scale(y, 0.5), 3)
	return b.Concat(b.Slice(y, featuredWidth/2, featuredWidth), b.Slice(y, 0, featuredWidth/2))
}

// normBetween normalises what one product computes for the next, and adds the last to what it
// began with.
func normBetween(b *ir.Builder, x *ir.Value) *ir.Value {
	y := x
	for _, name := range []string{"first", "second", "third"} {
		if name != "first" {
			y = b.RMSNorm(y, b.Weight(name+".gain", featuredWidth), 1e-5)
		}
		y = b.Linear(y, b.Weight(name, featuredWidth, featuredWidth))
	}
	return b.Add(x, y)
}

// ways to reach kernels: types of every target, then rules left out, layouts and sizes.
func (r reach) ways() (all []reach) {
	for _, types := range []smelt.Options{
		{Target: "metal", KV: dtype.F16}, {Target: "metal", KV: dtype.F32}, {Target: "metal", KV: dtype.Q8_0},
		{Target: "metal", Act: dtype.F32, KV: dtype.F16}, {Target: "metal", Act: dtype.F32, KV: dtype.F32}, {Target: "metal", Act: dtype.F32, KV: dtype.Q8_0},
		{Target: "metal", Act: dtype.BF16, KV: dtype.BF16}, {Target: "metal", Act: dtype.BF16, KV: dtype.Q8_0},
	} {
		types.Level, types.Context = 1, 2048
		all = append(all, reach{r.model, r.debug, types})
	}
	return all
}

// TestReach: every kernel of the table is in a plan that a model, a flag or --debug makes, or
// stands in the list of those that are kept, and says why; and so is every published kernel,
// with the function constants that make it of one of ours.
func TestReach(t *testing.T) {
	models := reachable(t)
	kernelIn, constantsIn := map[string]string{}, map[string]string{}
	take := func(r reach) {
		debug, err := passes.ParseDebug(r.debug)
		require.NoError(t, err)
		compiler.KnobsOf(&r.options).Debug = debug
		p, err := models[r.model].Compile(r.options)
		if err != nil { // not every model goes with every type; what is not reached shows
			return
		}
		way := strings.Join([]string{r.model, r.options.Target, r.options.Act.String(), r.options.KV.String(), r.debug}, " ")
		for i := range p.Plan.Phases {
			for j := range p.Plan.Phases[i].Dispatches {
				d := &p.Plan.Phases[i].Dispatches[j]
				if kernelIn[d.Kernel] == "" {
					kernelIn[d.Kernel] = way
				}
				for _, o := range published.Origins() {
					if key := o.By + ": " + o.Name; constantsIn[key] == "" && isOrigin(d, &o) {
						constantsIn[key] = way
					}
				}
			}
		}
	}
	for name := range models {
		for _, r := range (reach{model: name}).ways() {
			take(r)
		}
	}
	for _, off := range []string{
		"layout/xsplit", "attention_write/off", "kv_replication_elimination/off", "kv_replication_elimination/off,repeat_kv_pair/off",
		"head_norm_rope_kv_write/off,rope_qkv_write/off,qkv_write/off", "gated_activation/off,linear_activation/off", "gate_up/off", "all/off",
	} {
		for _, name := range []string{"qwen3-0.6b", "llama3.2-1b", "everything", "clamped", "inner"} {
			for _, r := range (reach{model: name, debug: off}).ways() {
				take(r)
			}
		}
	}
	take(reach{expertsShape, "routed_sum/off", smelt.Options{Target: "metal", Level: 1, KV: dtype.F16, Context: 512}})
	take(reach{"qwen3.5-0.8b", "", smelt.Options{Target: "metal", Level: 1, KV: dtype.F16, Context: 512, SameBits: true}})
	take(reach{"scan", "", smelt.Options{Target: "metal", Level: 1, KV: dtype.F16, Context: 512, SameBits: true}})
	take(reach{"llama3.2-1b", "", fixture.With(smelt.Options{Target: "metal", Level: 1, Context: 512}, compiler.Knobs{Products: func(p lower.Product) bool { return true }})})
	for sequences, kv := range map[int]dtype.Type{2: dtype.Q8_0, 12: dtype.F32, 16: dtype.F16} {
		for _, name := range []string{"llama3.2-1b", "clamped", "deepseek-v2-lite,block_count=2"} {
			take(reach{name, "attention_write/off", smelt.Options{Target: "metal", Level: 1, KV: kv, Context: 2048, Sequences: sequences}})
			take(reach{name, "", smelt.Options{Target: "metal", Level: 1, KV: kv, Context: 512, Sequences: sequences, Rows: 64, SameBits: sequences == 2}})
		}
	}
	all := kernels.All()
	for i := range all {
		checkReach(t, all[i].Name, kernelIn[all[i].Name], published.Kept(&all[i]))
	}
	for _, o := range published.Origins() {
		key := o.By + ": " + o.Name
		checkReach(t, key, constantsIn[key], published.KeptOrigin(&o))
	}
}

func checkReach(t *testing.T, name, way, kept string) {
	switch {
	case way == "" && kept == "":
		t.Errorf("%s: no plan reaches it, and nothing says why it is kept", name)
	case way != "" && kept != "":
		t.Errorf("%s is kept (%s), and reached by %s", name, kept, way)
	case kept != "":
		t.Logf("%-40s kept: %s", name, kept)
	default:
		t.Logf("%-40s %s", name, way)
	}
}

// isOrigin tells whether a dispatch is what a row of published kernels says.
func isOrigin(d *plan.Dispatch, o *published.Origin) bool {
	k, ok := kernels.Lookup(d.Kernel)
	if !ok || k.Family != o.Family {
		return false
	}
	for name, want := range o.Constants {
		c, _ := k.Constant(name)
		have := uint32(0)
		if name == "fc_positions" || name == "fc_slots" { // on where they are not set
			have = 1
		}
		if i := slices.IndexFunc(d.Constants, func(of plan.Constant) bool { return int(of.Index) == c.Index }); i >= 0 {
			have = d.Constants[i].Bits
		}
		if have != want {
			return false
		}
	}
	return true
}
