package limits

import (
	"sync"
	"time"
)

// CPU is what the threads of this machine do together at most. What was not measured,
// for want of code, is zero.
type CPU struct {
	ReadGBs    float64 // bytes read from memory, 10⁹ a second
	F32GOPs    float64 // operations on floats, 10⁹ a second
	Int8GOPs   float64 // operations on products of bytes, summed in 32 bits
	NibbleGOPs float64 // the same where one of each two bytes is below 16: more on AVX2, elsewhere Int8GOPs
}

const (
	bufferBytes = 256 << 20 // beyond the last cache of most machines, for each size of pages
	trials      = 5
	rounds      = 1 << 20 // of the chains, in a trial: milliseconds
	peakTrials  = 40      // of the chains: what a neighbour takes lasts longer than a few of them
)

// Probe measures with so many threads. The peaks are those of an instruction set by
// package native's name for it; they are zero for one that has no probe here, or that
// this build was not made for. The processor must have it.
func Probe(isa string, threads int) CPU {
	threads = max(threads, 1)
	r := NewReader(bufferBytes, threads)
	defer r.Close()
	c := CPU{ReadGBs: r.GBs(trials)}
	peaks := peaksOf(isa)
	c.F32GOPs = peak(peaks.f32, threads)
	c.Int8GOPs = peak(peaks.int8, threads)
	c.NibbleGOPs = max(c.Int8GOPs, peak(peaks.nibbles, threads))
	return c
}

// chains runs n rounds of multiply-adds and returns the operations done.
type chains func(n int64) int64

// peaks are an instruction set's chains; nil where there are none.
type peaks struct{ f32, int8, nibbles chains }

func peak(run chains, threads int) float64 {
	if run == nil {
		return 0
	}
	done := make([]int64, threads)
	return best(peakTrials, threads, func(i int) { done[i] = run(rounds) }, func() int64 {
		var sum int64
		for _, n := range done {
			sum += n
		}
		return sum
	})
}

// best returns the highest rate of work in 10⁹ a second, of a few trials and one to
// warm up.
func best(trials, threads int, run func(i int), work func() int64) float64 {
	var rate float64
	for trial := range trials + 1 {
		elapsed := together(threads, run)
		if trial > 0 {
			rate = max(rate, float64(work())/float64(max(elapsed.Nanoseconds(), 1)))
		}
	}
	return rate
}

// together runs a function on all threads and returns the time from the first's start
// to the last's end.
func together(threads int, run func(i int)) time.Duration {
	var wait sync.WaitGroup
	start := time.Now()
	for i := range threads {
		wait.Go(func() { run(i) })
	}
	wait.Wait()
	return time.Since(start)
}
