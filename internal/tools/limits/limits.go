package limits

import (
	"sync"
	"time"
)

// CPU holds the limits of all threads of this machine together. A figure that this build cannot
// measure is zero.
type CPU struct {
	ReadGBs    float64 // 10⁹ bytes read from memory per second
	F32GOPs    float64 // 10⁹ float operations per second
	Int8GOPs   float64 // 10⁹ operations per second on products of bytes, summed in 32 bits
	NibbleGOPs float64 // the same where one factor of each product is below 16: higher on AVX2, elsewhere Int8GOPs
}

const (
	bufferBytes = 256 << 20 // beyond the last cache of most machines; per page size
	trials      = 5
	rounds      = 1 << 20 // of the chains in a trial: milliseconds
	peakTrials  = 40      // of the chains: a neighbour's load outlasts only a few
)

// Probe measures with the given number of threads. The peaks are those of the instruction set
// with that name in package native, or zero where this build has no probe for it. The processor
// must have the instruction set.
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

// chains runs n rounds of multiply-adds and returns the number of operations.
type chains func(n int64) int64

// peaks are the chains of an instruction set; nil where it has none.
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

// best returns the highest rate of work, 10⁹ per second, over several trials after one to warm
// up.
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

// together runs a function on all threads and returns the time from the first start to the last
// end.
func together(threads int, run func(i int)) time.Duration {
	var wait sync.WaitGroup
	start := time.Now()
	for i := range threads {
		wait.Go(func() { run(i) })
	}
	wait.Wait()
	return time.Since(start)
}
