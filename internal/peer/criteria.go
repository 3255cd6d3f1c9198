//go:build linux

package main

import (
	"fmt"
	"strings"
)

// criterion is what the cpu device wants to reach beside llama.cpp, and how far it is.
type criterion struct {
	Wanted string   `json:"wanted"`
	Of     int      `json:"of"`     // cells or models that it speaks of among those measured
	Met    []string `json:"met"`    // with their figures
	Missed []string `json:"missed"` // likewise
}

func (c *criterion) judge(met bool, format string, args ...any) {
	c.Of++
	if line := fmt.Sprintf(format, args...); met {
		c.Met = append(c.Met, line)
	} else {
		c.Missed = append(c.Missed, line)
	}
}

// What is wanted. Where an engine is near the limit of the memory, noise decides who is
// ahead: there a little less than the rival will do.
const (
	wantedRatio         = 1.0
	wantedRatioAtLimit  = 0.95
	atLimit             = 0.80 // of the read bandwidth
	wantedMean          = 1.25
	wantedMeanFast      = 1.5
	fastMemory          = 60.0 // GB/s
	wantedDecode        = 0.85 // of the read bandwidth, weights of F16 and Q8_0
	wantedDecodeAtDepth = 0.60
	deepFrom            = 4096
	wantedStartup       = 0.3 // seconds to the first token of a model of 0.6·10⁹ weights
)

// wantedPrefill are shares of the peak of bytes, by shape.
var wantedPrefill = map[string]float64{"qwen3-0.6b": 0.29, "llama3.2-1b": 0.38}

// wide are the formats whose decoding is bound by memory alone.
var wide = map[string]bool{"f16": true, "q8_0": true}

// criteria judges a report.
func (r *report) criteria() []criterion {
	speed := criterion{Wanted: fmt.Sprintf("each cell at least %.1f × llama.cpp, %.2f × where either engine is above %.0f %% of the bandwidth",
		wantedRatio, wantedRatioAtLimit, 100*atLimit)}
	prefill := criterion{Wanted: "prompts of quantised weights: 29 % (Qwen3) and 38 % (Llama) of the int8 peak"}
	decode := criterion{Wanted: fmt.Sprintf("decoding at depth 0, F16 and Q8_0: %.0f %% of the bandwidth", 100*wantedDecode)}
	deep := criterion{Wanted: fmt.Sprintf("decoding at depth %d: %.0f %% of the bandwidth", deepFrom, 100*wantedDecodeAtDepth)}
	r.each(func(b *bench, s *samples, f figures) {
		cell := fmt.Sprintf("%s %v", b.name(), s.Cell)
		generates := s.Cell.Test == generating
		if r.Peer != nil {
			want := wantedRatio
			if generates && max(f.SmeltShare, f.PeerShare) > atLimit {
				want = wantedRatioAtLimit
			}
			speed.judge(f.Ratio >= want, "%s %.2f", cell, f.Ratio)
		}
		want, known := wantedPrefill[b.Model]
		share := fmt.Sprintf("%s %.0f %%", cell, 100*f.SmeltShare)
		switch {
		case !generates && b.Work.Quantised && known && r.peak(true) > 0:
			prefill.judge(f.SmeltShare >= want, "%s", share)
		case generates && s.Cell.Depth == 0 && wide[b.Format]:
			decode.judge(f.SmeltShare >= wantedDecode, "%s", share)
		case generates && s.Cell.Depth >= deepFrom:
			deep.judge(f.SmeltShare >= wantedDecodeAtDepth, "%s", share)
		}
	})
	mean := criterion{Wanted: "geometric mean of all cells"}
	memory := criterion{Wanted: "peak memory no more than llama.cpp's"}
	if ratio, read := r.mean(); r.Peer != nil && ratio > 0 {
		want := wantedMean
		if read >= fastMemory {
			want = wantedMeanFast
		}
		mean.Wanted = fmt.Sprintf("geometric mean of all cells at least %.2f × (%.2f × where the probe reads %.0f GB/s)", wantedMean, wantedMeanFast, fastMemory)
		mean.judge(ratio >= want, "%.2f at %.1f GB/s", ratio, read)
	}
	for i := range r.Models {
		if b := &r.Models[i]; b.SmeltPeak > 0 && b.PeerPeak > 0 {
			memory.judge(b.SmeltPeak <= b.PeerPeak, "%s %d against %d MB", b.name(), b.SmeltPeak/1e6, b.PeerPeak/1e6)
		}
	}
	start := criterion{Wanted: fmt.Sprintf("first token within %.0f ms of the start of the process, files in the page cache", 1e3*wantedStartup)}
	if model, seconds := r.startup(); seconds > 0 {
		start.judge(seconds <= wantedStartup, "%s %.0f ms (median of %d)", model, 1e3*seconds, len(r.Startup))
	}
	var all []criterion
	for _, c := range []criterion{speed, mean, prefill, decode, deep, memory, start} {
		if c.Of > 0 {
			all = append(all, c)
		}
	}
	return all
}

// verdict is one line on a criterion.
func (c *criterion) verdict() string {
	switch {
	case c.Of == 1 && len(c.Met) == 1:
		return "yes: " + c.Met[0]
	case c.Of == 1:
		return "**no**: " + c.Missed[0]
	case len(c.Missed) == 0:
		return fmt.Sprintf("yes, all %d", c.Of)
	default:
		return fmt.Sprintf("**%d of %d**; not %s", len(c.Met), c.Of, strings.Join(c.Missed, ", "))
	}
}
