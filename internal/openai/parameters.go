package openai

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/smelt-ml/smelt"
)

// Parameter is a parameter of generation that is set by name: a member of a request, a key of a
// batch line, a flag. A value that is set counts, zero included; a zero field of
// [smelt.Generation] means the default, so that some zeros become other values of the field.
type Parameter struct {
	Name    string // key of a batch line; the flag, with - for _
	Member  string // member of a request
	Doc     string // of the flag
	Default string // of the flag
	whole   bool
	most    float64
	set     func(g *smelt.Generation, v float64)
}

// Parameters returns the table of sampling's parameters.
func Parameters() []*Parameter {
	return []*Parameter{
		{"temp", "temperature", "sampling temperature; 0: greedy", "0", false, math.MaxFloat64, func(g *smelt.Generation, v float64) { g.Sampling.Temperature = v }},
		{"top_k", "top_k", "sample from the k most likely tokens; 0: all", "0", true, math.MaxInt32, func(g *smelt.Generation, v float64) { g.Sampling.TopK = int(v) }},
		{"top_p", "top_p", "sample from the smallest set of tokens whose probabilities sum to p; 0: the most likely", "1", false, 1, func(g *smelt.Generation, v float64) { g.Sampling.TopP = max(v, leastTopP) }},
		{"min_p", "min_p", "sample from tokens with at least p times the probability of the most likely; 0: all", "0", false, 1, func(g *smelt.Generation, v float64) { g.Sampling.MinP = v }},
		Seed,
	}
}

// leastTopP stands for a top_p of 0, which keeps the most likely token.
const leastTopP = math.SmallestNonzeroFloat64

// Seed is the parameter of the seed; 0 is one.
var Seed = &Parameter{Name: "seed", Member: "seed", Doc: "seed of sampling (default: random)"}

// Length is the parameter of an answer's maximum length in tokens; 0 makes none.
var Length = &Parameter{"n", "max_tokens", "maximum number of tokens to generate", "128", true, math.MaxInt32, func(g *smelt.Generation, v float64) {
	if g.N = int(v); g.N == 0 {
		g.N = -1
	}
}}

// Kind returns the type of the parameter's value, as help shows it.
func (p *Parameter) Kind() string {
	switch {
	case p == Seed:
		return "uint"
	case p.whole:
		return "int"
	}
	return "float"
}

// Set sets the parameter from the text of a number.
func (p *Parameter) Set(g *smelt.Generation, text string) (err error) {
	if p == Seed {
		if g.Sampling.Seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			var negative int64
			negative, err = strconv.ParseInt(text, 10, 64)
			g.Sampling.Seed = uint64(negative)
		}
		if err != nil {
			return errors.New("want a whole number of 64 bits")
		}
		return nil
	}
	v, err := strconv.ParseFloat(text, 64)
	if err == nil && v >= 0 && v <= p.most && (!p.whole || v == math.Trunc(v)) {
		p.set(g, v)
		return nil
	}
	kind, most := "number", "or more"
	if p.whole {
		kind = "whole number"
	}
	if p.most < math.MaxInt32 {
		most = fmt.Sprintf("to %g", p.most)
	}
	return fmt.Errorf("want a %s, 0 %s", kind, most)
}
