package predict

import (
	"fmt"
	"sync"

	"github.com/smelt-ml/smelt/ir"
	"github.com/smelt-ml/smelt/ir/dtype"
	"github.com/smelt-ml/smelt/ir/sym"
	"github.com/smelt-ml/smelt/kernels"
	"github.com/smelt-ml/smelt/lower/plan"
)

// Cost counts the bytes and operations of a dispatch.
type Cost struct {
	// Read and Written count bytes between memory and the GPU: weights as stored, activations, the
	// KV cache up to the sequences' lengths. Bytes that many threadgroups read count once, since
	// the caches that they share hold them.
	Read, Written int64
	// Reread counts the bytes of keys and values that threadgroups of single-token attention read
	// again from caches that they share: once for each threadgroup after the first.
	Reread int64
	// Ops counts floating-point additions, multiplications, comparisons, exponentials and roots,
	// one each. Decoding weights is not included.
	Ops int64
	// Shifts counts the lane cycles of the pipe for shifts and conversions that decoding weights
	// takes in products of few tokens ([kernels.ShiftCycles]). It is 0 where many tokens share a
	// decoded weight.
	Shifts int64
}

// Bytes returns the bytes read and written.
func (c Cost) Bytes() int64 { return c.Read + c.Written }

// Plus returns the sum of two costs.
func (c Cost) Plus(d Cost) Cost {
	return Cost{c.Read + d.Read, c.Written + d.Written, c.Reread + d.Reread, c.Ops + d.Ops, c.Shifts + d.Shifts}
}

// CostOf returns the cost of a dispatch in a step of the given sizes. It assumes that every sequence
// has Smax keys after the step, and an equal share of the step's tokens, which are its last.
func CostOf(p *plan.Plan, d *plan.Dispatch, sizes *sym.Sizes) Cost {
	var c Cost
	cost, known := costs()[d.Kernel]
	if !known {
		cost = &kernelCost{}
	}
	l := &launch{d, sizes}
	if idle(p, d, sizes) {
		return c
	}
	for i, b := range d.Bindings {
		bytes := b.Bytes.Eval(sizes)
		if part := cost.part(b.Index); part != nil {
			bytes = bytesOf(p, cost.kernel, &b, part(l))
		}
		switch {
		case d.OnCPU && b.Index == kernels.HostScratch: // it stays in the processor's caches
		case b.Write:
			c.Written += bytes
		case !boundBefore(d.Bindings[:i], &b):
			c.Read += bytes
			if cost.readers != nil && cost.isCache(b.Index) {
				c.Reread += bytes * (cost.readers(l) - 1)
			}
		}
	}
	if cost.ops != nil {
		c.Ops = cost.ops(l)
	}
	if cost.shifts != nil {
		c.Shifts = cost.shifts(l)
	}
	return c
}

// idle reports whether a dispatch skips all sequences of a step because of their number of tokens,
// an equal share each: another dispatch processes them.
func idle(p *plan.Plan, d *plan.Dispatch, sizes *sym.Sizes) bool {
	each := quotient(sizes[sym.T], max(sizes[sym.B], 1))
	for _, b := range d.Bindings {
		if o := p.Buffers[b.Buffer].Owners; o != nil && (each < o.Least || each > o.Most) {
			return true
		}
	}
	return false
}

// boundBefore reports whether an earlier argument reads the same memory.
func boundBefore(before []plan.Binding, b *plan.Binding) bool {
	for i := range before {
		if o := &before[i]; o.Buffer == b.Buffer && o.Offset == b.Offset && !o.Write {
			return true
		}
	}
	return false
}

// bytesOf returns the size of n elements of an argument.
func bytesOf(p *plan.Plan, k *kernels.Kernel, b *plan.Binding, n int64) int64 {
	if t := p.Buffers[b.Buffer].DType; t != dtype.Invalid {
		return t.Bytes(n)
	}
	arg, _ := k.Arg(int(b.Index))
	return n * int64(arg.Element.Size())
}

// launch is a dispatch in a step.
type launch struct {
	dispatch *plan.Dispatch
	sizes    *sym.Sizes
}

// param returns a word of the parameters.
func (l *launch) param(word int) int64 {
	if word >= len(l.dispatch.Params) {
		return 0
	}
	return l.dispatch.Params[word].Eval(l.sizes)
}

// bits returns a function constant, 0 where it is not set.
func (l *launch) bits(index int) uint32 {
	for _, c := range l.dispatch.Constants {
		if int(c.Index) == index {
			return c.Bits
		}
	}
	return 0
}

// constant reports whether a function constant is set and not zero.
func (l *launch) constant(index int) bool { return l.bits(index) != 0 }

// tally is a number of elements or operations.
type tally func(l *launch) int64

// extent returns the tally for a kernel. It resolves names of parameters and constants to the
// kernel's indices.
type extent func(k *kernels.Kernel) tally

// costRule holds the cost functions of a family of kernels, by the names in package kernels.
type costRule struct {
	// part counts the elements read or written of arguments that are not read or written as a
	// whole.
	part map[string]extent
	ops  extent
	// readers counts the threadgroups that read each key of a cache.
	readers extent
	// shifts counts the cycles of Cost.Shifts.
	shifts extent
}

// kernelCost is a costRule resolved for one kernel.
type kernelCost struct {
	kernel  *kernels.Kernel
	parts   []tally // by argument index; nil where the whole argument counts
	ops     tally
	readers tally
	shifts  tally
}

func (c *kernelCost) part(index uint32) tally {
	if int(index) >= len(c.parts) {
		return nil
	}
	return c.parts[index]
}

// isCache reports whether an argument is a layer's keys or values.
func (c *kernelCost) isCache(index uint32) bool {
	arg, ok := c.kernel.Arg(int(index))
	return ok && arg.IsCache()
}

// costs has a row for each kernel.
var costs = sync.OnceValue(func() map[string]*kernelCost {
	table := map[string]*kernelCost{}
	all := kernels.All()
	for i := range all {
		k := &all[i]
		rule, ruled := costRules[k.Family]
		if op, ok := ir.ParseOp(k.Family); ok && !ruled {
			rule = costRule{ops: elementwiseWork(op)}
		}
		c := &kernelCost{kernel: k}
		for name, part := range rule.part {
			a, ok := k.Named(name)
			if !ok {
				panic(fmt.Sprintf("predict: the cost of %s names its argument %q, which it lacks", k.Name, name))
			}
			c.parts = append(c.parts, make([]tally, max(0, a.Index+1-len(c.parts)))...)
			c.parts[a.Index] = part(k)
		}
		if rule.ops != nil {
			c.ops = rule.ops(k)
		}
		if rule.readers != nil {
			c.readers = rule.readers(k)
		}
		if rule.shifts != nil {
			c.shifts = rule.shifts(k)
		}
		table[k.Name] = c
	}
	return table
})

// costRules has a row for each family of package kernels except the element-wise ones, whose costs
// follow from the ops of their names.
var costRules = map[string]costRule{
	"embed":       {part: map[string]extent{"table": params("tokens", "width")}},
	"gather_rows": {part: map[string]extent{"x": rowElements}},
	"transpose":   {part: map[string]extent{"x": params("size[0]", "size[1]", "size[2]")}},
	"cast":        {},
	"concat":      {},
	"indices":     {},

	"repeat_kv":      {},
	"repeat_kv_pair": {},

	"linear_vec": {part: map[string]extent{"x": inputElements, "w0": stacked("n0"), "w1": stacked("n1"), "gate": params("tokens")}, ops: linearOps, shifts: linearShifts},
	"linear_mat": {part: map[string]extent{"x": inputElements, "w0": stacked("n0"), "w1": stacked("n1"), "gate": params("tokens")}, ops: linearOps},
	// Every threadgroup normalises the tokens of its tile.
	"norm_linear_mat": {part: map[string]extent{"x": params("tokens", "k"), "gate": params("tokens")}, ops: normLinearOps},
	"matmul":          {ops: work(params("batch", "m", "n", "k"), ir.OpMatmul)},

	"rms_norm":        {ops: work(rowElements, ir.OpRMSNorm)},
	"norm_residual":   {ops: work(rowElements, ir.OpRMSNorm, ir.OpAdd)},
	"layer_norm":      {ops: work(rowElements, ir.OpLayerNorm)},
	"softmax":         {ops: work(rowElements, ir.OpSoftmax)},
	"argmax":          {ops: work(rowElements, ir.OpArgmax)},
	"group_by_expert": {},
	"weighted_sum":    {ops: work(params("rows", "width", "each"), ir.OpWeightedSum)},
	"router":          {part: map[string]extent{"logits": params("rows", "experts")}, ops: work(params("rows", "experts"), ir.OpRouter)},
	"mask":            {ops: work(params("heads", "tokens", "seqs", "context"), ir.OpMask)},

	"rope":                    {ops: work(params("tokens", "heads", "head"), ir.OpRope)},
	"rope_qkv_write":          {part: caches(tokenKeys), ops: work(rotatedHeads, ir.OpRope)},
	"head_norm_rope_kv_write": {part: caches(tokenKeys), ops: work(rotatedHeads, ir.OpRMSNorm, ir.OpRope)},
	"latent_write": {part: map[string]extent{"q": params("tokens", "heads", "rotated"), "all": params("tokens", "head"), "k_cache": tokenKeys},
		ops: work(params("tokens", "heads", "rotated"), ir.OpRope)},
	"cache_write": {part: caches(tokenKeys)},
	"cache_read":  {part: map[string]extent{"cache": params("seqs", "context", "kv_heads", "head")}},

	"attention_vec": {
		part: map[string]extent{"k_cache": cached, "v_cache": cached, "part": partial("head"), "statistics": each(2, partial()), "gate": gates},
		ops:  attentionOps, readers: keyReaders,
	},
	"attention_tile": {part: map[string]extent{"k_cache": cached, "v_cache": cached, "gate": gates}, ops: attentionOps},
	"attention_write": {
		part: map[string]extent{"k_cache": cachedBefore, "v_cache": cachedBefore, "k_slots": tokenKeys, "v_slots": tokenKeys,
			"part": partial("head"), "statistics": each(2, partial()), "gate": gates},
		ops: attentionWriteOps, readers: keyReaders,
	},
	"latent_attention": {
		part: map[string]extent{"k_cache": cachedBefore, "v_cache": cachedBefore, "k_slots": tokenKeys, "q": params("tokens", "heads", "rotated"), "all": params("tokens", "head"),
			"part": partial("head"), "statistics": each(2, partial())},
		ops: latentAttentionOps, readers: keyReaders,
	},
	"attention_reduce": {
		part: map[string]extent{"part": partitioned, "statistics": each(2, params("tokens", "heads", "partitions")), "gate": gates},
		ops:  work(partitioned, ir.OpMul, ir.OpAdd),
	},

	"flash_attention":        {ops: work(params("batch", "heads", "seq_q", "seq_kv", "head"), ir.OpMatmul, ir.OpMatmul)},
	"paged_attention_v1":     {part: caches(pagedKeys), ops: pagedOps},
	"paged_attention_v2":     {part: caches(pagedKeys), ops: pagedOps},
	"paged_attention_reduce": {ops: rows(work(params("heads", "head", "partitions"), ir.OpMul, ir.OpAdd))},
	"reshape_and_cache":      {part: caches(tokenKeys)},
	"short_conv": {part: map[string]extent{"x": params("tokens", "width"), "in_gate": params("tokens", "width"), "out_gate": params("tokens", "width"),
		"state": params("seqs", "taps", "width"), "state_out": params("seqs", "taps", "width")}, ops: work(params("tokens", "width", "taps"), ir.OpShortConv)},
	"delta_net":        deltaRule,
	"delta_net_pieces": deltaRule,
	"mamba2":           stateSpace,
	"mamba2_pieces":    stateSpace,
	"copy_blocks":      {part: map[string]extent{"k_from": blockPairs, "v_from": blockPairs, "k_cache": blockPairs, "v_cache": blockPairs}},
}

// Extents that several rules share.
var (
	rowElements = params("rows", "width")
	tokenKeys   = params("tokens", "kv_heads", "head") // a step's keys, or values
	deltaRule   = costRule{
		part: map[string]extent{"alpha": params("tokens", "heads"), "beta": params("tokens", "heads"), "z": params("tokens", "heads", "head"),
			"state": params("seqs", "heads", "head", "head"), "state_out": params("seqs", "heads", "head", "head")},
		ops: work(params("tokens", "heads", "head", "head"), ir.OpDeltaNet),
	}
	stateSpace = costRule{
		part: map[string]extent{"dt": params("tokens", "heads"), "z": params("tokens", "heads", "head"),
			"state": params("seqs", "heads", "states", "head"), "state_out": params("seqs", "heads", "states", "head")},
		ops: work(params("tokens", "heads", "states", "head"), ir.OpMamba2),
	}
	partitioned = params("tokens", "heads", "head", "partitions")
	blockPairs  = params("pairs", "width")
)

// word returns the index of a kernel's parameter. It panics if the kernel lacks it.
func word(k *kernels.Kernel, name string) int {
	i, ok := k.Param(name)
	if !ok {
		panic(fmt.Sprintf("predict: the cost of %s names its parameter %q, which it lacks", k.Name, name))
	}
	return i
}

// constantOf returns the index of a kernel's function constant, or −1, which is never set, if the
// kernel lacks it.
func constantOf(k *kernels.Kernel, name string) int {
	if c, ok := k.Constant(name); ok {
		return c.Index
	}
	return -1
}

// params returns the product of parameters.
func params(names ...string) extent {
	return func(k *kernels.Kernel) tally {
		at := make([]int, len(names))
		for i, name := range names {
			at[i] = word(k, name)
		}
		return func(l *launch) int64 {
			n := int64(1)
			for _, i := range at {
				n *= l.param(i)
			}
			return n
		}
	}
}

// each counts n for every element.
func each(n int64, elements extent) extent {
	return func(k *kernels.Kernel) tally {
		c := elements(k)
		return func(l *launch) int64 { return n * c(l) }
	}
}

// work counts the operations of ops for every element; see [ir.Op.Work].
func work(elements extent, ops ...ir.Op) extent {
	var n int64
	for _, op := range ops {
		n += op.Work(nil)
	}
	return each(n, elements)
}

// rows multiplies a count by the rows of the grid.
func rows(one extent) extent {
	return func(k *kernels.Kernel) tally {
		c := one(k)
		return func(l *launch) int64 { return l.dispatch.Grid[1].Eval(l.sizes) * c(l) }
	}
}

// elementwiseWork counts the operations of an op for every element, including those of the
// activation that fc_activation selects.
func elementwiseWork(op ir.Op) extent {
	return func(k *kernels.Kernel) tally {
		elements, activation := rowElements(k), constantOf(k, "fc_activation")
		return func(l *launch) int64 { return ActivationWork(op, l.bits(activation)) * elements(l) }
	}
}

// ActivationWork returns the operations of an op per element, with the activation of a number.
func ActivationWork(op ir.Op, number uint32) int64 {
	return op.Work(ir.ActivationAttr{Activation: ir.Activation(number)})
}

// caches gives a layer's keys and values the same extent.
func caches(elements extent) map[string]extent {
	return map[string]extent{"k_cache": elements, "v_cache": elements}
}

// rotatedHeads counts the elements of Q and K.
func rotatedHeads(k *kernels.Kernel) tally {
	tokens, heads, kvHeads, head := word(k, "tokens"), word(k, "heads"), word(k, "kv_heads"), word(k, "head")
	return func(l *launch) int64 { return l.param(tokens) * (l.param(heads) + l.param(kvHeads)) * l.param(head) }
}

// gates counts the elements of attention's gate, one for each head or for each of its elements.
func gates(k *kernels.Kernel) tally {
	heads, head, byHead := params("tokens", "heads")(k), word(k, "head"), constantOf(k, "fc_head_gate")
	return func(l *launch) int64 {
		if l.constant(byHead) {
			return heads(l)
		}
		return heads(l) * l.param(head)
	}
}

// cached counts the elements of K in all sequences, limited to the windows of the step's tokens.
func cached(k *kernels.Kernel) tally {
	tokens, window, kvHeads, head := word(k, "tokens"), word(k, "window"), word(k, "kv_heads"), word(k, "head")
	return func(l *launch) int64 {
		keys := l.sizes[sym.B] * l.sizes[sym.Smax]
		if n := l.param(window); n != 0 {
			keys = min(keys, l.param(tokens)+l.sizes[sym.B]*(n-1))
		}
		return keys * l.param(kvHeads) * l.param(head)
	}
}

// cachedBefore counts the elements of K from before the step, which has one token per sequence.
func cachedBefore(k *kernels.Kernel) tally {
	all, own := cached(k), tokenKeys(k)
	return func(l *launch) int64 { return max(0, all(l)-own(l)) }
}

// partial counts the elements that split attention writes for attention_reduce: the product of the
// named parameters for each token, head and partition.
func partial(elements ...string) extent {
	return func(k *kernels.Kernel) tally {
		c := params(append([]string{"tokens", "heads"}, elements...)...)(k)
		return func(l *launch) int64 { return c(l) * l.dispatch.Grid[2].Eval(l.sizes) }
	}
}

// mixedRows returns the number of experts whose results a row of a product sums.
func mixedRows(k *kernels.Kernel) tally {
	top, mixed := constantOf(k, "fc_top"), constantOf(k, "fc_mixed")
	return func(l *launch) int64 {
		if l.constant(mixed) {
			return int64(l.bits(top))
		}
		return 1
	}
}

// inputElements counts the elements of a product's x, which a token's experts may share.
func inputElements(k *kernels.Kernel) tally {
	elements, each, top, own := params("tokens", "k")(k), mixedRows(k), constantOf(k, "fc_top"), constantOf(k, "fc_each")
	return func(l *launch) int64 {
		n := elements(l) * each(l)
		if l.bits(top) == 0 || l.constant(own) {
			return n
		}
		return n / int64(l.bits(top))
	}
}

// stacked counts the elements of a weight that are read. For experts it assumes that each row goes
// to a different one.
func stacked(rows string) extent {
	return func(k *kernels.Kernel) tally {
		one, tokens, each, experts := params(rows, "k")(k), word(k, "tokens"), mixedRows(k), constantOf(k, "fc_experts")
		return func(l *launch) int64 {
			if n := int64(l.bits(experts)); n != 0 {
				return one(l) * min(n, l.param(tokens)*each(l))
			}
			return one(l)
		}
	}
}

// linearOps counts the operations of a product with its prologue and epilogue.
func linearOps(k *kernels.Kernel) tally {
	tokens, width, n0, n1, n2, n3 := word(k, "tokens"), word(k, "k"), word(k, "n0"), word(k, "n1"), word(k, "n2"), word(k, "n3")
	each, residual, bias, norm := mixedRows(k), constantOf(k, "fc_residual"), constantOf(k, "fc_bias"), constantOf(k, "fc_norm")
	activation, gated, rowGate := constantOf(k, "fc_activation"), constantOf(k, "fc_gated"), constantOf(k, "fc_row_gate")
	columnGate := constantOf(k, "fc_column_gate")
	return func(l *launch) int64 {
		tokens, width, first := l.param(tokens)*each(l), l.param(width), l.param(n0)
		n := first + l.param(n1) + l.param(n2) + l.param(n3)
		ops := ir.OpLinear.Work(nil) * tokens * width * n
		if l.constant(residual) {
			ops += ir.OpAdd.Work(nil) * tokens * n
		}
		if l.constant(bias) {
			ops += ir.OpAdd.Work(nil) * tokens * n
		}
		if l.constant(rowGate) || l.constant(columnGate) {
			ops += ir.OpMul.Work(nil) * tokens * n
		}
		if l.constant(gated) {
			ops += ActivationWork(ir.OpGate, l.bits(activation)) * tokens * first
		} else {
			ops += ActivationWork(ir.OpActivate, l.bits(activation)) * tokens * n
		}
		switch ir.NormKind(l.bits(norm)) {
		case ir.RMSNorm:
			ops += ir.OpRMSNorm.Work(nil) * tokens * width
		case ir.LayerNorm:
			ops += ir.OpLayerNorm.Work(nil) * tokens * width
		}
		return ops
	}
}

// normLinearOps is linearOps with the norm, which each group of columns computes.
func normLinearOps(k *kernels.Kernel) tally {
	product, normed := linearOps(k), work(params("tokens", "k"), ir.OpRMSNorm)(k)
	return func(l *launch) int64 { return product(l) + l.dispatch.Grid[1].Eval(l.sizes)*normed(l) }
}

// linearShifts counts the cycles of decoding the weights in every pass over them.
func linearShifts(k *kernels.Kernel) tally {
	width := word(k, "k")
	each := mixedRows(k)
	var rows, types [4]int
	for i := range rows {
		rows[i], types[i] = word(k, fmt.Sprintf("n%d", i)), constantOf(k, fmt.Sprintf("fc_type%d", i))
	}
	return func(l *launch) (cycles int64) {
		passes := l.dispatch.Grid[1].Eval(l.sizes) * each(l)
		for i := range rows {
			cycles += kernels.ShiftCycles(l.bits(types[i]), passes*l.param(rows[i])*l.param(width))
		}
		return cycles
	}
}

// pagedKeys counts the elements of K in all sequences, in vLLM's layout.
func pagedKeys(k *kernels.Kernel) tally {
	elements := params("kv_heads", "head")(k)
	return func(l *launch) int64 { return l.sizes[sym.B] * l.sizes[sym.Smax] * elements(l) }
}

// ScoreOps returns the operations of attention per query and key: two products over a head, the
// scale and the softmax.
func ScoreOps(head int64) int64 {
	return 2*ir.OpMatmul.Work(nil)*head + ir.OpScale.Work(nil) + ir.OpSoftmax.Work(nil)
}

// pagedOps is attentionOps for kernels whose grid has a row per token.
func pagedOps(k *kernels.Kernel) tally {
	heads, head, window := word(k, "heads"), word(k, "head"), word(k, "window")
	return func(l *launch) int64 {
		return l.param(heads) * l.keysSeen(l.dispatch.Grid[1].Eval(l.sizes), l.param(window)) * ScoreOps(l.param(head))
	}
}

// keysSeen returns the sum over tokens of the keys that each sees: those up to its own, limited to
// the window if it is not 0.
func (l *launch) keysSeen(tokens, window int64) int64 {
	each := tokens / max(l.sizes[sym.B], 1)
	seen := tokens*l.sizes[sym.Smax] - tokens*max(each-1, 0)/2
	if window != 0 {
		seen = min(seen, tokens*window)
	}
	return seen
}

// attentionOps counts ScoreOps for every query head and every key that a token sees.
func attentionOps(k *kernels.Kernel) tally {
	tokens, heads, head, window := word(k, "tokens"), word(k, "heads"), word(k, "head"), word(k, "window")
	return func(l *launch) int64 {
		return l.param(heads) * l.keysSeen(l.param(tokens), l.param(window)) * ScoreOps(l.param(head))
	}
}

// keyReaders counts the threadgroups that read each key of a sequence: those of the key's KV head,
// for each of the sequence's tokens, or each group of fc_rows tokens.
func keyReaders(k *kernels.Kernel) tally {
	tokens, kvHeads, rows := word(k, "tokens"), word(k, "kv_heads"), constantOf(k, "fc_rows")
	return func(l *launch) int64 {
		each := quotient(l.param(tokens)/max(l.sizes[sym.B], 1), max(int64(l.bits(rows)), 1))
		return max(1, l.headGroups()/l.param(kvHeads)*each)
	}
}

// headGroups returns the number of threadgroups of attention per token and partition.
func (l *launch) headGroups() int64 { return l.dispatch.Grid[0].Eval(l.sizes) }

// rotationWork is the cost of the cosine and sine of a rotation per element, in operations as
// [ir.Op.Work] counts them: about 40 for each of the two, since the angle reaches the context's
// length in radians.
const rotationWork = 40

// attentionWriteOps is attentionOps with the norm and rotation of every query head, and of the
// token's key, which every threadgroup repeats.
func attentionWriteOps(k *kernels.Kernel) tally {
	attention, row, queries, norms := attentionOps(k), params("tokens", "head")(k), params("tokens", "heads", "head")(k), constantOf(k, "fc_norms")
	cached := constantOf(k, "fc_queries")
	return func(l *launch) int64 {
		each := ir.OpRope.Work(nil) + rotationWork
		if l.constant(norms) {
			each += ir.OpRMSNorm.Work(nil)
		}
		if l.constant(cached) {
			return attention(l) + each*queries(l)
		}
		return attention(l) + each*(queries(l)+row(l)*l.headGroups())
	}
}

// latentAttentionOps is attentionOps with the rotation of every query, and the norm and rotation of the
// token's row, which every threadgroup repeats.
func latentAttentionOps(k *kernels.Kernel) tally {
	attention, row, turned := attentionOps(k), params("tokens", "head")(k), params("tokens", "heads", "rotated")(k)
	each := ir.OpRope.Work(nil) + rotationWork
	return func(l *launch) int64 {
		return attention(l) + each*turned(l) + (each+ir.OpRMSNorm.Work(nil))*row(l)*l.headGroups()
	}
}

// quotient returns ⌈n / d⌉.
func quotient(n, d int64) int64 { return (n + d - 1) / d }
