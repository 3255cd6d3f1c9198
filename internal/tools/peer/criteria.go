//go:build linux

package main

import (
	"fmt"
	"strings"
)

// criterion is a goal for the cpu device beside llama.cpp, and how far it is met.
type criterion struct {
	Wanted string
	Of     int      // measured cells or models that it applies to
	Met    []string // those that meet it, with their figures
	Missed []string // those that do not, with their figures
	Open   []string // those that cannot be judged, with the reason
}

func (c *criterion) judge(met bool, format string, args ...any) {
	c.Of++
	if line := fmt.Sprintf(format, args...); met {
		c.Met = append(c.Met, line)
	} else {
		c.Missed = append(c.Missed, line)
	}
}

func (c *criterion) leave(format string, args ...any) {
	c.Open = append(c.Open, fmt.Sprintf(format, args...))
}

// The goals. Near the memory bandwidth noise decides which engine is faster, so slightly less
// than the rival's speed suffices there.
const (
	wantedRatio         = 1.0
	wantedRatioAtLimit  = 0.97
	atLimit             = 0.90 // of the read bandwidth
	wantedMean          = 1.5
	wantedMeanToBest    = 1.2
	wantedDecode        = 0.85 // of the read bandwidth
	wantedOverBest      = 1.15 // suffices instead, without VNNI
	wantedDecodeAtDepth = 0.60
	deepFrom            = 4096
	wantedDecodeDeepest = 0.85
	deepestFrom         = 16384
	wantedFloatPrefill  = 0.70 // of the float peak, or of the peak of the type that F16 weights are converted to
	wantedStartup       = 0.3  // seconds to the first token of a model of 0.6·10⁹ weights

	// Sequences generated at once, beside llama.cpp: any number where the processor multiplies
	// bytes (VNNI), else manyFrom or more.
	wantedMany     = 1.3
	manyFrom       = 16
	wantedOfPrompt = 0.85 // of the operations per second of prompts, from that number of sequences on
)

// wantedPrefill are the goals with VNNI, as shares of the byte peak, by shape.
var wantedPrefill = map[string]float64{"qwen3-0.6b": 0.45, "llama3.2-1b": 0.50}

// wantedAVX2Prefill is the goal as a share of the peak of AVX2's instruction chain for products
// of bytes; wantedAVX2Q8 is that for Q8_0, whose bytes need one instruction more.
const (
	wantedAVX2Prefill = 0.70
	wantedAVX2Q8      = 0.60
)

// prefill returns the goal for a model's prompts as a share of its peak, and whether there is
// one.
func prefill(b *bench, isa string) (float64, bool) {
	if !b.Work.Quantized {
		return wantedFloatPrefill, true
	}
	if !vnni[isa] {
		if b.Format == "q8_0" {
			return wantedAVX2Q8, true
		}
		return wantedAVX2Prefill, true
	}
	want, known := wantedPrefill[b.Model]
	return want, known
}

// wide are the formats whose decoding is bound by memory alone with VNNI.
var wide = map[string]bool{"f16": true, "q8_0": true}

// vnni are the kernel sets with instructions that multiply bytes.
var vnni = map[string]bool{"avx512": true, "avxvnni": true}

// criteria returns the judgement of every goal, whether it can be judged or not.
func (r *report) criteria() []criterion {
	multiplies := vnni[r.Smelt.Detail]
	speed := criterion{Wanted: fmt.Sprintf("each cell at least %.1f × the best rival, %.2f × where either engine is above %.0f %% of the bandwidth",
		wantedRatio, wantedRatioAtLimit, 100*atLimit)}
	half := "float peak"
	if r.shortens() {
		half = "peak of 16-bit integers"
	}
	prompts := criterion{Wanted: "prompts of quantized weights: 45 % (Qwen3) and 50 % (Llama) of the int8 peak, F16 70 % of the " + half}
	decode := criterion{Wanted: fmt.Sprintf("decoding at depth 0, F16 and Q8_0: %.0f %% of the bandwidth", 100*wantedDecode)}
	if !multiplies {
		prompts.Wanted = "prompts of quantized weights: 70 % (Q8_0 60 %) of the int8 peak, F16 70 % of the " + half
		decode.Wanted = fmt.Sprintf("decoding at depth 0: %.0f %% of the bandwidth, or %.2f × the best rival", 100*wantedDecode, wantedOverBest)
	}
	deep := criterion{Wanted: fmt.Sprintf("decoding at depth %d: %.0f %% of the bandwidth, from %d on %.0f %%",
		deepFrom, 100*wantedDecodeAtDepth, deepestFrom, 100*wantedDecodeDeepest)}
	many := criterion{Wanted: fmt.Sprintf("sequences at once: %.1f × llama.cpp with VNNI; without %.1f ×, and from %d on %.1f ×",
		wantedMany, wantedRatio, manyFrom, wantedMany)}
	rate := criterion{Wanted: fmt.Sprintf("%d sequences at once: %.0f %% of the operations a second of prompts", manyFrom, 100*wantedOfPrompt)}
	rates := map[string]float64{} // operations per second of prompts, by model
	r.each(func(b *bench, s *samples, f figures) {
		if s.Cell.Test == prompting {
			rates[b.name()] = max(rates[b.name()], f.Smelt*b.Work.opsPerToken(s.Cell))
		}
	})
	var memoryFault, peakFault bool
	for _, f := range r.faults() {
		memoryFault, peakFault = memoryFault || f.memory, peakFault || !f.memory
	}
	// hold judges a share, unless its limit was probed wrongly or not at all.
	hold := func(c *criterion, cell string, share, limit, want float64, faulty bool) {
		switch {
		case limit == 0:
			c.leave("%s: the limit was not probed", cell)
		case faulty:
			c.leave("%s: the probe found too little", cell)
		default:
			c.judge(share >= want, "%s %.0f %%", cell, 100*share)
		}
	}
	read := r.read()
	r.each(func(b *bench, s *samples, f figures) {
		cell := fmt.Sprintf("%s %v", b.name(), s.Cell)
		generates := s.Cell.Test == generating
		if s.parallel() {
			if r.Peer != nil {
				want := wantedRatio
				if multiplies || s.Cell.Parallel >= manyFrom {
					want = wantedMany
				}
				many.judge(f.Ratio >= want, "%s %.2f", cell, f.Ratio)
			}
			if s.Cell.Parallel == manyFrom && rates[b.name()] > 0 {
				share := f.Smelt * b.Work.opsPerToken(s.Cell) / rates[b.name()]
				rate.judge(share >= wantedOfPrompt, "%s %.0f %%", cell, 100*share)
			}
			return
		}
		best := f.best()
		if r.Peer != nil || r.Fork != nil {
			want := wantedRatio
			if generates && max(f.SmeltShare, f.PeerShare) > atLimit {
				want = wantedRatioAtLimit
			}
			if want < wantedRatio && best < wantedRatio && best >= want && memoryFault {
				speed.leave("%s %.2f: whether it is at the limit the probe does not tell", cell, best)
			} else {
				speed.judge(best >= want, "%s %.2f", cell, best)
			}
		}
		want, known := prefill(b, r.Smelt.Detail)
		switch {
		case !generates && known:
			peak := r.peak(b.products())
			if b.Work.Quantized { // its goals are of bytes, and AVX2 computes more nibbles
				f.SmeltShare *= ratio(peak, r.peak(ofBytes))
			}
			hold(&prompts, cell, f.SmeltShare, peak, want, peakFault)
		case generates && s.Cell.Depth == 0 && !multiplies && best >= wantedOverBest:
			decode.judge(true, "%s %.2f ×", cell, best)
		case generates && s.Cell.Depth == 0 && (wide[b.Format] || !multiplies):
			hold(&decode, cell, f.SmeltShare, read, wantedDecode, memoryFault)
		case generates && s.Cell.Depth >= deepestFrom:
			hold(&deep, cell, f.SmeltShare, read, wantedDecodeDeepest, memoryFault)
		case generates && s.Cell.Depth >= deepFrom:
			hold(&deep, cell, f.SmeltShare, read, wantedDecodeAtDepth, memoryFault)
		}
	})
	mean := criterion{Wanted: fmt.Sprintf("geometric mean of all cells at least %.1f × llama.cpp, and %.1f × the best rival", wantedMean, wantedMeanToBest)}
	if ratio := r.mean(toPeer); r.Peer != nil && ratio > 0 {
		mean.judge(ratio >= wantedMean, "%.2f × llama.cpp", ratio)
	}
	if ratio := r.mean(toBest); r.Fork != nil && ratio > 0 {
		mean.judge(ratio >= wantedMeanToBest, "%.2f × the best", ratio)
	}
	memory := criterion{Wanted: "peak memory no more than llama.cpp's"}
	for i := range r.Models {
		if b := &r.Models[i]; b.SmeltPeak > 0 && b.peerPeak() > 0 {
			memory.judge(b.SmeltPeak <= b.peerPeak(), "%s %d against %d MB", b.name(), b.SmeltPeak/1e6, b.peerPeak()/1e6)
		}
	}
	start := criterion{Wanted: fmt.Sprintf("first token within %.0f ms of the start of the process, files in the page cache", 1e3*wantedStartup)}
	if model, seconds := r.startup(); seconds > 0 {
		start.judge(seconds <= wantedStartup, "%s %.0f ms (median of %d)", model, 1e3*seconds, len(r.Startup))
	}
	all := []criterion{speed, mean, prompts, decode, deep, memory, start}
	for i := range all {
		if c := &all[i]; c.Of+len(c.Open) == 0 {
			c.leave("nothing was measured for it")
		}
	}
	for _, c := range []criterion{many, rate} { // these are no part of a whole comparison
		if c.Of > 0 {
			all = append(all, c)
		}
	}
	return all
}

// verdict formats a criterion as one line. A criterion that cannot be judged is not met.
func (c *criterion) verdict() string {
	var text string
	switch {
	case c.Of == 0:
	case c.Of == 1 && len(c.Met) == 1:
		text = "yes: " + c.Met[0]
	case c.Of == 1:
		text = "**no**: " + c.Missed[0]
	case len(c.Missed) == 0:
		text = fmt.Sprintf("yes, all %d", c.Of)
	default:
		text = fmt.Sprintf("**%d of %d**; not %s", len(c.Met), c.Of, strings.Join(c.Missed, ", "))
	}
	if len(c.Open) == 0 {
		return text
	}
	open := "**cannot be judged**: " + strings.Join(c.Open, ", ")
	switch {
	case c.Of == 0:
		return open
	case len(c.Missed) == 0: // a partly judged criterion is not met
		return fmt.Sprintf("%s; %d others are met", open, len(c.Met))
	}
	return text + "; " + open
}
