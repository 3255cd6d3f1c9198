package lower

import (
	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/kernels"
)

// Cost is what a dispatch asks of the machine.
type Cost struct {
	// Read and Written count bytes between memory and the GPU: weights as stored,
	// activations, the cache as far as sequences reach. What many threadgroups read
	// counts once, since the caches they share hold it.
	Read, Written int64
	// Ops counts floating-point additions, multiplications, comparisons,
	// exponentials and roots, one each, and nothing for decoding weights.
	Ops int64
}

// Bytes returns the bytes read and written.
func (c Cost) Bytes() int64 { return c.Read + c.Written }

// Plus adds up.
func (c Cost) Plus(d Cost) Cost { return Cost{c.Read + d.Read, c.Written + d.Written, c.Ops + d.Ops} }

// Cost returns what a dispatch costs in a step of the given sizes. Every sequence
// is taken to have Smax keys once the step is written, and the step's tokens to be
// its last.
func (p *Plan) Cost(d *Dispatch, sizes *Sizes) Cost {
	var c Cost
	var rule costRule
	kernel, known := kernels.Lookup(d.Kernel)
	if known {
		rule = costRules[kernel.Family]
	}
	l := &launch{d, sizes}
	for i, b := range d.Bindings {
		bytes := b.Bytes.Eval(sizes)
		if part := rule.part[b.Index]; part != nil {
			bytes = p.bytesOf(kernel, &b, part(l))
		}
		switch {
		case d.OnCPU && b.Index == kernels.HostScratch: // it stays in the processor's caches
		case b.Write:
			c.Written += bytes
		case !boundBefore(d.Bindings[:i], &b):
			c.Read += bytes
		}
	}
	if rule.ops != nil {
		c.Ops = rule.ops(l)
	}
	return c
}

// boundBefore tells whether an earlier argument reads the same memory.
func boundBefore(before []Binding, b *Binding) bool {
	for i := range before {
		if o := &before[i]; o.Buffer == b.Buffer && o.Offset == b.Offset && !o.Write {
			return true
		}
	}
	return false
}

// bytesOf returns the size of n elements of an argument.
func (p *Plan) bytesOf(k *kernels.Kernel, b *Binding, n int64) int64 {
	if t := p.Buffers[b.Buffer].DType; t != ir.Invalid {
		return t.Bytes(n)
	}
	arg, _ := k.Arg(int(b.Index))
	return n * int64(arg.Element.Size())
}

// launch is a dispatch in a step.
type launch struct {
	dispatch *Dispatch
	sizes    *Sizes
}

// param returns a parameter by its place in the kernel's struct in
// kernels/params.h.
func (l *launch) param(i int) int64 {
	if i >= len(l.dispatch.Params) {
		return 0
	}
	return l.dispatch.Params[i].Eval(l.sizes)
}

// constant tells whether a function constant is set, and not to zero.
func (l *launch) constant(index uint32) bool {
	for _, c := range l.dispatch.Constants {
		if c.Index == index {
			return c.Bits != 0
		}
	}
	return false
}

// extent counts elements or operations.
type extent func(l *launch) int64

// costRule says what a family of kernels costs.
type costRule struct {
	// part gives the elements that are touched of an argument that is not read or
	// written as a whole, by argument index.
	part map[uint32]extent
	ops  extent
}

// costRules has a row for each family of package kernels.
var costRules = map[string]costRule{
	"embed":       {part: map[uint32]extent{1: params(0, 1)}},
	"gather_rows": {part: map[uint32]extent{0: params(0, 1)}},
	"transpose":   {part: map[uint32]extent{0: params(0, 1, 2)}},
	"cast":        {},

	"repeat_kv":      {},
	"repeat_kv_pair": {},

	"linear_vec": {ops: linearOps},
	"linear_mat": {ops: linearOps},
	"matmul":     {ops: each(2, params(0, 1, 2, 3))},

	"rms_norm":   {ops: each(4, params(0, 1))},  // square, add, two factors
	"layer_norm": {ops: each(11, params(0, 1))}, // two for the mean, four for the variance, five to finish
	"softmax":    {ops: each(4, params(0, 1))},  // compare, exp, add, divide
	"argmax":     {ops: each(1, params(0, 1))},
	"top_k":      {ops: each(1, params(0, 1))},
	"mask":       {ops: each(1, params(0, 1, 2, 3))},
	"silu":       {ops: each(4, params(0, 1))}, // negate, exp, add, divide
	"silu_mul":   {ops: each(5, params(0, 1))},
	"gelu":       {ops: geluOps},
	"gelu_mul":   {ops: func(l *launch) int64 { return geluOps(l) + params(0, 1)(l) }},
	"soft_cap":   {ops: each(3, params(0, 1))}, // divide, tanh, multiply
	"scale":      {ops: each(1, params(0, 1))},
	"mul":        {ops: each(1, params(0, 1))},
	"add":        {ops: each(1, params(0, 1))},

	"rope":                    {ops: each(ropeOps, params(0, 1, 2))},
	"rope_qkv_write":          {part: caches(5, 6, params(0, 2, 3)), ops: each(ropeOps, rotatedHeads)},
	"head_norm_rope_kv_write": {part: caches(5, 6, params(0, 2, 3)), ops: each(ropeOps+4, rotatedHeads)},
	"cache_write":             {part: caches(3, 4, params(0, 1, 2))},
	"cache_read":              {part: map[uint32]extent{0: params(0, 1, 2, 3)}},

	"attention_vec": {
		part: map[uint32]extent{1: cached, 2: cached, 9: partial, 10: partialStatistics},
		ops:  attentionOps,
	},
	"flash_attention":        {ops: each(4, params(0, 1, 3, 4, 5))},
	"paged_attention_v1":     {part: caches(1, 2, pagedKeys), ops: pagedOps},
	"paged_attention_v2":     {part: caches(1, 2, pagedKeys), ops: pagedOps},
	"paged_attention_reduce": {ops: func(l *launch) int64 { return 2 * l.sizes[ir.B] * params(0, 2, 8)(l) }},
	"reshape_and_cache":      {part: caches(3, 4, params(0, 1, 2))},
	"copy_blocks":            {part: map[uint32]extent{0: params(0, 1), 1: params(0, 1), 3: params(0, 1), 4: params(0, 1)}},

	"attention_tile":   {part: caches(1, 2, cached), ops: attentionOps},
	"attention_reduce": {part: map[uint32]extent{0: params(0, 1, 2, 3), 1: each(2, params(0, 1, 3))}, ops: each(2, params(0, 1, 2, 3))},
}

// params multiplies parameters.
func params(at ...int) extent {
	return func(l *launch) int64 {
		n := int64(1)
		for _, i := range at {
			n *= l.param(i)
		}
		return n
	}
}

// each counts n for every element.
func each(n int64, elements extent) extent {
	return func(l *launch) int64 { return n * elements(l) }
}

// geluOps counts the form by tanh (a cubic, exp, add, divide) or by erf (a polynomial
// of degree five besides).
func geluOps(l *launch) int64 {
	n := params(0, 1)(l)
	if l.constant(0) {
		return 9 * n
	}
	return 20 * n
}

// caches gives two arguments, a layer's keys and values, the same extent.
func caches(k, v uint32, elements extent) map[uint32]extent {
	return map[uint32]extent{k: elements, v: elements}
}

// ropeOps is the rotation of one element: a pair takes four products and two sums.
const ropeOps = 3

// rotatedHeads counts the elements of Q and K.
func rotatedHeads(l *launch) int64 { return l.param(0) * (l.param(1) + l.param(2)) * l.param(3) }

// cached counts the elements of K in all sequences, or in what the windows of their
// tokens span.
func cached(l *launch) int64 {
	keys := l.sizes[ir.B] * l.sizes[ir.Smax]
	if window := l.param(11); window != 0 {
		keys = min(keys, l.param(0)+l.sizes[ir.B]*(window-1))
	}
	return keys * l.param(3) * l.param(4)
}

// partial counts the elements that a cut attention leaves for attention_reduce.
func partial(l *launch) int64 {
	return l.param(0) * l.param(2) * l.dispatch.Grid[2].Eval(l.sizes) * l.param(4)
}

// partialStatistics counts the largest score and the sum that go with them.
func partialStatistics(l *launch) int64 {
	return l.param(0) * l.param(2) * l.dispatch.Grid[2].Eval(l.sizes) * 2
}

// linearOps adds what a prologue and an epilogue do to the product.
func linearOps(l *launch) int64 {
	tokens, k, n0 := l.param(0), l.param(1), l.param(2)
	n := n0 + l.param(3) + l.param(4)
	ops := 2 * tokens * k * n
	if l.constant(3) { // residual
		ops += tokens * n
	}
	if l.constant(4) { // silu(a)·b
		ops += 5 * tokens * n0
	}
	if l.constant(5) { // RMSNorm
		ops += 4 * tokens * k
	}
	return ops
}

// pagedKeys counts the elements of K in all sequences, in vLLM's layout.
func pagedKeys(l *launch) int64 { return l.sizes[ir.B] * l.sizes[ir.Smax] * params(1, 2)(l) }

// pagedOps is attentionOps for one query a sequence.
func pagedOps(l *launch) int64 {
	return l.sizes[ir.B] * l.sizes[ir.Smax] * l.param(0) * (4*l.param(2) + 5)
}

// attentionOps counts, for every query head and key that a token sees, the two
// products over a head and the softmax. A token sees the keys up to its own, or the last
// of them where there is a window.
func attentionOps(l *launch) int64 {
	tokens, heads, head := l.param(0), l.param(2), l.param(4)
	each := tokens / max(l.sizes[ir.B], 1)
	seen := tokens*l.sizes[ir.Smax] - tokens*max(each-1, 0)/2
	if window := l.param(11); window != 0 {
		seen = min(seen, tokens*window)
	}
	return heads * seen * (4*head + 5)
}
