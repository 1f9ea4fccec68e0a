package plan

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/countmill/countmill/store"
)

// The closed form is what counters that are folded at random moments write.
func TestSeries(t *testing.T) {
	t.Parallel()
	const days = 1000
	for _, perDay := range []float64{0.3, 3, 40, 500, 20_000} {
		random := rand.New(rand.NewPCG(uint64(perDay*10), 5))
		var all seriesWrites
		counters := 1 + int(500_000/days/perDay)
		for range counters {
			all.counter(random, perDay/minutesOfDay, days)
		}
		l := Load{Series: int64(counters)}
		of := []class{{counters: float64(counters), share: 1}}
		got := l.series(of, []float64{perDay / secondsOfDay}, []float64{1})
		near(t, "entities written", got.written*secondsOfDay*days, float64(all.moved+all.days+all.joined), 0.05)
		near(t, "days deleted", got.deleted*secondsOfDay*days, float64(all.joined), 0.05)
		near(t, "entities read", got.read*secondsOfDay*days, float64(all.moved+2*all.joined), 0.05)
	}
}

// seriesWrites counts what series write: shards and days in moves, and days that are joined.
type seriesWrites struct{ moved, days, joined int }

// counter draws the minutes of a counter with one shard: first for days in which its ring fills, which
// do not count, and then for days that count.
func (w *seriesWrites) counter(random *rand.Rand, perMinute float64, days int) {
	ring, inRing, last := 0, 0, -1 // buckets, days of them, and the last day
	before := *w
	for at := 0.0; ; {
		at = math.Floor(at) + 1 + random.ExpFloat64()/perMinute // the next increment after this minute
		day := int(at) / minutesOfDay
		if day >= days && last < days {
			*w = before
		}
		if day >= 2*days {
			return
		}
		if day != last {
			w.joined++
		}
		if ring == 0 || day != last {
			inRing++
		}
		last = day
		if ring++; ring > store.SeriesBuckets {
			w.moved, w.days = w.moved+1, w.days+inRing
			ring, inRing = 0, 0
		}
	}
}

// Series cost no more than the busiest counters, which have the rule, make them cost.
func TestPlannedSeries(t *testing.T) {
	t.Parallel()
	of := func(series int64) Cost {
		return planned(t, func(l *Load) { l.Counters, l.Zipf, l.Series = 10_000, 1.1, series }).Countmill
	}
	none, some, all := of(0), of(100), of(10_000)
	if none.SeriesWritten != 0 || some.SeriesWritten <= 0 || all.SeriesWritten <= some.SeriesWritten {
		t.Errorf("no, 100 and all counters under a rule: %g, %g and %g entities/s, want 0 and more each time", none.SeriesWritten, some.SeriesWritten, all.SeriesWritten)
	}
	near(t, "entities written", all.EntitiesWritten, none.EntitiesWritten+all.SeriesWritten, 1e-9)
	if all.EntitiesDeleted <= none.EntitiesDeleted || all.EntitiesRead <= none.EntitiesRead || all.ShardsWritten != none.ShardsWritten {
		t.Errorf("with series %g deletes and %g shards, without %g and %g; want more deletes and reads and as many shards",
			all.EntitiesDeleted, all.ShardsWritten, none.EntitiesDeleted, none.ShardsWritten)
	}
}
