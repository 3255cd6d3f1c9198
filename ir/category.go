package ir

// Category groups ops by function, for passes and reports.
type Category uint8

// The categories.
const (
	OtherOps   Category = iota
	InputOps            // per-step inputs, weights, constants
	RowOps              // lookups and searches by row: embed, gather_rows, argmax, router
	ProductOps          // matrix products
	NormOps
	CacheOps // RoPE and accesses to the cache
	AttentionOps
	ActivationOps
	MoveOps // moves and casts of elements
)

var categoryNames = [...]string{
	OtherOps: "other", InputOps: "inputs", RowOps: "rows", ProductOps: "products", NormOps: "norms", CacheOps: "RoPE and cache",
	AttentionOps: "attention", ActivationOps: "activations", MoveOps: "moves",
}

// Categories returns all categories.
func Categories() []Category {
	all := make([]Category, len(categoryNames))
	for i := range all {
		all[i] = Category(i)
	}
	return all
}

// String returns a label of one to three words.
func (c Category) String() string { return categoryNames[c] }

// Category returns the op's category; that of OpInvalid is OtherOps.
func (op Op) Category() Category { return opTable[op].category }
