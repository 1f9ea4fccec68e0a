package store

import (
	"context"

	"github.com/countmill/countmill/wire"
)

// QuarterMinutes and DayMinutes are the minutes of a quarter hour and of a day in UTC.
const (
	QuarterMinutes = 15
	DayMinutes     = 24 * 60
)

// A BucketDelta adds Delta to a minute of the series of an add's counter.
type BucketDelta struct {
	Add    int         // the position of the counter's add in Commit.Adds
	Minute wire.Minute // of event time
	Delta  int64       // never 0
}

// A Bucket is the sum of a minute or of a quarter hour in a counter's series.
type Bucket struct {
	Minute wire.Minute // the first
	// Quarter is true for a quarter hour. Its sum has the minutes that were joined to it; a minute
	// that is not joined yet has a bucket of its own.
	Quarter bool
	Sum     int64
	// Overflow means that the sum does not fit int64.
	Overflow bool
}

// QuarterOf returns the first minute of the quarter hour of m.
func QuarterOf(m wire.Minute) wire.Minute { return m - m%QuarterMinutes }

// Series keeps sums over time where Limits.Series is true. Concurrent calls are allowed.
type Series interface {
	// SweepSeries joins minutes to quarter hours and removes quarter hours, when the retention of
	// their counters (Rules.KeepOf) is over by SeriesSlack or more. A sum is in exactly one bucket
	// at every moment, also beside folds. A counter without any rule loses its series. After an
	// error some sums may be swept; repeat the call.
	SweepSeries(ctx context.Context) error
}
