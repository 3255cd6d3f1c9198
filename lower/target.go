package lower

import (
	"fmt"

	"github.com/smelt-ml/smelt/ir"
)

// DecodeTokens is the largest step that the decode phase takes. Up to here
// matrix products run as mat-vec, one pass over the weights for each token.
const DecodeTokens = 1

// weightTypes are the stored types that the matrix kernels decode.
var weightTypes = []ir.DType{
	ir.F32, ir.F16, ir.BF16, ir.Q8_0, ir.Q4_0, ir.Q4_1, ir.Q5_0, ir.Q5_1,
	ir.Q2_K, ir.Q3_K, ir.Q4_K, ir.Q5_K, ir.Q6_K,
}

// targets are the machines that smelt compiles for. Both run the same kernels,
// by name; they differ in the type of activations.
var targets = map[string]ir.Target{
	"metal": {Name: "metal", Act: ir.F16, SplitContext: tunings[0].split},
	"cpu":   {Name: "cpu", Act: ir.F32},
}

// NewTarget returns what the named machine ("metal" or "cpu") can do in steps of
// up to maxTokens tokens.
func NewTarget(name string, maxTokens int64) (*ir.Target, error) {
	t, ok := targets[name]
	if !ok {
		return nil, fmt.Errorf("no target is called %q (metal or cpu)", name)
	}
	for op := range selectors {
		t.Ops[op] = true
	}
	for _, w := range weightTypes {
		t.WeightTypes[w] = true
	}
	t.MaxHead = 256
	t.Gated = true
	t.NormPrologue = maxTokens <= DecodeTokens
	return &t, nil
}
