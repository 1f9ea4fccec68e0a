package plan

import "math"

// A class is counters that are incremented alike.
type class struct {
	counters float64 // how many they are
	share    float64 // of all increments that each of them gets
}

// classes are the counters of a load, those incremented most first. In proportion to
// 1/rank^s; s = 0 is uniform.
//
// The first ranks are classes of their own, later ones are taken together while their
// shares differ by a fiftieth at most: some 800 classes for a million counters, at a loss
// below a thousandth.
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

// integral is that of x^-s from a to b: by the midpoint rule, the sum of the whole numbers
// between.
func integral(a, b, s float64) float64 {
	if s == 1 {
		return math.Log(b / a)
	}
	return (math.Pow(b, 1-s) - math.Pow(a, 1-s)) / (1 - s)
}

// drawn is how likely a counter that gets a share of all increments is among n of them:
// 1 - (1-share)^n.
func drawn(share, n float64) float64 {
	if n == 0 {
		return 0
	}
	return -math.Expm1(n * math.Log1p(-share))
}

// distinct is how many different counters n increments have, and how far that strays
// (its standard deviation, at most: draws that are independent of each other).
func distinct(of []class, n float64) (mean, stray float64) {
	variance := 0.0
	for _, c := range of {
		q := drawn(c.share, n)
		mean += c.counters * q
		variance += c.counters * q * (1 - q)
	}
	return mean, math.Sqrt(variance)
}

// pieces is how many pieces of at most size something has that counts mean on average and
// strays from it: the mean of the next whole number, the sum over k of how likely more
// than k pieces are needed.
func pieces(mean, stray, size float64) float64 {
	if mean <= 0 {
		return 0
	}
	certain := max(math.Floor((mean-6*stray-1)/size), 1) // so many are needed, certainly
	n := certain
	for k := certain; k*size < mean+6*stray+1; k++ {
		n += above(k*size+0.5, mean, stray)
	}
	return n
}

// above is how likely a normal variable is above x.
func above(x, mean, stray float64) float64 {
	if stray < 1e-9 {
		if mean > x {
			return 1
		}
		return 0
	}
	return math.Erfc((x-mean)/(stray*math.Sqrt2)) / 2
}
