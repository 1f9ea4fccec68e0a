package plan

import (
	"math"
	"time"

	"github.com/countmill/countmill/store"
)

// Constants of aggregator, reader and backend/datastore.
const (
	recordsFor     = float64(store.RememberFor / time.Second)
	recordsKept    = 1_500_000 // records in memory: between one and two halves of Remember
	heartbeatEvery = 5.0       // seconds; each aggregator writes its worker record
	lagEvery       = 5.0       // seconds; each reader reads all worker records
	refreshPart    = 0.8       // part of a total's permitted age after which it is read again
	cachedAtMost   = time.Minute
	secondsOfMonth = 30 * 24 * 3600.0
)

// records is the number of counters' records that the aggregators read in a second. Each record
// is read again at the first fold after an hour, or earlier if there are more counters than are
// remembered. folds is the number of folds a second of a counter of each class, by one
// aggregator.
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

// forgotten is the rate of folds of a counter whose record was forgotten since its last fold.
func forgotten(folds, kept float64) float64 {
	if kept >= recordsFor*0.999 {
		return 0
	}
	return folds * math.Exp(-folds*kept)
}

// watched is the number of counters of each class that are read in a second for the watchers of
// prefixes, for the busiest counters first. Their list, every ten seconds, replaces a read and
// costs as much.
func (l Load) watched(of []class) []float64 {
	reads := make([]float64, len(of))
	left := float64(l.Watched)
	for i, c := range of {
		n := min(c.counters, left)
		reads[i] = n * float64(l.Readers)
		left -= n
	}
	return reads
}

// served is the number of counters of each class that are read from the store in a second to
// serve totals, for the busiest counters first.
//
// The first request after four fifths of a total's permitted age reads it again. Each reader
// without a common cache does that separately.
func (l Load) served(of []class) []float64 {
	reads := make([]float64, len(of))
	asked := float64(l.Asked)
	if asked == 0 {
		asked = float64(l.Counters)
	}
	if l.Totals == 0 {
		return reads
	}
	questions := l.Totals / asked / float64(l.Readers) // a second, of one counter, to one reader
	staleness := min(l.MaxStaleness, cachedAtMost).Seconds()
	each := float64(l.Readers) / (refreshPart*staleness + 1/questions)
	for i, c := range of {
		n := min(c.counters, asked)
		reads[i] = n * each
		asked -= n
	}
	return reads
}
