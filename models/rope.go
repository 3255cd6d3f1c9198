package models

import (
	"math"

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
	Llama3 *Llama3Rope
	YaRN   *YaRNRope
}

// unscaled is the RoPE of layers that rotate as many elements by another base, whose angles
// are not changed for long contexts.
func (r *Rope) unscaled(theta float64) *Rope {
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
	if r.YaRN == nil {
		return 1
	}
	return r.YaRN.magnitude()
}

func (y *YaRNRope) magnitude() float64 {
	if y.Magnitude != 0 {
		return y.Magnitude
	}
	return 0.1*math.Log(max(y.Factor, 1)) + 1
}

// factors returns what each pair's frequency is divided by, or nil.
func (r *Rope) factors() []float64 {
	switch {
	case r.Llama3 != nil:
		return r.Llama3.factors(r)
	case r.YaRN != nil:
		return r.YaRN.factors(r)
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
	first := max(math.Floor(pair(y.FastBeta)), 0)
	last := min(math.Ceil(pair(y.SlowBeta)), float64(r.Rotated-1))
	return lo.Times(r.Rotated/2, func(i int) float64 {
		stretched := min(max((float64(i)-first)/max(last-first, 0.001), 0), 1)
		return 1 / (stretched/y.Factor + 1 - stretched)
	})
}

// ropeFreqs is the tensor of a GGUF file that holds RoPE factors.
const ropeFreqs = "rope_freqs.weight"

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
	if own && b.HasWeight(ropeFreqs) {
		return attr, b.Weight(ropeFreqs, r.Rotated/2)
	}
	if factors := r.factors(); factors != nil {
		return attr, b.Const(singles(factors))
	}
	return attr, nil
}

func singles(x []float64) []float32 {
	return lo.Map(x, func(v float64, _ int) float32 { return float32(v) })
}
