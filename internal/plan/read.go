package plan

import (
	"math"
	"time"

	"github.com/countmill/countmill/store"
)

// Of aggregator, reader and backend/datastore.
const (
	recordsFor     = float64(store.RememberFor / time.Second)
	recordsKept    = 1_500_000 // of them in memory: between one and two halves of Remember
	heartbeatEvery = 5.0       // seconds; a record of its own that each aggregator writes
	lagEvery       = 5.0       // seconds; when each reader reads all of those
	refreshPart    = 0.8       // of a total's permitted age, after which it is read again
	cachedAtMost   = time.Minute
	secondsOfMonth = 30 * 24 * 3600.0
)

// records is how many records of counters the aggregators read a second: each again an
// hour after it was read, when its counter is folded the next time; sooner where there are
// more counters than are remembered. folds is how often an aggregator folds a counter of
// each class.
func records(of []class, folds []float64, aggregators float64) float64 {
	seen := func(seconds float64) float64 {
		n := 0.0
		for i, c := range of {
			n -= c.counters * math.Expm1(-folds[i]*seconds)
		}
		return n
	}
	kept := bisect(0, recordsFor, func(seconds float64) bool { return seen(seconds) >= recordsKept })
	reads := 0.0
	for i, c := range of {
		if folds[i] > 0 {
			reads += c.counters * max(1/(recordsFor+1/folds[i]), forgotten(folds[i], kept))
		}
	}
	return aggregators * reads
}

// forgotten is how often a counter is folded that was last folded too long ago.
func forgotten(folds, kept float64) float64 {
	if kept >= recordsFor*0.999 {
		return 0
	}
	return folds * math.Exp(-folds*kept)
}

// served is how many counters of each class are read from the store a second to serve the
// totals, those that are incremented most first.
//
// A total is read again by the first who asks when it has used up four fifths of its
// permitted age. Readers without a common cache do that each for itself.
func (l Load) served(of []class) []float64 {
	reads := make([]float64, len(of))
	asked := float64(l.Asked)
	if asked == 0 {
		asked = float64(l.Counters)
	}
	if l.Totals == 0 {
		return reads
	}
	questions := l.Totals / asked / float64(l.Readers) // of one counter, to one reader
	staleness := min(l.MaxStaleness, cachedAtMost).Seconds()
	each := float64(l.Readers) / (refreshPart*staleness + 1/questions)
	for i, c := range of {
		n := min(c.counters, asked)
		reads[i] = n * each
		asked -= n
	}
	return reads
}
