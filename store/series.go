package store

import (
	"context"
	"time"

	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// QuarterMinutes and DayMinutes are the minutes of a quarter hour and of a day in UTC.
const (
	QuarterMinutes = 15
	DayMinutes     = 24 * 60
)

// A BucketDelta adds Delta plus Upper times 2^64 to a minute of the series of an add's counter.
type BucketDelta struct {
	Add    int         // the position of the counter's add in Commit.Adds
	Minute wire.Minute // of event time
	Delta  int64
	Upper  int64 // 0 for a sum that fits Delta
}

// Sum is the number that is added to the minute; never 0.
func (d *BucketDelta) Sum() int128.Int { return int128.OfHalves(d.Delta, d.Upper) }

// A Bucket is the sum of a minute or of a quarter hour in a counter's series.
type Bucket struct {
	Minute wire.Minute // the first
	// Quarter is true for a quarter hour. Its sum has the minutes that were joined to it; a minute
	// that is not joined yet has a bucket of its own.
	Quarter bool
	Sum     int128.Int
}

// A Ring is how a store keeps the newest buckets of a series: in the shards of the counter, at no
// further entity. MoveSeries takes them from there to an archive.
type Ring struct {
	// Buckets is the most buckets of a shard: MoveSeries empties a shard that has more.
	Buckets int
	// Window is how old a bucket may be that a fold adds to the shard. A fold adds older ones to the
	// archive.
	Window time.Duration
	// Minutes is the most different minutes of one commit.
	Minutes int
}

// Archive is Commit.Archive at the time now; 0 without a ring.
func (r Ring) Archive(now time.Time) wire.Minute {
	if r.Window == 0 {
		return 0
	}
	return wire.MinuteOf(now.Add(-r.Window))
}

// QuarterOf returns the first minute of the quarter hour of m.
func QuarterOf(m wire.Minute) wire.Minute { return m - m%QuarterMinutes }

// Series keeps sums over time. Concurrent calls are allowed.
type Series interface {
	// MoveSeries empties shards with more than Limits.Ring.Buckets buckets into the archive, and
	// returns how many. It may look only at shards that this process has folded to. A sum is in
	// exactly one place at every moment, also beside folds and other calls. A shard that was not
	// moved, because of an error, stays as it was; repeat the call. Without a ring it does nothing.
	MoveSeries(ctx context.Context) (moved int, err error)

	// SweepSeries joins minutes to quarter hours and removes quarter hours, when the retention of
	// their counters (Rules.KeepOf) is over by SeriesSlack or more. A sum is in exactly one bucket
	// at every moment, also beside folds. A counter without any rule loses its series. After an
	// error some sums may be swept; repeat the call.
	SweepSeries(ctx context.Context) error
}
