//go:build linux

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"golang.org/x/exp/stats"
)

// report holds all measurements, as a file keeps them: every table can be printed from it again.
type report struct {
	Date    time.Time `json:"date"`
	Machine string    `json:"machine"`
	Smelt   hello     `json:"smelt"`
	Peer    *hello    `json:"peer,omitempty"` // nil where smelt was measured alone
	Fork    *hello    `json:"fork,omitempty"` // nil where no fork was measured
	Threads int       `json:"threads"`
	Pairs   int       `json:"pairs"` // pairs requested per cell
	Elapsed float64   `json:"elapsed"`
	Models  []bench   `json:"models"`
	Startup []startup `json:"startup,omitempty"`
}

// versus holds samples beside a fork of llama.cpp, in some older reports: its speed in each of
// its ways, and pairs with the fastest.
type versus struct {
	Ways  []float64 `json:"ways"` // tokens per second, in the order of forkWays
	Pairs []pair    `json:"pairs"`
}

// forkWays are the ways in which the fork holds weights: as in the file, or repacked.
var forkWays = []string{"read", "repacked"}

// way returns the index of the way that the pairs were taken in.
func (v *versus) way() int { return slices.Index(v.Ways, slices.Max(v.Ways)) }

// startup is the time of one run of the tool that generates one token, from start to exit.
type startup struct {
	Model   string  `json:"model"`
	Seconds float64 `json:"seconds"`
}

// startup returns the model that was started and the median of the times in seconds; 0 without
// any.
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

// bench holds the measurements of one model.
type bench struct {
	Model     string   `json:"model"`  // the known shape
	Format    string   `json:"format"` // the mixture of weight types
	Work      workload `json:"work"`
	Float     float64  `json:"float_gops"` // peaks of the processor, 10⁹ operations per second
	Int8      float64  `json:"int8_gops"`
	Nibbles   float64  `json:"nibble_gops,omitempty"`
	Half      float64  `json:"half_gops,omitempty"` // of 16-bit integers, if half weights are multiplied as such
	Read      float64  `json:"read"`                // bandwidth, the best of all ways of reading, GB/s
	SmeltPeak int64    `json:"smelt_peak"`          // peak memory, in bytes
	// Peak memory of llama.cpp in processes of its own: with weights mapped from the file, where
	// it keeps rearranged weights a second time, and with weights read into memory.
	PeerMapped int64     `json:"peer_mapped,omitempty"`
	PeerRead   int64     `json:"peer_read,omitempty"`
	Cells      []samples `json:"cells"`
}

// peerPeak returns the lower of the rival's peaks; 0 without any.
func (b *bench) peerPeak() int64 {
	if b.PeerMapped == 0 || b.PeerRead == 0 {
		return max(b.PeerMapped, b.PeerRead)
	}
	return min(b.PeerMapped, b.PeerRead)
}

func (b *bench) name() string { return b.Model + " " + b.Format }

// samples are the pairs of a cell, including disturbed ones, in the order taken.
type samples struct {
	Cell  cell       `json:"cell"`
	Flash *attention `json:"flash,omitempty"` // with which attention the rival ran, if it had the choice
	Pairs []pair     `json:"pairs"`
	Fork  *versus    `json:"fork,omitempty"` // beside the fork, in its fastest way
}

func (s samples) parallel() bool { return s.Cell.Parallel > 0 }

// filled is the longest prompt with which llama/driver.cpp fills a cache (its PIECE); a longer
// cache repeats that prompt.
const filled = 4096

func (s samples) repeats() bool { return s.Cell.Depth > filled }

// figures are the results of a cell. A share is of the read bandwidth for generating, of the
// peak of the weights' arithmetic for a prompt, and of the nearer of the two for sequences at
// once. The bandwidth is the one probed between the samples of the same pair, because on a
// virtual machine it doubles and halves within minutes, as its processors move between two
// chiplets and one.
type figures struct {
	Pairs, Clean int     // pairs used, and undisturbed pairs among them
	Smelt, Peer  float64 // medians, tokens per second
	Ratio        float64 // median of the pairs' ratios
	Fork         float64 // the fork's median
	ForkRatio    float64
	Read         float64 // median, GB/s
	SmeltShare   float64
	PeerShare    float64
}

// ceiling is the machine's limit, as probed.
type ceiling struct {
	read float64 // 10⁹ bytes per second
	ops  float64 // 10⁹ operations per second
}

// beside returns the ceiling with the bandwidth that was probed beside a pair.
func (c ceiling) beside(p *pair) ceiling {
	if p.Read > 0 {
		c.read = p.Read
	}
	return c
}

// figures returns the results of the wanted number of least disturbed pairs.
func (s *samples) figures(work *workload, limit ceiling, wanted int) figures {
	used := quietest(s.Pairs, wanted)
	f := figures{
		Pairs: len(used),
		Smelt: median(used, func(p *pair) float64 { return p.Smelt }),
		Peer:  median(used, func(p *pair) float64 { return p.Peer }),
		Ratio: median(used, (*pair).ratio),
		Read:  median(used, func(p *pair) float64 { return p.Read }),
	}
	for i := range used {
		if used[i].clean() {
			f.Clean++
		}
	}
	share := func(speed func(p *pair) float64) float64 {
		return median(used, func(p *pair) float64 { return s.share(work, limit.beside(p), speed(p)) })
	}
	f.SmeltShare = share(func(p *pair) float64 { return p.Smelt })
	f.PeerShare = share(func(p *pair) float64 { return p.Peer })
	if s.Fork != nil {
		used := quietest(s.Fork.Pairs, wanted)
		f.Fork = median(used, func(p *pair) float64 { return p.Peer })
		f.ForkRatio = median(used, (*pair).ratio)
	}
	return f
}

// best returns the ratio to the fastest rival that was measured.
func (f *figures) best() float64 {
	if f.ForkRatio > 0 && (f.Ratio == 0 || f.ForkRatio < f.Ratio) {
		return f.ForkRatio
	}
	return f.Ratio
}

// quietest returns the wanted number of least disturbed pairs.
func quietest(pairs []pair, wanted int) []pair {
	used := slices.Clone(pairs)
	slices.SortStableFunc(used, func(x, y pair) int {
		if x.clean() && y.clean() {
			return 0 // in the order taken
		}
		return compare(x.Others, y.Others)
	})
	return used[:min(wanted, len(used))]
}

func median(pairs []pair, of func(p *pair) float64) float64 {
	values := make([]float64, len(pairs))
	for i := range pairs {
		values[i] = of(&pairs[i])
	}
	return stats.Median(values)
}

func (p *pair) ratio() float64 { return ratio(p.Smelt, p.Peer) }

// share returns a speed as a fraction of the limit.
func (s *samples) share(work *workload, limit ceiling, speed float64) float64 {
	read := ratio(speed*work.bytesPerToken(s.Cell)/1e9, limit.read)
	ops := ratio(speed*work.opsPerToken(s.Cell)/1e9, limit.ops)
	switch {
	case s.parallel():
		return max(read, ops)
	case s.Cell.Test == generating:
		return read
	}
	return ops
}

// products is the arithmetic of a prompt's matrix products.
type products int

const (
	ofFloats  products = iota // or of the type that half weights are converted to
	ofBytes                   // of quantized weights
	ofNibbles                 // of four-bit weights, the majority in a mixture
)

func (b *bench) products() products {
	switch {
	case !b.Work.Quantized:
		return ofFloats
	case strings.HasPrefix(b.Format, "q4"):
		return ofNibbles
	}
	return ofBytes
}

// moreNibbles reports whether the processor multiplies more nibbles than bytes.
func (b *bench) moreNibbles() bool { return b.Nibbles > b.Int8 }

// peak returns the probed peak of these products.
func (b *bench) peak(of products) float64 {
	switch of {
	case ofFloats:
		return max(b.Float, b.Half)
	case ofNibbles:
		return max(b.Int8, b.Nibbles)
	}
	return b.Int8
}

// shortens reports whether smelt multiplied half weights as 16-bit integers.
func (r *report) shortens() bool {
	return slices.ContainsFunc(r.Models, func(b bench) bool { return b.Half > 0 })
}

// peak returns the highest peak that was probed beside any model, because a peak probed while
// neighbours were busy would flatter both engines.
func (r *report) peak(of products) float64 {
	var most float64
	for i := range r.Models {
		most = max(most, r.Models[i].peak(of))
	}
	return most
}

// read returns the highest bandwidth that was probed in the whole run: the machine's best moment
// is its limit.
func (r *report) read() float64 {
	var most float64
	for i := range r.Models {
		most = max(most, r.Models[i].read())
	}
	return most
}

func (b *bench) read() float64 {
	most := b.Read
	for i := range b.Cells {
		for j := range b.Cells[i].Pairs {
			most = max(most, b.Cells[i].Pairs[j].Read)
		}
	}
	return most
}

// ceiling returns the limit of a model's cells.
func (r *report) ceiling(of products) ceiling {
	return ceiling{read: r.read(), ops: r.peak(of)}
}

// mostShare is the largest credible share of a limit. A higher share means that the probe was
// wrong; up to it the excess is noise.
const mostShare = 1.05

// fault is a speed above a probed limit.
type fault struct {
	memory bool // whether the bandwidth was probed too low, else a peak
	what   string
}

// faults returns the speeds that exceed the highest probed limits. The rival's prompts are left
// out, because it may use units that smelt's kernels, and so the peaks, do not.
func (r *report) faults() []fault {
	var list []fault
	r.each(func(b *bench, s *samples, f figures) {
		generates := s.Cell.Test == generating
		note := func(who string, speed float64) {
			if share := s.share(&b.Work, r.ceiling(b.products()), speed); share > mostShare {
				list = append(list, fault{generates, fmt.Sprintf("%s, %s %v: %.0f %%", who, b.name(), s.Cell, 100*share)})
			}
		}
		note("smelt", f.Smelt)
		if generates && r.Peer != nil {
			note(r.Peer.Name, f.Peer)
		}
		if generates && r.Fork != nil {
			note(r.Fork.Name, f.Fork)
		}
	})
	return list
}

// ratio returns x/y, 0 without a y to compare with.
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

// each calls see with the figures of every cell.
func (r *report) each(see func(b *bench, s *samples, f figures)) {
	for i := range r.Models {
		b := &r.Models[i]
		for j := range b.Cells {
			if s := &b.Cells[j]; len(s.Pairs) > 0 {
				see(b, s, s.figures(&b.Work, r.ceiling(b.products()), r.Pairs))
			}
		}
	}
}

// mean returns the geometric mean over all cells; 0 without any.
func (r *report) mean(of func(f *figures) float64) float64 {
	var ratios []float64
	r.each(func(_ *bench, _ *samples, f figures) { ratios = append(ratios, of(&f)) })
	return geometric(ratios)
}

func toPeer(f *figures) float64 { return f.Ratio }
func toFork(f *figures) float64 { return f.ForkRatio }
func toBest(f *figures) float64 { return f.best() }

func geometric(ratios []float64) float64 {
	if len(ratios) == 0 {
		return 0
	}
	var sum float64
	for _, x := range ratios {
		sum += math.Log(x)
	}
	return math.Exp(sum / float64(len(ratios)))
}

// reads returns the median of the bandwidths probed beside the samples.
func (r *report) reads() float64 {
	var reads []float64
	r.each(func(_ *bench, s *samples, _ figures) {
		for i := range s.Pairs {
			reads = append(reads, s.Pairs[i].Read)
		}
	})
	if len(reads) == 0 {
		return 0
	}
	return stats.Median(reads)
}
