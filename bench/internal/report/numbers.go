package report

import (
	"fmt"
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
