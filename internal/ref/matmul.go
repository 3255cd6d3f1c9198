package ref

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// dot returns Σ x·y, accumulated in four interleaved sums.
func dot(x, y []float64) float64 {
	y = y[:len(x)]
	var s0, s1, s2, s3 float64
	i := 0
	for ; i+4 <= len(x); i += 4 {
		s0 += x[i] * y[i]
		s1 += x[i+1] * y[i+1]
		s2 += x[i+2] * y[i+2]
		s3 += x[i+3] * y[i+3]
	}
	for ; i < len(x); i++ {
		s0 += x[i] * y[i]
	}
	return s0 + s1 + (s2 + s3)
}

// addScaled adds factor·x to y.
func addScaled(y []float64, factor float64, x []float64) {
	x = x[:len(y)]
	for i := range y {
		y[i] += factor * x[i]
	}
}

// product2D writes x·wᵀ, [rows,n], from the given column of out on, whose rows have `width`
// elements: x is [rows,k], w is [n,k].
func product2D(out []float64, width, column int, x []float64, rows int, w []float64, n, k int) {
	const strip = 64 // rows of w that stay in cache for all rows of x
	parallel((n+strip-1)/strip, rows*strip*k, func(s int) {
		for t := range rows {
			xs := x[t*k : (t+1)*k]
			to := out[t*width+column:]
			for i := s * strip; i < min(n, (s+1)*strip); i++ {
				to[i] = dot(xs, w[i*k:(i+1)*k])
			}
		}
	})
}

// parallel calls work for each i below n, on several goroutines if the cost of one call, in
// multiplications, justifies them.
func parallel(n, cost int, work func(i int)) {
	workers := min(runtime.GOMAXPROCS(0), n)
	if workers < 2 || n*cost < 1<<16 {
		for i := range n {
			work(i)
		}
		return
	}
	var next atomic.Int64
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for i := next.Add(1) - 1; int(i) < n; i = next.Add(1) - 1 {
				work(int(i))
			}
		})
	}
	group.Wait()
}
