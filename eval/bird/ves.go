package bird

import (
	"errors"
	"math"
)

// errNoSpread is what ends the official scripts when every measured ratio is the same: all are outside 3 standard
// deviations of 0, and the mean of none is a division by zero. The question then counts 0.
var errNoSpread = errors.New("all time ratios are equal, so the official script throws every one out and divides by zero")

// timeRatio is the mean of gold time over prediction time across iterations, of those strictly inside three standard
// deviations of their mean (evaluation_ves.py, clean_abnormal and iterated_execute_sql).
func timeRatio(predSeconds, goldSeconds []float64) (float64, error) {
	ratios := make([]float64, len(predSeconds))
	for i := range ratios {
		ratios[i] = goldSeconds[i] / predSeconds[i]
	}
	mean := pairwiseSum(ratios) / float64(len(ratios))
	squares := make([]float64, len(ratios))
	for i, r := range ratios {
		squares[i] = (r - mean) * (r - mean)
	}
	deviation := math.Sqrt(pairwiseSum(squares) / float64(len(ratios)))
	var sum float64
	kept := 0
	for _, r := range ratios {
		if r < mean+3*deviation && r > mean-3*deviation {
			sum += r
			kept++
		}
	}
	if kept == 0 {
		return 0, errNoSpread
	}
	return sum / float64(kept), nil
}

// reward is R-VES's step function of a time ratio (mini-dev's evaluation_ves.py).
func reward(ratio float64) float64 {
	switch {
	case ratio == 0:
		return 0
	case ratio >= 2:
		return 1.25
	case ratio >= 1:
		return 1
	case ratio >= 0.5:
		return 0.75
	case ratio >= 0.25:
		return 0.5
	}
	return 0.25
}

// pairwiseSum adds in the order numpy does, so that ratios that are equal but for rounding have the same deviation: eight
// partial sums in blocks of at most 128, halves above that.
func pairwiseSum(x []float64) float64 {
	const block = 128
	switch n := len(x); {
	case n < 8:
		var sum float64
		for _, v := range x {
			sum += v
		}
		return sum
	case n <= block:
		var r [8]float64
		copy(r[:], x)
		i := 8
		for ; i+8 <= n; i += 8 {
			for j := range r {
				r[j] += x[i+j]
			}
		}
		sum := ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]))
		for ; i < n; i++ {
			sum += x[i]
		}
		return sum
	default:
		half := n / 2
		half -= half % 8
		return pairwiseSum(x[:half]) + pairwiseSum(x[half:])
	}
}
