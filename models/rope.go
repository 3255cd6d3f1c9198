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

// Rope is a model's rotary position embedding. See [ir.RopeAttr]. The zero value of
// everything but Theta and Rotated is RoPE as it was first described.
type Rope struct {
	Theta       float64
	Rotated     int     // leading elements of a head that rotate
	Interleaved bool    // pairs lie side by side, as in llama.cpp's files of Llama models
	Linear      float64 // positions are divided by this; 0 or 1 for most models
	// Llama3 gives factors that divide the frequencies. Where a file holds them as
	// rope_freqs.weight, those are used.
	Llama3  *Llama3Rope
	YaRN    *YaRNRope
	Long    *LongRope
	Dynamic *DynamicRope

	far     bool // sequences may go beyond Long.OldContext: see at
	changed bool // another scaling was asked for than that of the file
}

// RopeScaling is a scaling that is asked for in place of that of a file.
type RopeScaling struct {
	Kind   string // one of ropeScalings
	Factor float64
}

// ropeScalings make RoPE of a factor and of the context that the model was trained for.
var ropeScalings = map[string]func(r *Rope, factor, context float64){
	"none":    func(*Rope, float64, float64) {},
	"linear":  func(r *Rope, factor, _ float64) { r.Linear = factor },
	"dynamic": func(r *Rope, factor, context float64) { r.Dynamic = &DynamicRope{factor, context} },
	"yarn": func(r *Rope, factor, context float64) {
		r.YaRN = &YaRNRope{Factor: factor, FastBeta: 32, SlowBeta: 1, OldContext: context}
	},
}

// ParseRopeScaling reads KIND:FACTOR, or "none".
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

// Override changes what a file says: the base, unless theta is 0, and the scaling with the
// factors that belong to it, unless its kind is "". The context that the model was first
// trained for remains; it is that of the file where there was no scaling.
func (r *Rope) Override(theta float64, scaling RopeScaling, context int) error {
	r.Theta = cmp.Or(theta, r.Theta)
	if scaling.Kind == "" {
		return nil
	}
	scale, ok := ropeScalings[scaling.Kind]
	if !ok {
		return ConfigError("no RoPE scaling is called %q", scaling.Kind)
	}
	old := r.OldContext(float64(context))
	*r = *r.Unscaled(r.Theta)
	r.changed = true
	scale(r, scaling.Factor, old)
	return nil
}

// OldContext is what the model was first trained for, in tokens.
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

// at is the RoPE of sequences of up to that many tokens. All of a sequence rotates alike,
// since the keys in the cache are rotated already, so that a model whose angles depend on
// how long a text is has those of the longest.
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

// Unscaled is the RoPE of layers that rotate as many elements by another base, whose angles
// are not changed for long contexts.
func (r *Rope) Unscaled(theta float64) *Rope {
	return &Rope{Theta: theta, Rotated: r.Rotated, Interleaved: r.Interleaved, Linear: 1}
}

// Llama3Rope stretches low frequencies more than high ones, to see further than
// the context of the first training.
type Llama3Rope struct {
	Factor        float64 // of wavelengths beyond OldContext/LowFrequency
	LowFrequency  float64
	HighFrequency float64 // wavelengths below OldContext/HighFrequency stay
	OldContext    float64 // tokens
}

// YaRNRope stretches the pairs that turn slowly and leaves those that turn fast.
// Source: Peng et al., "YaRN: Efficient Context Window Extension of Large Language
// Models", 2023, section 3, with the ramp over pairs of its published code, which
// Hugging Face's transformers and llama.cpp share.
type YaRNRope struct {
	Factor     float64 // of pairs that turn less than SlowBeta times
	FastBeta   float64 // pairs that turn more often than this in OldContext stay; 32 in the paper
	SlowBeta   float64 // 1 in the paper
	OldContext float64 // tokens
	Magnitude  float64 // of cosine and sine; 0 stands for the paper's 0.1·ln(Factor) + 1
	Scores     float64 // strength by which scores of attention grow, too; 0: they do not
	Between    bool    // the ramp begins and ends between pairs, as GGUF files cannot say
}

// LongRope has factors for each pair, found by search: some for texts that the first training
// would have seen, some for longer ones. Source: Ding et al., "LongRoPE: Extending LLM
// Context Window Beyond 2 Million Tokens", 2024. Which are used depends, as in llama.cpp, on
// how long sequences may become, not on how long one is.
type LongRope struct {
	Short, Long []float64 // [Rotated/2]; nil where a GGUF file has them as tensors
	OldContext  float64   // tokens that Short is for
	Magnitude   float64   // of cosine and sine
}

// LongMagnitude is what transformers and llama.cpp's converter take where a folder says
// nothing: √(1 + ln factor / ln old), of contexts of factor·old tokens.
func LongMagnitude(factor, old float64) float64 {
	if factor <= 1 {
		return 1
	}
	return math.Sqrt(1 + math.Log(factor)/math.Log(old))
}

// DynamicRope stretches the base with the length of a text, once that is beyond what the model
// was trained for: by the NTK-aware rule for Factor·length/OldContext − (Factor − 1), as
// transformers has it. GGUF files cannot say so.
type DynamicRope struct {
	Factor     float64
	OldContext float64 // tokens
}

// NTKTheta returns the base of "NTK-aware" scaling: it divides the frequency of the
// last pair by factor, leaves that of the first, and shares out the rest. Source:
// bloc97, "NTK-Aware Scaled RoPE", 2023.
func NTKTheta(theta, factor float64, rotated int) float64 {
	return theta * math.Pow(factor, float64(rotated)/float64(rotated-2))
}

// Table returns what the rotary kernels take in place of a base: for each pair what
// divides a position to give its angle in radians, [Rotated/2], and what multiplies
// cosine and sine. Every scaling is in it.
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

// wavelength is after how many positions pair i has turned once, unscaled.
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
	return 1
}

func (y *YaRNRope) magnitude() float64 {
	if y.Magnitude != 0 {
		return y.Magnitude
	}
	return YaRNMagnitude(y.Factor, 1)
}

// YaRNMagnitude is the paper's for a strength of 1. Models that have another strength, or two,
// divide one by the other: see transformers' mscale and mscale_all_dim.
func YaRNMagnitude(factor, strength float64) float64 {
	return 0.1*strength*math.Log(max(factor, 1)) + 1
}

// factors returns what each pair's frequency is divided by, or nil.
func (r *Rope) factors() []float64 {
	switch {
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

// factors are those of _compute_llama3_parameters of Hugging Face's transformers:
// wavelengths over OldContext/LowFrequency are stretched by Factor, those under
// OldContext/HighFrequency stay, and in between the frequencies are mixed.
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

// factors mix the frequencies along the pairs, from the one that turns FastBeta times
// in OldContext, rounded down, to the one that turns SlowBeta times, rounded up.
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
	ropeFreqs = "rope_freqs.weight"
	RopeShort = "rope_factors_short.weight"
	RopeLong  = "rope_factors_long.weight"
)

// tensor names the tensor that holds the factors in GGUF files.
func (r *Rope) tensor() string {
	switch {
	case r.Long == nil:
		return ropeFreqs
	case r.far:
		return RopeLong
	}
	return RopeShort
}

// Tensors are the factors that GGUF files have as tensors. YaRN's are computed wherever they
// are used.
func (r *Rope) Tensors() map[string][]float64 {
	switch {
	case r.Llama3 != nil:
		return map[string][]float64{ropeFreqs: r.factors()}
	case r.Long != nil:
		return map[string][]float64{RopeShort: r.Long.Short, RopeLong: r.Long.Long}
	}
	return nil
}

// Spare reports whether a tensor holds factors that are not used: for texts of another
// length, or of the scaling of a file that has been changed.
func (r *Rope) Spare(tensor string) bool {
	return (r.Long != nil || r.changed) && (tensor == RopeShort || tensor == RopeLong) || r.changed && tensor == ropeFreqs
}

// bind returns what the DSL's Rope takes: its attribute, and the factors or nil. Those of a
// file are for the model's own RoPE, not for that of layers which have another.
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

// check is for heads of that many elements.
func (r *Rope) check(head int) error {
	switch {
	case r.Rotated < 2 || r.Rotated%2 != 0 || r.Rotated > head:
		return ConfigError("RoPE of %d elements of a head of %d", r.Rotated, head)
	case !positive(r.Theta):
		return ConfigError("the base of RoPE's frequencies is %g", r.Theta)
	case !positive(r.Linear):
		return ConfigError("RoPE's scaling factor is %g", r.Linear)
	}
	if l := r.Llama3; l != nil && !(positive(l.Factor) && positive(l.LowFrequency) && positive(l.HighFrequency) &&
		positive(l.OldContext) && l.HighFrequency > l.LowFrequency) {
		return ConfigError("llama3 RoPE scaling by %+v", *l)
	}
	if y := r.YaRN; y != nil && !(positive(y.Factor) && positive(y.FastBeta) && positive(y.SlowBeta) && positive(y.OldContext) &&
		y.FastBeta > y.SlowBeta && r.Theta > 1 && (y.Magnitude == 0 || positive(y.Magnitude))) {
		return ConfigError("YaRN RoPE scaling by %+v over a base of %g", *y, r.Theta)
	}
	if l := r.Long; l != nil {
		if !(positive(l.OldContext) && positive(l.Magnitude)) {
			return ConfigError("LongRoPE beyond %g tokens, of a magnitude of %g", l.OldContext, l.Magnitude)
		}
		for _, factors := range [][]float64{l.Short, l.Long} {
			if factors != nil && len(factors) != r.Rotated/2 {
				return ConfigError("LongRoPE has %d factors for %d pairs", len(factors), r.Rotated/2)
			}
			if x, ok := lo.Find(factors, func(x float64) bool { return !positive(x) }); ok {
				return ConfigError("a factor of LongRoPE is %g", x)
			}
		}
	}
	if d := r.Dynamic; d != nil && !(d.Factor >= 1 && positive(d.Factor) && positive(d.OldContext) && r.Rotated > 2) {
		return ConfigError("dynamic RoPE scaling by %+v", *d)
	}
	if lo.Count([]bool{r.Llama3 != nil, r.YaRN != nil, r.Long != nil, r.Dynamic != nil}, true) > 1 {
		return ConfigError("RoPE scaled in two ways")
	}
	return nil
}
