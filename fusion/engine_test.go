package fusion_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	. "github.com/smelt-ml/smelt/fusion"
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/sym"
)

func parse(t *testing.T, body string) *ir.Func {
	t.Helper()
	f, err := ir.Parse(`func g fused {
  v1 = input {name="tokens"} : i32[T]
  v2 = weight {name="embd"} : f32[16,8]
  v3 = embed v1 v2 : f32[T,8]
  ` + body + "\n}\n")
	require.NoError(t, err)
	return f
}

// twice builds a rule with two roots that share x: scale(x) beside activate(x).
func twice() *Rule {
	x := Any()
	a, b := Op(ir.OpActivate, x), Op(ir.OpScale, x)
	return &Rule{
		Name: "twice", Anchor: a, Joins: []*Pat{b}, Yields: []*Pat{a, b},
		Build: func(e *Emitter, m Match) []*ir.Value {
			return []*ir.Value{e.Emit(ir.OpRepeatKV, ir.RepeatAttr{N: 1}, m[x]), e.Emit(ir.OpRepeatKV, ir.RepeatAttr{N: 1}, m[x])}
		},
	}
}

func TestConvexity(t *testing.T) {
	body := `
  v4 = reshape v3 : f32[T,2,4]
  v5 = activate v4 {activation=silu} : f32[T,2,4]
  v6 = %s : f32[T,2,4]
  v7 = %s : f32[T,2,4]
  return "y" v7`
	for name, c := range map[string]struct {
		v6, v7 string
		want   int
	}{
		"side by side":      {"scale v4 {value=2}", "mul v5 v6", 1},
		"one after another": {"scale v5 {value=2}", "mul v5 v6", 0},
	} {
		f := parse(t, fmt.Sprintf(body, c.v6, c.v7))
		n, err := Apply(f, twice())
		require.NoError(t, err)
		require.Equal(t, c.want, n[0], name)
		require.NoError(t, f.Verify())
	}

	// Two roots that share two inputs; one input depends on the other root.
	x, y := Any(), Any()
	a, b := Op(ir.OpActivate, x), Op(ir.OpMul, y, x)
	rule := &Rule{Name: "roundabout", Anchor: a, Joins: []*Pat{b}, Yields: []*Pat{a, b},
		Build: func(e *Emitter, m Match) []*ir.Value { return []*ir.Value{m[x], m[y]} }}
	f := parse(t, `
  v4 = activate v3 {activation=silu} : f32[T,8]
  v5 = scale v4 {value=2} : f32[T,8]
  v6 = mul v5 v3 : f32[T,8]
  return "y" v6`)
	n, err := Apply(f, rule)
	require.NoError(t, err)
	require.Zero(t, n[0], "v5 is an operand and reads v4, which would go away")
}

// TestDependenceThroughReplacement joins a and b, after which v5 depends on what
// only b depended on. The second rule's match is no longer convex then.
func TestDependenceThroughReplacement(t *testing.T) {
	x, y := Any(), Any()
	a, b := Op(ir.OpActivate, x), Op(ir.OpMul, x, y)
	join := &Rule{
		Name: "join", Anchor: a, Joins: []*Pat{b}, Yields: []*Pat{a, b},
		Build: func(e *Emitter, m Match) []*ir.Value {
			both := e.Emit(ir.OpConcat, nil, m[x], m[y])
			return []*ir.Value{
				e.Emit(ir.OpSlice, ir.SliceAttr{Start: 0, End: 8}, both), e.Emit(ir.OpSlice, ir.SliceAttr{Start: 8, End: 16}, both),
			}
		},
	}
	z, w, other := Any(), Any(), Any()
	norm, sum := Op(ir.OpRMSNorm, z, w), Op(ir.OpAdd, z, other)
	pair := &Rule{
		Name: "pair", Anchor: norm, Joins: []*Pat{sum}, Yields: []*Pat{norm, sum},
		Build: func(e *Emitter, m Match) []*ir.Value {
			both := e.Emit(ir.OpConcat, nil, m[z], m[other])
			return []*ir.Value{
				e.Emit(ir.OpSlice, ir.SliceAttr{Start: 0, End: 8}, both), e.Emit(ir.OpSlice, ir.SliceAttr{Start: 8, End: 16}, both),
			}
		},
	}
	body := `
  v4 = activate v3 {activation=silu} : f32[T,8]
  v5 = scale v4 {value=2} : f32[T,8]
  v10 = weight {name="norm"} : f32[8]
  v6 = rms_norm v3 v10 {} : f32[T,8]
  v7 = scale v6 {value=3} : f32[T,8]
  v8 = mul v3 v7 : f32[T,8]
  v9 = add v3 v5 : f32[T,8]
  return "y" v8
  return "z" v9`
	for _, c := range []struct {
		rules []*Rule
		want  []int
	}{
		{[]*Rule{pair}, []int{1}},
		{[]*Rule{join}, []int{1}},
		{[]*Rule{join, pair}, []int{1, 0}},
	} {
		f := parse(t, body)
		n, err := Apply(f, c.rules...)
		require.NoError(t, err)
		require.Equal(t, c.want, n)
		require.NoError(t, f.Verify())
	}
}

func TestCaptures(t *testing.T) {
	x := Any()
	same := &Rule{Name: "same", Anchor: Op(ir.OpAdd, x, x)}
	p, q := Op(ir.OpActivate, Any()), Op(ir.OpActivate, Any())
	two := &Rule{Name: "two", Anchor: Op(ir.OpAdd, p, q)}
	for name, c := range map[string]struct {
		rule *Rule
		body string
		want int
	}{
		"a capture twice is one value":           {same, "v4 = activate v3 {activation=silu} : f32[T,8]\n v5 = add v4 v4 : f32[T,8]\n return \"y\" v5", 1},
		"a capture twice is not two values":      {same, "v4 = activate v3 {activation=silu} : f32[T,8]\n v5 = add v4 v3 : f32[T,8]\n return \"y\" v5", 0},
		"two op patterns are two values":         {two, "v4 = activate v3 {activation=silu} : f32[T,8]\n v5 = activate v3 {activation=silu} : f32[T,8]\n v6 = add v4 v5 : f32[T,8]\n return \"y\" v6", 1},
		"two op patterns are not one value":      {two, "v4 = activate v3 {activation=silu} : f32[T,8]\n v6 = add v4 v4 : f32[T,8]\n return \"y\" v6", 0},
		"precision may not change inside":        {two, "v4 = activate v3 {activation=silu} : f16[T,8]\n v5 = activate v3 {activation=silu} : f16[T,8]\n v6 = add v4 v5 : f32[T,8]\n return \"y\" v6", 0},
		"precision may change at the boundaries": {two, "v4 = cast v3 : f16[T,8]\n v5 = activate v4 {activation=silu} : f32[T,8]\n v6 = activate v3 {activation=silu} : f32[T,8]\n v7 = add v6 v5 : f32[T,8]\n return \"y\" v7", 1},
	} {
		f := parse(t, c.body)
		rule := *c.rule
		rule.Yields = []*Pat{rule.Anchor}
		rule.Build = func(e *Emitter, m Match) []*ir.Value {
			return []*ir.Value{e.Emit(ir.OpScale, ir.ScaleAttr{Value: 2}, f.Values[2])}
		}
		n, err := Apply(f, &rule)
		require.NoError(t, err)
		require.Equal(t, c.want, n[0], name)
	}
}

func TestContextStays(t *testing.T) {
	x := Any()
	inner := Op(ir.OpActivate, x)
	outer := Op(ir.OpScale, inner)
	rule := &Rule{
		Name: "under a scale", Anchor: outer, Yields: []*Pat{inner},
		Build: func(e *Emitter, m Match) []*ir.Value { return []*ir.Value{m[x]} },
	}
	f := parse(t, `
  v4 = activate v3 {activation=silu} : f32[T,8]
  v5 = scale v4 {value=2} : f32[T,8]
  v6 = add v5 v4 : f32[T,8]
  return "y" v6
  return "z" v5`)
	n, err := Apply(f, rule)
	require.NoError(t, err)
	require.Equal(t, 1, n[0])
	require.NoError(t, f.Verify())
	require.Equal(t, map[ir.Op]int{ir.OpInput: 1, ir.OpWeight: 1, ir.OpEmbed: 1, ir.OpScale: 1, ir.OpAdd: 1}, f.OpCounts())
}

func TestEarlierRulesWin(t *testing.T) {
	x := Any()
	rule := func(name string) *Rule {
		p := Op(ir.OpActivate, x)
		return &Rule{Name: name, Anchor: p, Yields: []*Pat{p},
			Build: func(e *Emitter, m Match) []*ir.Value { return []*ir.Value{m[x]} }}
	}
	f := parse(t, "v4 = activate v3 {activation=silu} : f32[T,8]\n return \"y\" v4")
	n, err := Apply(f, rule("first"), rule("second"))
	require.NoError(t, err)
	require.Equal(t, []int{1, 0}, n)
}

func TestResultsStayResults(t *testing.T) {
	product := Op(ir.OpGate, Any(), Any())
	scale := Op(ir.OpScale, product)
	swallow := &Rule{Name: "swallow", Anchor: scale, Yields: []*Pat{scale},
		Build: func(e *Emitter, m Match) []*ir.Value { return []*ir.Value{m[product].Args[0]} }}
	for _, result := range []string{"v5", "v6"} {
		f := parse(t, "v4 = activate v3 {activation=silu} : f32[T,8]\n v5 = mul v4 v3 : f32[T,8]\n v6 = scale v5 {value=2} : f32[T,8]\n v7 = add v6 v3 : f32[T,8]\n return \"y\" v7\n return \"z\" "+result)
		n, err := Apply(f, GatedActivation(), swallow)
		require.NoError(t, err)
		require.Equal(t, result == "v6", n[1] == 1, "a rewritten result is still read by the caller")
	}
}

func TestReplacedReadersDoNotBlock(t *testing.T) {
	x := Any()
	sum := Op(ir.OpAdd, x, Op(ir.OpScale, Any()))
	drop := &Rule{Name: "drop", Anchor: sum, Yields: []*Pat{sum},
		Build: func(e *Emitter, m Match) []*ir.Value { return []*ir.Value{m[x]} }}
	f := parse(t, `
  v4 = activate v3 {activation=silu} : f32[T,8]
  v5 = scale v4 {value=2} : f32[T,8]
  v6 = add v5 v3 : f32[T,8]
  v7 = mul v4 v6 : f32[T,8]
  return "y" v7`)
	n, err := Apply(f, drop, GatedActivation())
	require.NoError(t, err)
	require.Equal(t, []int{1, 1}, n, "v5 read v4 and is gone")
}

func TestLayers(t *testing.T) {
	f := parse(t, "v4 = activate v3 {activation=silu} : f32[T,8] @7\n v5 = mul v4 v3 : f32[T,8] @7\n return \"y\" v5")
	_, err := Apply(f, GatedActivation())
	require.NoError(t, err)
	require.Equal(t, 7, f.Result("y").Layer)
}

func TestWrongRules(t *testing.T) {
	x := Any()
	p := Op(ir.OpActivate, x)
	for want, build := range map[string]func(e *Emitter, m Match) []*ir.Value{
		"never settles": func(e *Emitter, m Match) []*ir.Value {
			return []*ir.Value{e.Emit(ir.OpActivate, ir.ActivationAttr{Activation: ir.SiLU}, m[x])}
		},
		"reads a value that it": func(e *Emitter, m Match) []*ir.Value { return []*ir.Value{e.Emit(ir.OpScale, ir.ScaleAttr{}, m[p])} },
		"in place of": func(e *Emitter, m Match) []*ir.Value {
			return []*ir.Value{e.Reshape(m[x], ir.Var(sym.T), ir.Const(2), ir.Const(4))}
		},
		"0 values where 1":        func(e *Emitter, m Match) []*ir.Value { return nil },
		"takes 2 operands, not 1": func(e *Emitter, m Match) []*ir.Value { return []*ir.Value{e.Emit(ir.OpMul, nil, m[x])} },
		"element 3 of f32[T,8]":   func(e *Emitter, m Match) []*ir.Value { return []*ir.Value{e.Select(m[x], 3)} },
	} {
		f := parse(t, "v4 = activate v3 {activation=silu} : f32[T,8]\n return \"y\" v4")
		_, err := Apply(f, &Rule{Name: "wrong", Anchor: p, Yields: []*Pat{p}, Build: build})
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "wrong at v")
	}
}

func TestDecomposeNothing(t *testing.T) {
	f := parse(t, "v4 = activate v3 {activation=silu} : f32[T,8]\n return \"y\" v4")
	_, err := Decompose(f, func(v *ir.Value) bool { return v.Op == ir.OpActivate })
	require.ErrorContains(t, err, "not made of other ops")
	for op := ir.OpInput; int(op) < ir.NumOps; op++ {
		require.Equal(t, op.Stage() == ir.Fused, op.CanDecompose(), op)
	}
}
