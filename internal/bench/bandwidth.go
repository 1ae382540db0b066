package bench

import (
	"cmp"
	"runtime"
	"sync"
	"time"
)

// Bandwidth is the memory bandwidth of this machine in bytes per second, as n threads reach it together.
type Bandwidth struct {
	Read  float64 `json:"read"`  // sums up large arrays: what decoding does with weights
	Triad float64 `json:"triad"` // a = b + s·c, counted as three streams; 0 where it was not measured
}

// MeasureBandwidth takes the best of several passes over arrays far larger than the caches. 0 threads: all cores.
func MeasureBandwidth(threads int) Bandwidth {
	threads = cmp.Or(threads, runtime.GOMAXPROCS(0))
	const words = 24 << 20 // 192 MiB for each array and thread
	type arrays struct{ a, b, c []float64 }
	own := make([]arrays, threads)
	parallel(threads, func(i int) {
		own[i] = arrays{make([]float64, words), make([]float64, words), make([]float64, words)}
		for j := range words { // touched by its own thread, so that the pages are there
			own[i].a[j], own[i].b[j], own[i].c[j] = 1, 2, 3
		}
	})
	var best Bandwidth
	for range 5 {
		read := parallel(threads, func(i int) { sum(own[i].b) })
		best.Read = max(best.Read, float64(threads*words*8)/read.Seconds())
		triad := parallel(threads, func(i int) { addScaled(own[i].a, own[i].b, own[i].c, 3) })
		best.Triad = max(best.Triad, float64(threads*words*24)/triad.Seconds())
	}
	return best
}

// parallel runs f on n goroutines and returns the time until all are done.
func parallel(n int, f func(i int)) time.Duration {
	var all sync.WaitGroup
	began := time.Now()
	for i := range n {
		all.Go(func() { f(i) })
	}
	all.Wait()
	return time.Since(began)
}

func sum(x []float64) {
	var a, b, c, d, e, f, g, h float64 // independent, so that only memory limits the pace
	for ; len(x) >= 8; x = x[8:] {
		a += x[0]
		b += x[1]
		c += x[2]
		d += x[3]
		e += x[4]
		f += x[5]
		g += x[6]
		h += x[7]
	}
	runtime.KeepAlive(a + b + c + d + e + f + g + h) // so that the compiler does not drop the work
}

func addScaled(a, b, c []float64, s float64) {
	b, c = b[:len(a)], c[:len(a)]
	for i := range a {
		a[i] = b[i] + s*c[i]
	}
}
