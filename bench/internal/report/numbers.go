package report

import (
	"fmt"
	"math"
	"slices"
)

// Median is the middle of the numbers. There must be at least one.
func Median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	if n := len(all); n%2 == 0 {
		return (all[n/2-1] + all[n/2]) / 2
	}
	return all[len(all)/2]
}

// Interval is a 95 % confidence interval of the median, for any distribution. Its ends are two of the
// numbers, because the count of numbers below the median is binomial. ok is false for fewer than 6
// numbers.
func Interval(all []float64) (low, high float64, ok bool) {
	all = slices.Sorted(slices.Values(all))
	n, out := len(all), -1
	below, chance := 0.0, math.Pow(0.5, float64(n)) // chance that out+1 numbers are below the median
	for below+chance <= 0.025 {
		out++
		below += chance
		chance *= float64(n-out) / float64(out+1)
	}
	if out < 0 {
		return 0, 0, false
	}
	return all[out], all[n-1-out], true
}

// Spread writes the median with the least and the most.
func Spread(all []float64, format func(float64) string) string {
	if len(all) == 1 {
		return format(all[0])
	}
	return fmt.Sprintf("%s (%s to %s)", format(Median(all)), format(slices.Min(all)), format(slices.Max(all)))
}

// Short writes a number with three significant digits.
func Short(x float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if x >= unit.size {
			return fmt.Sprintf("%.3g%s", x/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%.3g", x)
}
