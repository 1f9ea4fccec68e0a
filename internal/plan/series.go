package plan

import (
	"math"

	"github.com/countmill/countmill/store"
)

const (
	minutesOfDay = 24 * 60
	secondsOfDay = 86_400
)

// entities is a number of entities a second.
type entities struct{ written, read, deleted float64 }

// series is the cost of series beside their folds, if the busiest counters have a rule. commits is the
// number of a counter's commits a second, by class, and shards the number of its shards.
//
// A fold writes no further entity: it adds its minute to a bucket in the shard. When a shard has more
// than store.SeriesBuckets, a move reads and writes the shard, and writes each day that its buckets are
// of. Sweeps read a day twice: they write it once, when its minutes are joined, and delete it in the
// end. The plan is of the steady state, after weeks: a new counter that is seldom folded has no moves
// for as long.
func (l Load) series(of []class, commits, shards []float64) (e entities) {
	left := float64(l.Series)
	for i, c := range of {
		n := min(c.counters, left)
		left -= n
		each := commits[i] / shards[i]
		minutes := minutesOfDay * happens(60*each)
		moves := minutes / (store.SeriesBuckets + 1)
		// A shard's days are written once, and once more for each move that ends within a day.
		days := happens(secondsOfDay * each)
		archived := days + (minutes-days)/(store.SeriesBuckets+1)
		swept := happens(secondsOfDay * commits[i])
		e.written += n * (shards[i]*(moves+archived) + swept) / secondsOfDay
		e.read += n * (shards[i]*moves + 2*swept) / secondsOfDay
		e.deleted += n * swept / secondsOfDay
	}
	return e
}

// happens is the probability that independent events come at all, if mean are expected.
func happens(mean float64) float64 { return -math.Expm1(-mean) }
