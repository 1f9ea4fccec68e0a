package plan

import (
	"errors"
	"fmt"
	"time"

	"github.com/countmill/countmill"
)

// A Load is the load to be planned for and the setup of the deployment. Defaults returns
// countmill's own defaults.
type Load struct {
	Rate       float64 // increments a second
	Counters   int64
	Zipf       float64 // the counter of rank k gets increments in proportion to 1/k^Zipf; 0: uniform
	IDs        float64 // share of increments with ids, from 0 to 1
	NameBytes  int     // length of a counter's name
	Publishers int

	Linger, Window time.Duration // of publishers' batches, and of aggregators' windows
	CountWithin    time.Duration // age up to which an increment should be counted; 0: the lingers decide
	Aggregators    int           // 0: as many as needed
	CommitTime     time.Duration // duration of a commit
	DedupWindow    time.Duration

	StartShards int     // of a new counter
	MaxShards   int     // of a counter, at most
	ShardRate   float64 // commits a second that a shard sustains

	Totals       float64 // served a second
	Asked        int64   // number of busiest counters whose totals are requested; 0: all
	MaxStaleness time.Duration
	Readers      int   // with a cache each; readers that share memcached count as one
	Watched      int64 // counters that every reader reads once a second, as somebody watches their prefix; the busiest ones

	Series int64 // counters under a rule for series; the busiest ones

	BoardRate     float64 // entities a second that each reader's scans for leaderboards read, while somebody asks for one
	BoardCounters int64   // counters of the index of a leaderboard, the busiest ones; 0: all
	BoardDays     int64   // days of UTC in which the leaderboard's window is; 0: it orders totals

	Groups        int64 // of an index, that get increments; 0: there is no index
	IndexCounters int64 // counters of the index, the busiest ones; 0: all

	Prices Prices
}

// Defaults returns the defaults of countmill on Datastore. CommitTime is a guess: a commit of 400
// entities on a multi-region database has not been measured.
func Defaults() Load {
	return Load{
		Counters: 1, Publishers: 1, NameBytes: 20,
		Linger: 250 * time.Millisecond, Window: 100 * time.Millisecond,
		CommitTime: 50 * time.Millisecond, DedupWindow: countmill.DefaultDedupWindow,
		StartShards: 1, MaxShards: 128, ShardRate: 1,
		MaxStaleness: 2 * time.Second, Readers: 1,
		Prices: DefaultPrices(),
	}
}

// A FieldError names a field of a Load that is out of range, by its flag.
type FieldError struct{ Field, Limit, Got string }

func (e *FieldError) Error() string {
	return fmt.Sprintf("--%s: must be %s, got %s", e.Field, e.Limit, e.Got)
}

// Check returns all fields that are out of range, each as a FieldError.
func (l Load) Check() error {
	var errs []error
	check := func(ok bool, field, limit string, got any) {
		if !ok {
			errs = append(errs, &FieldError{field, limit, fmt.Sprint(got)})
		}
	}
	between := func(field string, got, least, most float64) {
		check(got >= least && got <= most, field, fmt.Sprintf("from %g to %g", least, most), got)
	}
	lasting := func(field string, got, least, most time.Duration) {
		check(got >= least && got <= most, field, fmt.Sprintf("from %s to %s", least, most), got)
	}
	between("rate", l.Rate, 1e-3, 1e10)
	between("counters", float64(l.Counters), 1, 1e10)
	between("zipf", l.Zipf, 0, 10)
	between("ids", l.IDs, 0, 1)
	between("name-bytes", float64(l.NameBytes), 1, 500)
	between("publishers", float64(l.Publishers), 1, 1e6)
	between("aggregators", float64(l.Aggregators), 0, 1e5)
	between("readers", float64(l.Readers), 1, 1e5)
	between("shard-rate", l.ShardRate, 1e-3, 1e4)
	between("totals", l.Totals, 0, 1e10)
	between("asked", float64(l.Asked), 0, float64(l.Counters))
	between("watched", float64(l.Watched), 0, float64(l.Counters))
	between("series-counters", float64(l.Series), 0, float64(l.Counters))
	between("board-rate", l.BoardRate, 0, 1e6)
	between("board-counters", float64(l.BoardCounters), 0, float64(l.Counters))
	between("board-days", float64(l.BoardDays), 0, mostBoardDays)
	between("index-counters", float64(l.IndexCounters), 0, float64(l.Counters))
	between("groups", float64(l.Groups), 0, matched(l.IndexCounters, l.Counters))
	check(l.CountWithin == 0 || l.CountWithin >= minStaleness && l.CountWithin <= maxStaleness, "count-within", fmt.Sprintf("from %s to %s, or 0s", minStaleness, maxStaleness), l.CountWithin)
	lasting("commit-time", l.CommitTime, time.Millisecond, 10*time.Second)
	lasting("dedup-window", l.DedupWindow, time.Hour, 366*24*time.Hour)
	lasting("max-staleness", l.MaxStaleness, 0, time.Hour)
	for _, p := range l.Prices.Each() {
		between(p.Flag, *p.Dollars, 0, 1e6)
	}
	return errors.Join(errs...)
}
