package budget

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/countmill/countmill/bench/internal/load"
)

// mostAdds is about the number of increments of a load. It determines how long a run takes.
const mostAdds = 15_000

// A deployment is a drawn load.
type deployment struct {
	seed                              uint64
	budget, lasts                     time.Duration
	publishers, aggregators, counters int
	zipf                              bool
	rate                              float64 // increments a second, at first
	publish, deliver, commit          delay
	steps, spikes                     []phase // of the rate
	skew                              []time.Duration
	adds                              [][]add // of each publisher, in order
}

// An add is one increment.
type add struct {
	at      time.Duration
	counter uint32
}

// A delay is the distribution of a call's time: a median, and a spread around it.
type delay struct {
	median time.Duration
	slow   phase
}

// spread is the standard deviation of the logarithm: one call of a hundred takes three times the
// median.
const spread = 0.5

func (d delay) draw(r *rand.Rand, at time.Duration) time.Duration {
	return time.Duration(float64(d.median) * math.Exp(spread*r.NormFloat64()) * d.slow.factor(at))
}

// A phase is a period with another rate, or other latencies.
type phase struct {
	from, to time.Duration
	times    float64
}

func (p phase) factor(at time.Duration) float64 {
	if at < p.from || at >= p.to {
		return 1
	}
	return p.times
}

// draw makes a load from a seed.
func draw(seed uint64) *deployment {
	r := rand.New(rand.NewPCG(seed, 0x6c6f6164))
	d := &deployment{seed: seed, budget: time.Second}
	if r.IntN(2) == 0 {
		d.budget = time.Duration(logUniform(r, 0.5, 5) * float64(time.Second))
	}
	d.lasts = min(max(20*d.budget, 20*time.Second), time.Minute)
	d.publishers, d.aggregators = int(logUniform(r, 1, 60)), 1+r.IntN(3)
	d.counters, d.zipf = int(logUniform(r, 1, 3000)), r.IntN(2) == 0
	d.rate = logUniform(r, 20, mostAdds/d.lasts.Seconds())

	short := min(1, d.budget.Seconds()) // with a short budget the services are faster too: it must be possible
	d.publish.median, d.deliver.median = milliseconds(r, 3*short, 20*short), milliseconds(r, 3*short, 25*short)
	d.commit.median = milliseconds(r, 5*short, 40*short)
	for _, slows := range []*delay{&d.publish, &d.commit} {
		if r.IntN(3) == 0 {
			slows.slow = d.phase(r, 0.05, 0.2, 1.5, 4)
		}
	}
	if r.IntN(3) > 0 {
		for range 1 + r.IntN(3) {
			d.steps = append(d.steps, d.phase(r, 0.1, 0.5, 0.1, 5))
		}
	}
	if r.IntN(3) > 0 {
		for range 1 + r.IntN(3) {
			d.spikes = append(d.spikes, d.phase(r, 0.01, 0.03, 5, 20))
		}
	}
	for range d.publishers {
		d.skew = append(d.skew, time.Duration(r.NormFloat64()*5*float64(time.Millisecond)))
	}
	d.fill(r)
	return d
}

func logUniform(r *rand.Rand, from, to float64) float64 {
	return from * math.Exp(r.Float64()*math.Log(to/from))
}

func milliseconds(r *rand.Rand, from, to float64) time.Duration {
	return time.Duration(logUniform(r, from, to) * float64(time.Millisecond))
}

// phase draws a part of the load's time.
func (d *deployment) phase(r *rand.Rand, shortest, longest, least, most float64) phase {
	long := time.Duration((shortest + r.Float64()*(longest-shortest)) * float64(d.lasts))
	from := time.Duration(r.Int64N(int64(d.lasts - long)))
	return phase{from, from + long, logUniform(r, least, most)}
}

func (d *deployment) rateAt(at time.Duration) float64 {
	rate := d.rate
	for _, p := range slices.Concat(d.steps, d.spikes) {
		rate *= p.factor(at)
	}
	return rate
}

// fill draws the increments. Some publishers are busier than others.
func (d *deployment) fill(r *rand.Rand) {
	weights, sum := make([]float64, d.publishers), 0.0
	for i := range weights {
		sum += 0.2 + r.ExpFloat64()
		weights[i] = sum
	}
	counter := func() uint32 { return uint32(r.IntN(d.counters)) }
	if d.zipf && d.counters > 1 {
		counter = load.Zipf(r, d.counters)
	}
	d.adds = make([][]add, d.publishers)
	for at, n := time.Duration(0), 0; n < 2*mostAdds; n++ {
		at += time.Duration(r.ExpFloat64() / d.rateAt(at) * float64(time.Second))
		if at >= d.lasts {
			break
		}
		i, _ := slices.BinarySearchFunc(weights, r.Float64()*sum, func(w, x float64) int { return cmp.Compare(w, x) })
		d.adds[i] = append(d.adds[i], add{at, counter()})
	}
}

func (d *deployment) increments() (n int) {
	for _, adds := range d.adds {
		n += len(adds)
	}
	return n
}

func (d *deployment) String() string {
	of := "uniform"
	if d.zipf {
		of = "Zipf"
	}
	return fmt.Sprintf("load %d: %s, %d publishers, %d aggregators, %d counters %s, %d increments in %s, bus %s+%s x%.1f, store %s x%.1f",
		d.seed, d.budget.Round(time.Millisecond), d.publishers, d.aggregators, d.counters, of, d.increments(), d.lasts.Round(time.Second),
		d.publish.median.Round(time.Millisecond), d.deliver.median.Round(time.Millisecond), max(1, d.publish.slow.times),
		d.commit.median.Round(time.Millisecond), max(1, d.commit.slow.times))
}
