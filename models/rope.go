package models

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/samber/lo"

	"github.com/smelt-ml/smelt/ir"
)

// Rope is a model's rotary position embedding; see [ir.RopeAttr]. Where all fields but Theta and
// Rotated are zero, it is RoPE as first published.
type Rope struct {
	Theta       float64
	Rotated     int     // leading elements of a head that rotate
	Interleaved bool    // pairs are the elements (2i, 2i+1) of a head, as in GGUF files of Llama; otherwise (i, i+Rotated/2)
	Linear      float64 // divisor of positions; 0 or 1 for most models
	Magnitude   float64 // of cosine and sine, where no scaling below has one; 0: 1
	Scores      float64 // factor of attention scores, in families that have one where positions are scaled; 0 in others
	// Turned is the number of leading pairs that rotate, of the Rotated/2 that the frequencies are spread
	// over, where the others do not ("proportional"); 0: all rotate.
	Turned int
	// Llama3 computes divisors of the frequencies. A file's rope_freqs.weight takes precedence.
	Llama3  *Llama3Rope
	YaRN    *YaRNRope
	Long    *LongRope
	Dynamic *DynamicRope

	far     bool // sequences may exceed Long.OldContext: see at
	changed bool // Override replaced the file's scaling
}

// RopeScaling is a scaling that replaces the one of a file.
type RopeScaling struct {
	Kind   string // one of ropeScalings
	Factor float64
}

// ropeScalings set up a RoPE by a factor and the context that the model was trained for.
var ropeScalings = map[string]func(r *Rope, factor, context float64){
	"none":    func(*Rope, float64, float64) {},
	"linear":  func(r *Rope, factor, _ float64) { r.Linear = factor },
	"dynamic": func(r *Rope, factor, context float64) { r.Dynamic = &DynamicRope{factor, context} },
	"yarn": func(r *Rope, factor, context float64) {
		r.YaRN = &YaRNRope{Factor: factor, FastBeta: 32, SlowBeta: 1, OldContext: context}
	},
}

// ParseRopeScaling parses KIND:FACTOR, or "none".
func ParseRopeScaling(text string) (RopeScaling, error) {
	kind, number, given := strings.Cut(text, ":")
	kinds := slices.Sorted(maps.Keys(ropeScalings))
	if !slices.Contains(kinds, kind) {
		return RopeScaling{}, fmt.Errorf("no RoPE scaling is called %q; known are %s", kind, strings.Join(kinds, ", "))
	}
	if kind == "none" && !given {
		return RopeScaling{kind, 1}, nil
	}
	factor, err := strconv.ParseFloat(number, 64)
	if err != nil || !(factor >= 1 && factor <= maxScale) || kind == "none" {
		return RopeScaling{}, fmt.Errorf("%q: want none, or a kind and a factor from 1 on, such as yarn:4", text)
	}
	return RopeScaling{kind, factor}, nil
}

// Override replaces the base, unless theta is 0, and the scaling with its factors, unless its kind
// is "". The scaling's original context stays that of the file's scaling, or is context where the
// file has none.
func (r *Rope) Override(theta float64, scaling RopeScaling, context int) error {
	r.Theta = cmp.Or(theta, r.Theta)
	if scaling.Kind == "" {
		return nil
	}
	scale, ok := ropeScalings[scaling.Kind]
	if !ok {
		return ConfigError("no RoPE scaling is called %q", scaling.Kind)
	}
	if r.Turned > 0 {
		return ConfigError("RoPE that rotates %d pairs of %d cannot be scaled", r.Turned, r.Rotated/2)
	}
	old := r.OldContext(float64(context))
	*r = *r.Unscaled(r.Theta)
	r.changed = true
	scale(r, scaling.Factor, old)
	return nil
}

// OldContext returns the context before scaling, in tokens; absent where there is no scaling.
func (r *Rope) OldContext(absent float64) float64 {
	switch {
	case r.Llama3 != nil:
		return r.Llama3.OldContext
	case r.YaRN != nil:
		return r.YaRN.OldContext
	case r.Long != nil:
		return r.Long.OldContext
	case r.Dynamic != nil:
		return r.Dynamic.OldContext
	}
	return absent
}

// at returns the RoPE for sequences of at most context tokens. Keys in the cache are rotated
// already, so that all tokens of a sequence must rotate alike: where angles depend on the length of
// a text, they are those of the longest.
func (r Rope) at(context int) Rope {
	if r.Long != nil {
		r.far = float64(context) > r.Long.OldContext
	}
	if d := r.Dynamic; d != nil {
		r.Dynamic = nil
		if times := d.Factor*float64(context)/d.OldContext - (d.Factor - 1); float64(context) > d.OldContext {
			r.Theta = NTKTheta(r.Theta, times, r.Rotated)
		}
	}
	return r
}

// Unscaled returns a RoPE of as many elements with another base and without scaling.
func (r *Rope) Unscaled(theta float64) *Rope {
	return &Rope{Theta: theta, Rotated: r.Rotated, Interleaved: r.Interleaved, Linear: 1}
}

// Still returns a RoPE by no angle that floats can hold, for layers that normalise heads and do not
// rotate them: the kernels that do both, and write the cache, then do it there too. Angles are below
// 1e-15 radians, so that cosines are 1, and sines times an element vanish beside another element.
func (r *Rope) Still() *Rope {
	s := r.Unscaled(r.Theta)
	s.Linear = 1e24
	return s
}

// Llama3Rope stretches low frequencies more than high ones, to extend the context beyond the
// original one.
type Llama3Rope struct {
	Factor        float64 // of wavelengths beyond OldContext/LowFrequency
	LowFrequency  float64
	HighFrequency float64 // wavelengths below OldContext/HighFrequency stay
	OldContext    float64 // tokens
}

// YaRNRope stretches the pairs that rotate slowly and keeps those that rotate fast. Source: Peng et
// al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023, section 3, with
// the ramp over pairs of its published code, which Hugging Face's transformers and llama.cpp share.
type YaRNRope struct {
	Factor     float64 // of pairs that complete fewer than SlowBeta rotations in OldContext
	FastBeta   float64 // pairs that complete more rotations in OldContext stay; 32 in the paper
	SlowBeta   float64 // 1 in the paper
	OldContext float64 // tokens
	Magnitude  float64 // of cosine and sine; 0 stands for the paper's 0.1·ln(Factor) + 1
	Between    bool    // the ramp's ends are not rounded to whole pairs; GGUF files cannot store this
}

// LongRope has a divisor for each pair, found by search: one list for texts within the original
// context, one for longer ones. Source: Ding et al., "LongRoPE: Extending LLM Context Window Beyond
// 2 Million Tokens", 2024. As in llama.cpp, the bound on the length of sequences selects the list,
// not the length of one.
type LongRope struct {
	Short, Long []float64 // [Rotated/2]; nil where a GGUF file has them as tensors
	OldContext  float64   // tokens that Short is for
	Magnitude   float64   // of cosine and sine
}

// LongMagnitude returns the magnitude that transformers and llama.cpp's converter use where a
// folder has none: √(1 + ln factor / ln old), for contexts of factor·old tokens.
func LongMagnitude(factor, old float64) float64 {
	if factor <= 1 {
		return 1
	}
	return math.Sqrt(1 + math.Log(factor)/math.Log(old))
}

// DynamicRope scales the base with the length of a text beyond the original context: by the
// NTK-aware rule for Factor·length/OldContext − (Factor − 1), as in transformers. GGUF files cannot
// store it.
type DynamicRope struct {
	Factor     float64
	OldContext float64 // tokens
}

// NTKTheta returns the base of "NTK-aware" scaling, which divides the frequency of the last pair by
// factor, keeps that of the first, and interpolates geometrically between them. Source: bloc97,
// "NTK-Aware Scaled RoPE", 2023.
func NTKTheta(theta, factor float64, rotated int) float64 {
	return theta * math.Pow(factor, float64(rotated)/float64(rotated-2))
}

// Table returns the inputs of the rotary kernels, with all scaling applied: the divisors that turn
// a position into each pair's angle in radians, [Rotated/2], and the factor of cosine and sine.
func (r *Rope) Table() (divisors []float32, magnitude float64) {
	divisors = make([]float32, r.Rotated/2)
	factors := r.factors()
	for i := range divisors {
		x := r.wavelength(i) / (2 * math.Pi) / r.frequencyScale()
		if factors != nil {
			x *= factors[i]
		}
		divisors[i] = float32(x)
	}
	return divisors, r.magnitude()
}

// wavelength returns the positions in which pair i completes one rotation, unscaled.
func (r *Rope) wavelength(i int) float64 {
	return 2 * math.Pi * math.Pow(r.Theta, 2*float64(i)/float64(r.Rotated))
}

func (r *Rope) frequencyScale() float64 {
	if r.Linear == 0 {
		return 1
	}
	return 1 / r.Linear
}

func (r *Rope) magnitude() float64 {
	switch {
	case r.Long != nil:
		return r.Long.Magnitude
	case r.YaRN != nil:
		return r.YaRN.magnitude()
	}
	return cmp.Or(r.Magnitude, 1)
}

func (y *YaRNRope) magnitude() float64 {
	if y.Magnitude != 0 {
		return y.Magnitude
	}
	return YaRNMagnitude(y.Factor, 1)
}

// YaRNMagnitude returns the paper's magnitude if strength is 1. Models with other strengths divide
// one magnitude by another: see transformers' mscale and mscale_all_dim.
func YaRNMagnitude(factor, strength float64) float64 {
	return 0.1*strength*math.Log(max(factor, 1)) + 1
}

// FromFile sets what GGUF files' [KeyMagnitude] and [KeyStrength] mean in families whose scores grow
// with the scaling, as llama.cpp's DeepSeek-V2 computes it: scores grow by what cosine and sine grow by,
// squared, which linear scaling has on scores alone; YaRN with a strength has that instead, on scores
// alone. magnitude is 1 and strength 0 in files without the keys.
func (r *Rope) FromFile(magnitude, strength float64) {
	growth := r.growth()
	if float32(magnitude) == float32(1+growth) { // as files have it, in single precision
		magnitude = 1 + growth
	}
	grown := magnitude * (1 + 10*strength*growth)
	switch {
	case r.YaRN == nil:
		grown *= 1 + growth
	case strength == 0:
		grown *= 1 + growth
		r.YaRN.Magnitude = grown
	default:
		r.YaRN.Magnitude = magnitude
	}
	r.Scores = grown * grown
	if math.Abs(r.Scores-1) < 1e-6 { // of factors in single precision
		r.Scores = 1
	}
}

// InFile returns the two values that GGUF files have, the reverse of FromFile.
func (r *Rope) InFile() (magnitude, strength float64) {
	growth, magnitude := r.growth(), r.magnitude()
	grown := math.Sqrt(r.Scores) / magnitude
	switch {
	case r.YaRN != nil && (r.Scores == 0 || grown == 1):
		return magnitude / (1 + growth), 0
	case r.Scores == 0 || growth == 0:
		return magnitude, 0
	case r.YaRN == nil:
		grown /= 1 + growth
	}
	return magnitude, (grown - 1) / growth / 10
}

// growth returns what llama.cpp adds to 1 where positions are scaled.
func (r *Rope) growth() float64 {
	if r.YaRN != nil {
		return YaRNMagnitude(r.YaRN.Factor, 1) - 1
	}
	return -0.1 * math.Log(r.frequencyScale())
}

// still divides frequencies of pairs that do not rotate, as in GGUF files: angles are below what floats
// resolve beside a cosine of 1.
const still = 1e30

// factors returns the divisor of each pair's frequency, or nil.
func (r *Rope) factors() []float64 {
	switch {
	case r.Turned > 0:
		return lo.Times(r.Rotated/2, func(i int) float64 { return lo.Ternary(i < r.Turned, 1, still) })
	case r.Llama3 != nil:
		return r.Llama3.factors(r)
	case r.YaRN != nil:
		return r.YaRN.factors(r)
	case r.Long != nil && r.far:
		return r.Long.Long
	case r.Long != nil:
		return r.Long.Short
	}
	return nil
}

// factors computes _compute_llama3_parameters of Hugging Face's transformers: wavelengths over
// OldContext/LowFrequency are stretched by Factor, those under OldContext/HighFrequency stay, and
// in between the frequencies are interpolated.
func (l *Llama3Rope) factors(r *Rope) []float64 {
	return lo.Times(r.Rotated/2, func(i int) float64 {
		switch turns := l.OldContext / r.wavelength(i); {
		case turns < l.LowFrequency:
			return l.Factor
		case turns > l.HighFrequency:
			return 1
		default:
			smooth := (turns - l.LowFrequency) / (l.HighFrequency - l.LowFrequency)
			return 1 / ((1-smooth)/l.Factor + smooth)
		}
	})
}

// factors interpolates the frequencies along the pairs, from the one that completes FastBeta
// rotations in OldContext, rounded down, to the one that completes SlowBeta, rounded up.
func (y *YaRNRope) factors(r *Rope) []float64 {
	pair := func(turns float64) float64 {
		return float64(r.Rotated) * math.Log(y.OldContext/(turns*2*math.Pi)) / (2 * math.Log(r.Theta))
	}
	first, last := pair(y.FastBeta), pair(y.SlowBeta)
	if !y.Between {
		first, last = math.Floor(first), math.Ceil(last)
	}
	first, last = max(first, 0), min(last, float64(r.Rotated-1))
	return lo.Times(r.Rotated/2, func(i int) float64 {
		stretched := min(max((float64(i)-first)/max(last-first, 0.001), 0), 1)
		return 1 / (stretched/y.Factor + 1 - stretched)
	})
}

// Tensors of a GGUF file that hold RoPE factors, [Rotated/2].
const (
	RopeFreqs = "rope_freqs.weight"
	RopeShort = "rope_factors_short.weight"
	RopeLong  = "rope_factors_long.weight"
)

// tensor returns the name of the tensor that holds the factors in GGUF files.
func (r *Rope) tensor() string {
	switch {
	case r.Long == nil:
		return RopeFreqs
	case r.far:
		return RopeLong
	}
	return RopeShort
}

// Tensors returns the factors that GGUF files store as tensors. YaRN's are computed where they are
// used.
func (r *Rope) Tensors() map[string][]float64 {
	switch {
	case r.Llama3 != nil || r.Turned > 0:
		return map[string][]float64{RopeFreqs: r.factors()}
	case r.Long != nil:
		return map[string][]float64{RopeShort: r.Long.Short, RopeLong: r.Long.Long}
	}
	return nil
}

// Spare reports whether a tensor holds unused factors: those for texts of another length, or those
// of a scaling that Override replaced.
func (r *Rope) Spare(tensor string) bool {
	return (r.Long != nil || r.changed) && (tensor == RopeShort || tensor == RopeLong) || r.changed && tensor == RopeFreqs
}

// bind returns the operands of [ir.Builder.Rope]: its attribute, and the factors or nil. A file's
// factors apply to the model's own RoPE only, not to layers with another one.
func (r *Rope) bind(b *ir.Builder, own bool) (ir.RopeAttr, *ir.Value) {
	attr := ir.RopeAttr{
		Interleaved: r.Interleaved,
		Rotated:     r.Rotated,
		Theta:       r.Theta,
		FreqScale:   r.frequencyScale(),
		Magnitude:   r.magnitude(),
	}
	if own && !r.changed && b.HasWeight(r.tensor()) {
		return attr, b.Weight(r.tensor(), r.Rotated/2)
	}
	if factors := r.factors(); factors != nil {
		return attr, b.Const(singles(factors))
	}
	return attr, nil
}

func singles(x []float64) []float32 {
	return lo.Map(x, func(v float64, _ int) float32 { return float32(v) })
}

// check returns an error for a RoPE that does not fit heads of that size.
func (r *Rope) check(head int) error {
	switch {
	case r.Rotated < 2 || r.Rotated%2 != 0 || r.Rotated > head:
		return ConfigError("RoPE rotates %d elements of a head of %d, want an even number from 2 to %[2]d", r.Rotated, head)
	case !positive(r.Theta):
		return ConfigError("the base of RoPE's frequencies is %g", r.Theta)
	case !positive(r.Linear):
		return ConfigError("RoPE's scaling factor is %g", r.Linear)
	case r.Magnitude != 0 && !positive(r.Magnitude):
		return ConfigError("the magnitude of RoPE is %g", r.Magnitude)
	}
	if r.Turned < 0 || r.Turned > r.Rotated/2 {
		return ConfigError("RoPE rotates %d pairs of %d", r.Turned, r.Rotated/2)
	}
	if l := r.Llama3; l != nil && !(positive(l.Factor) && positive(l.LowFrequency) && positive(l.HighFrequency) &&
		positive(l.OldContext) && l.HighFrequency > l.LowFrequency) {
		return ConfigError("llama3 RoPE scaling has invalid values %+v", *l)
	}
	if y := r.YaRN; y != nil && !(positive(y.Factor) && positive(y.FastBeta) && positive(y.SlowBeta) && positive(y.OldContext) &&
		y.FastBeta > y.SlowBeta && r.Theta > 1 && (y.Magnitude == 0 || positive(y.Magnitude))) {
		return ConfigError("YaRN RoPE scaling has invalid values %+v over a base of %g", *y, r.Theta)
	}
	if l := r.Long; l != nil {
		if !(positive(l.OldContext) && positive(l.Magnitude)) {
			return ConfigError("LongRoPE has an original context of %g tokens and a magnitude of %g, want positive numbers", l.OldContext, l.Magnitude)
		}
		for _, factors := range [][]float64{l.Short, l.Long} {
			if factors != nil && len(factors) != r.Rotated/2 {
				return ConfigError("LongRoPE has %d factors for %d pairs", len(factors), r.Rotated/2)
			}
			if x, ok := lo.Find(factors, func(x float64) bool { return !positive(x) }); ok {
				return ConfigError("a factor of LongRoPE is %g, want a positive number", x)
			}
		}
	}
	if d := r.Dynamic; d != nil && !(d.Factor >= 1 && positive(d.Factor) && positive(d.OldContext) && r.Rotated > 2) {
		return ConfigError("dynamic RoPE scaling has invalid values %+v", *d)
	}
	if lo.Count([]bool{r.Turned > 0, r.Llama3 != nil, r.YaRN != nil, r.Long != nil, r.Dynamic != nil}, true) > 1 {
		return ConfigError("RoPE has more than one kind of scaling")
	}
	return nil
}
