package ir

// Category groups ops by what they do, for passes and tables.
type Category uint8

// The categories.
const (
	OtherOps   Category = iota
	InputOps            // what a step is given
	RowOps              // rows looked up, and looked for
	ProductOps          // of matrices
	NormOps
	CacheOps // RoPE, and the cache
	AttentionOps
	ActivationOps
	MoveOps // the same elements elsewhere
)

var categoryNames = [...]string{
	OtherOps: "other", InputOps: "inputs", RowOps: "rows", ProductOps: "products", NormOps: "norms", CacheOps: "RoPE and cache",
	AttentionOps: "attention", ActivationOps: "activations", MoveOps: "moves",
}

// Categories lists them all.
func Categories() []Category {
	all := make([]Category, len(categoryNames))
	for i := range all {
		all[i] = Category(i)
	}
	return all
}

// String returns a word or two for a legend.
func (c Category) String() string { return categoryNames[c] }

// Category returns what an op does; OpInvalid is among the others.
func (op Op) Category() Category { return opTable[op].category }
