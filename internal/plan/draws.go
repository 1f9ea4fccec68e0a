package plan

import "math"

// A class is a set of counters with the same rate of increments.
type class struct {
	counters float64 // number of counters
	share    float64 // share of all increments, for each counter
}

// classes returns the counters of a load, most busy first. The counter of rank k gets increments
// in proportion to 1/k^s (Zipf's law); s = 0 is uniform.
//
// Each of the first ranks is a class. Later ranks are combined while their shares differ by at
// most a fiftieth. A million counters make some 800 classes, with an error below a thousandth.
func classes(counters int64, s float64) []class {
	if s == 0 {
		return []class{{float64(counters), 1 / float64(counters)}}
	}
	const exact, ratio = 100, 1.02
	var all []class
	total := 0.0
	for first := int64(1); first <= counters; {
		last := first
		if first > exact {
			last = min(int64(float64(first)*math.Pow(ratio, 1/s)), counters)
		}
		n := float64(last - first + 1)
		weight := math.Pow(float64(first), -s)
		if last > first {
			weight = integral(float64(first)-0.5, float64(last)+0.5, s) / n
		}
		all = append(all, class{n, weight})
		total += n * weight
		first = last + 1
	}
	for i := range all {
		all[i].share /= total
	}
	return all
}

// integral is the integral of x^-s from a to b. By the midpoint rule it approximates the sum over
// the whole numbers in between.
func integral(a, b, s float64) float64 {
	if s == 1 {
		return math.Log(b / a)
	}
	return (math.Pow(b, 1-s) - math.Pow(a, 1-s)) / (1 - s)
}

// drawn is the probability that a counter with this share of all increments is among n
// increments: 1 - (1-share)^n.
func drawn(share, n float64) float64 {
	if n == 0 {
		return 0
	}
	return -math.Expm1(n * math.Log1p(-share))
}

// distinct is the expected number of distinct counters of n increments, and an upper bound of its
// standard deviation, by independent draws.
func distinct(of []class, n float64) (mean, stray float64) {
	variance := 0.0
	for _, c := range of {
		q := drawn(c.share, n)
		mean += c.counters * q
		variance += c.counters * q * (1 - q)
	}
	return mean, math.Sqrt(variance)
}

// ranges is the expected number of ranges of at most size, for a normally distributed total with
// that mean and standard deviation (stray). It is the sum over k of the probability that more
// than k ranges are needed.
func ranges(mean, stray, size float64) float64 {
	if mean <= 0 {
		return 0
	}
	certain := max(math.Floor((mean-6*stray-1)/size), 1) // so many are certainly needed
	n := certain
	for k := certain; k*size < mean+6*stray+1; k++ {
		n += above(k*size+0.5, mean, stray)
	}
	return n
}

// above is the probability that a normal variable is above x.
func above(x, mean, stray float64) float64 {
	if stray < 1e-9 {
		if mean > x {
			return 1
		}
		return 0
	}
	return math.Erfc((x-mean)/(stray*math.Sqrt2)) / 2
}
