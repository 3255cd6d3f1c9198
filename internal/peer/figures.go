//go:build linux

package main

import (
	"math"
	"slices"
	"time"

	"golang.org/x/exp/stats"
)

// report is all that was measured, as it is kept in a file: what is printed can be made
// from it again.
type report struct {
	Date    time.Time `json:"date"`
	Machine string    `json:"machine"`
	Smelt   hello     `json:"smelt"`
	Peer    *hello    `json:"peer,omitempty"` // nil where smelt was measured alone
	Threads int       `json:"threads"`
	Pairs   int       `json:"pairs"` // wanted of each cell
	Elapsed float64   `json:"elapsed"`
	Models  []bench   `json:"models"`
	Startup []startup `json:"startup,omitempty"`
}

// startup is one start of the tool: from the process to its end, after one token.
type startup struct {
	Model   string  `json:"model"`
	Seconds float64 `json:"seconds"`
}

// startup is the median of the starts, in seconds, and what was started; 0 without any.
func (r *report) startup() (string, float64) {
	if len(r.Startup) == 0 {
		return "", 0
	}
	seconds := make([]float64, len(r.Startup))
	for i, s := range r.Startup {
		seconds[i] = s.Seconds
	}
	return r.Startup[0].Model, stats.Median(seconds)
}

// bench is what was measured of one model.
type bench struct {
	Model     string    `json:"model"`  // the known shape
	Format    string    `json:"format"` // the mixture of weight types
	Work      workload  `json:"work"`
	Float     float64   `json:"float_gops"` // peaks of the processor, 10⁹ operations a second
	Int8      float64   `json:"int8_gops"`
	SmeltPeak int64     `json:"smelt_peak"` // most memory, in bytes
	PeerPeak  int64     `json:"peer_peak,omitempty"`
	Cells     []samples `json:"cells"`
}

func (b *bench) name() string { return b.Model + " " + b.Format }

// samples are the pairs of a cell, disturbed ones included, in the order they came.
type samples struct {
	Cell  cell   `json:"cell"`
	Pairs []pair `json:"pairs"`
}

// figures are what the pairs of a cell come to; a share is of the read bandwidth for
// generating, and for a prompt of the peak of the arithmetic that the weights allow.
type figures struct {
	Pairs, Clean int     // that were used, and those that nothing disturbed
	Smelt, Peer  float64 // medians, tokens a second
	Ratio        float64 // median of the pairs' ratios
	Read         float64 // median, GB/s
	SmeltShare   float64
	PeerShare    float64
}

// figures come from so many pairs: those that were disturbed least. The peak is in 10⁹
// operations a second.
func (s *samples) figures(work *workload, peak float64, wanted int) figures {
	used := slices.Clone(s.Pairs)
	slices.SortStableFunc(used, func(x, y pair) int {
		if x.clean() && y.clean() {
			return 0 // among them the first that came
		}
		return compare(x.Others, y.Others)
	})
	used = used[:min(wanted, len(used))]
	f := figures{Pairs: len(used)}
	median := func(of func(p *pair) float64) float64 {
		values := make([]float64, len(used))
		for i := range used {
			values[i] = of(&used[i])
		}
		return stats.Median(values)
	}
	for i := range used {
		if used[i].clean() {
			f.Clean++
		}
	}
	f.Smelt = median(func(p *pair) float64 { return p.Smelt })
	f.Peer = median(func(p *pair) float64 { return p.Peer })
	f.Ratio = median(func(p *pair) float64 { return ratio(p.Smelt, p.Peer) })
	f.Read = median(func(p *pair) float64 { return p.Read })
	share := func(speed func(p *pair) float64) float64 {
		return median(func(p *pair) float64 { return s.share(work, peak, p, speed(p)) })
	}
	f.SmeltShare = share(func(p *pair) float64 { return p.Smelt })
	f.PeerShare = share(func(p *pair) float64 { return p.Peer })
	return f
}

// share tells how much of the limit a speed is.
func (s *samples) share(work *workload, peak float64, p *pair, speed float64) float64 {
	if s.Cell.Test == generating {
		return ratio(speed*work.bytesPerToken(s.Cell)/1e9, p.Read)
	}
	return ratio(speed*work.opsPerToken(s.Cell)/1e9, peak)
}

// peak is that of products of bytes for quantised weights, else of floats.
func (b *bench) peak(quantised bool) float64 {
	if quantised {
		return b.Int8
	}
	return b.Float
}

// peak is the most that was probed beside any model: what neighbours leave of the processor
// at a bad moment would flatter both engines.
func (r *report) peak(quantised bool) float64 {
	var most float64
	for i := range r.Models {
		most = max(most, r.Models[i].peak(quantised))
	}
	return most
}

// ratio is 0 where there is nothing to compare with.
func ratio(x, y float64) float64 {
	if y == 0 {
		return 0
	}
	return x / y
}

func compare(x, y float64) int {
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

// each calls a function with every cell's figures.
func (r *report) each(see func(b *bench, s *samples, f figures)) {
	for i := range r.Models {
		b := &r.Models[i]
		for j := range b.Cells {
			if s := &b.Cells[j]; len(s.Pairs) > 0 {
				see(b, s, s.figures(&b.Work, r.peak(b.Work.Quantised), r.Pairs))
			}
		}
	}
}

// mean is the geometric mean of the cells' ratios, and the median of what was probed.
func (r *report) mean() (ratio, read float64) {
	var logs, reads []float64
	r.each(func(_ *bench, s *samples, f figures) {
		logs = append(logs, math.Log(f.Ratio))
		for i := range s.Pairs {
			reads = append(reads, s.Pairs[i].Read)
		}
	})
	if len(logs) == 0 {
		return 0, 0
	}
	var sum float64
	for _, l := range logs {
		sum += l
	}
	return math.Exp(sum / float64(len(logs))), stats.Median(reads)
}
