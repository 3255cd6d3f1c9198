package ir

// Category groups ops by what they do, for pictures and tables.
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

// categories have the colour of dispatches and fused ops, and the paler one of source ops.
var categories = [...]struct{ name, colour, pale string }{
	OtherOps:      {"other", "#d5dbe1", "#ffffff"},
	InputOps:      {"inputs", "#dfe7f2", "#dfe7f2"},
	RowOps:        {"rows", "#9fd3cc", "#d6ecea"},
	ProductOps:    {"products", "#8fc7a0", "#cfe3d4"},
	NormOps:       {"norms", "#9cc4e8", "#d5e6f6"},
	CacheOps:      {"RoPE and cache", "#f6cf7f", "#f3e3c3"},
	AttentionOps:  {"attention", "#f2b5a7", "#f9ded7"},
	ActivationOps: {"activations", "#c9b6e4", "#e6ddf3"},
	MoveOps:       {"moves", "#e6eaee", "#ffffff"},
}

// Categories lists them all.
func Categories() []Category {
	all := make([]Category, len(categories))
	for i := range all {
		all[i] = Category(i)
	}
	return all
}

// String returns a word or two for a legend.
func (c Category) String() string { return categories[c].name }

// Colour returns what dispatches of the category are drawn in, as "#rrggbb".
func (c Category) Colour() string { return categories[c].colour }

// Category returns what an op does; OpInvalid is among the others.
func (op Op) Category() Category { return opTable[op].category }

// Colour returns what values of the op are drawn in, as "#rrggbb": source ops are paler
// than what they are fused into.
func (op Op) Colour() string {
	if op.Stage() == Source {
		return categories[op.Category()].pale
	}
	return op.Category().Colour()
}
