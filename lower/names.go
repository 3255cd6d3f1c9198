package lower

import "github.com/smelt-ml/smelt/ir"

// What package ir names and a Plan holds, for devices, which know Plans and not graphs.

// NoLayer is the layer of dispatches outside the layers.
const NoLayer = ir.NoLayer

// The symbols of Sizes.
const (
	T       = ir.T
	B       = ir.B
	R       = ir.R
	NB      = ir.NB
	Smax    = ir.Smax
	C       = ir.C
	NumSyms = ir.NumSyms
)

// The inputs of a step whose values name places in the cache, in the vocabulary or
// among the tokens.
const (
	Tokens      = ir.Tokens
	Positions   = ir.Positions
	Ends        = ir.Ends
	TokenTypes  = ir.TokenTypes
	Slots       = ir.Slots
	CuSeqlens   = ir.CuSeqlens
	ContextLens = ir.ContextLens
	BlockTable  = ir.BlockTable
	LogitRows   = ir.LogitRows
	Copies      = ir.Copies
)

// SymName returns the name of symbol i of Sizes.
func SymName(i int) string { return ir.Sym(i).String() }

// Given is [ir.Given].
func Given(inputs map[string][]int32, name string) ([]int32, bool) { return ir.Given(inputs, name) }
