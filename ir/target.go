package ir

// Target says what the machine that a graph is compiled for can do. lower fills
// it from its kernel selection; passes read it. It is a plain table, so that a
// pass needs to know nothing about kernels.
type Target struct {
	Name string // "metal" or "cpu"
	// Act is the element type of activations between matrix products. The residual
	// stream and all statistics are F32 on every target.
	Act DType
	// Ops holds the ops that have a kernel. The others are decomposed.
	Ops [NumOps]bool
	// WeightTypes holds the stored types that matrix products and embeddings read.
	WeightTypes [64]bool
	// NormPrologue says that fused_linear may normalise its input in this range of
	// token counts.
	NormPrologue bool
	// SplitContext is the context length beyond which the attention of single tokens
	// is cut along the keys, to keep many cores busy; 0 for never.
	SplitContext int64
	// Chip is what choices by size are made for: "m4-max", or "" for no chip in
	// particular.
	Chip string
	// Gated says that fused_linear may compute a gate of two products.
	Gated bool

	MaxHead int // elements of a head that attention and the fused cache writes take
}

// Has reports whether an op has a kernel on the target.
func (t *Target) Has(op Op) bool { return t.Ops[op] }
