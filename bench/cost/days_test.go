package cost

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"

	"github.com/countmill/countmill/backend/datastore"
	"github.com/countmill/countmill/bench/internal/memdatastore"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A dayLoad is increments by Zipf's law with an exponent of 1.1, folded in windows.
type dayLoad struct {
	label   string
	names   int
	rate    float64 // increments a second
	windows float64 // a second
	markers float64 // a million increments
	days    int
	keep    int // days of quarter hours; where it is less than days, sweeps remove some
}

// A dayPart is a shard of one counter. The counter represents weight counters of about its rank.
type dayPart struct {
	counter string
	shard   int
	active  float64 // probability that a minute has a fold
	folds   float64 // in such a minute
	delta   int64   // increments in such a minute
	weight  float64
}

// parts takes each of the first ranks, and then one in each tenth of its rank, or thousand.
func (l dayLoad) parts() (all []dayPart) {
	const s, exact, shardRate = 1.1, 10, 1
	total := 0.0
	for rank := 1; rank <= l.names; rank++ {
		total += math.Pow(float64(rank), -s)
	}
	for first := 1; first <= l.names; {
		size := min(max(1, first/exact), 1000, l.names-first+1)
		share := math.Pow(float64(first)+float64(size-1)/2, -s) / total
		drawn := -math.Expm1(l.rate / l.windows * math.Log1p(-min(share, 1-1e-9)))
		shards := math.Ceil(drawn * l.windows / shardRate)
		active := -math.Expm1(60 * l.windows * math.Log1p(-drawn/shards))
		for shard := range int(shards) {
			all = append(all, dayPart{
				counter: fmt.Sprintf("page:/u/%012d", first), shard: shard, weight: float64(size), active: active,
				folds: 60 * l.windows * drawn / shards / active, delta: max(1, int64(60*l.rate*share/shards/active)),
			})
		}
		first += size
	}
	return all
}

// dayFigures are the entities that are written in a day.
type dayFigures struct{ shards, moves, moved, joined, deleted float64 }

// times is how many times the entities without a rule a day costs.
func (l dayLoad) times(f dayFigures) float64 {
	without := f.shards + l.markers*l.rate*86_400/1e6
	return (without + f.moved + f.joined) / without
}

// A rule for all counters over days, in which moves and sweeps join and remove what earlier days left.
// The store is backend/datastore's with a server in memory. The load is not drawn by the increment but
// by the minute and shard: whether a minute has a fold at all decides about buckets, and each such
// minute is one fold of the store, which counts as often as the windows of that minute fold the shard.
func TestSeriesDays(t *testing.T) {
	loads := []dayLoad{{"Zipf over 100 names, 2 a second", 100, 2, 2, 300_000, 5, 2}}
	if *fullFlag {
		loads = []dayLoad{
			{"1M an hour, Zipf over 1M names", 1_000_000, 1e6 / 3600, 8.8, 303_000, 110, 400},
			{"100M an hour, Zipf over 1M names", 1_000_000, 1e8 / 3600, 9, 31_600, 6, 2},
			{"100M an hour on one counter", 1, 1e8 / 3600, 9, 3_020, 6, 2},
		}
	}
	for _, l := range loads {
		t.Run(l.label, func(t *testing.T) { synctest.Test(t, l.measure) })
	}
}

// measure prints days, and means of ten days where there are more.
func (l dayLoad) measure(t *testing.T) {
	all := l.run(t)
	worst := 0.0
	for day := 0; day < len(all); {
		n := 1
		if len(all) >= 20 && day >= 10 {
			n = 10
		}
		f := mean(all[day : day+n])
		per := func(n float64) float64 { return n / (l.rate * 86_400 / 1e6) }
		t.Logf("day %d to %d, per million: %.0f shards, %.0f markers, %.0f moves, %.0f entities of them, %.0f days joined, %.0f deleted: %.3f times",
			day+1, day+n, per(f.shards), l.markers, per(f.moves), per(f.moved), per(f.joined), per(f.deleted), l.times(f))
		worst = max(worst, l.times(f))
		day += n
	}
	if last := all[len(all)-1]; worst > seriesMost || last.moved == 0 || last.joined == 0 || l.keep < l.days && last.deleted == 0 {
		t.Errorf("a rule for all counters costs up to %.3f times the entities, want at most %.2f; on the last day %+v", worst, seriesMost, last)
	}
}

func mean(days []dayFigures) (m dayFigures) {
	for _, d := range days {
		n := float64(len(days))
		m.shards, m.moves, m.moved = m.shards+d.shards/n, m.moves+d.moves/n, m.moved+d.moved/n
		m.joined, m.deleted = m.joined+d.joined/n, m.deleted+d.deleted/n
	}
	return m
}

// A daySim is a store and its work.
type daySim struct {
	t       *testing.T
	store   *datastore.Store
	server  *memdatastore.Server
	weight  map[string]float64
	sent    int64
	removed int64 // from series, as their time is over
	doing   string
	day     dayFigures
}

func (l dayLoad) run(t *testing.T) (all []dayFigures) {
	keep := store.Retention{Minutes: 6 * time.Hour, Quarters: time.Duration(l.keep) * 24 * time.Hour}
	d := openDays(t, store.RuleChange{Pattern: "*", Keep: keep})
	parts := l.parts()
	agenda := make([][]int, l.days*store.DayMinutes)
	random := rand.New(rand.NewPCG(1, 2))
	// later notes the next minute in which a part has a fold.
	later := func(minute, i int) {
		if p := parts[i].active; p < 1 {
			minute += int(min(1e6, math.Log(1-random.Float64())/math.Log1p(-p)))
		}
		if minute < len(agenda) {
			agenda[minute] = append(agenda[minute], i)
		}
	}
	for i, p := range parts {
		d.weight[p.counter] = p.weight
		later(0, i)
	}
	for minute, due := range agenda {
		d.fold(parts, due)
		for _, i := range due {
			later(minute+1, i)
		}
		agenda[minute] = nil
		d.tend(minute)
		if time.Sleep(time.Minute); (minute+1)%store.DayMinutes == 0 {
			d.compare()
			all, d.day = append(all, d.day), dayFigures{}
		}
	}
	return all
}

// openDays opens an empty database at the begin of a day.
func openDays(t *testing.T, rule store.RuleChange) *daySim {
	time.Sleep(time.Until(clock.Earliest.Truncate(24 * time.Hour).Add(24 * time.Hour)))
	d := &daySim{t: t, weight: make(map[string]float64)}
	d.server = memdatastore.New(d.wrote)
	t.Cleanup(d.server.Close)
	s, err := datastore.Open(t.Context(), datastore.Config{
		Project: "days", Emulator: "localhost:1", DialOptions: d.server.DialOptions(), // nobody calls the address
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ChangeRules(t.Context(), rule); err != nil {
		t.Fatal(err)
	}
	d.store = s
	t.Cleanup(func() { s.Close() })
	return d
}

// wrote counts an entity once for each counter that its counter represents.
func (d *daySim) wrote(k memdatastore.Key, removed map[string]*pb.Value) {
	shard, series := k.Kind == "CountmillShard", k.Kind == "CountmillSeries"
	if !shard && !series {
		return
	}
	const hash = len("01234567:")
	weight := d.weight[k.Name[hash:strings.LastIndexByte(k.Name, ':')]]
	switch {
	case removed != nil:
		d.day.deleted += weight
		for name, v := range removed {
			if name != "due" {
				d.removed += v.GetIntegerValue()
			}
		}
	case d.doing == "move":
		d.day.moved += weight
		if shard {
			d.day.moves += weight
		}
	case d.doing == "sweep":
		d.day.joined += weight
	}
}

// fold folds one minute of each of the parts.
func (d *daySim) fold(parts []dayPart, due []int) {
	d.doing = "fold"
	minute := wire.MinuteOf(time.Now())
	for lot := range slices.Chunk(due, d.store.Limits().Entities) {
		c := &store.Commit{Archive: d.store.Limits().Ring.Archive(time.Now())}
		for n, i := range lot {
			p := parts[i]
			c.Adds = append(c.Adds, store.NewShardDelta(p.counter, p.shard, p.delta))
			c.Buckets = append(c.Buckets, store.BucketDelta{Add: n, Minute: minute, Delta: p.delta})
			d.sent += p.delta
			d.day.shards += p.weight * p.folds
		}
		if _, err := d.store.Fold(d.t.Context(), c); err != nil {
			d.t.Fatal(err)
		}
	}
}

// tend moves and sweeps as a process does.
func (d *daySim) tend(minute int) {
	d.doing = "move"
	if _, err := d.store.MoveSeries(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
	if d.doing = "sweep"; minute%int(store.SweepEvery/time.Minute) == 0 {
		if err := d.store.SweepSeries(d.t.Context()); err != nil {
			d.t.Fatal(err)
		}
	}
}

// compare fails unless each increment is in its total, and in its series or removed from it.
func (d *daySim) compare() {
	d.t.Helper()
	totals := d.server.Sum("CountmillShard", "count")
	series := d.server.Sum("CountmillShard", "m") + d.server.Sum("CountmillSeries", "m") + d.server.Sum("CountmillSeries", "q")
	if totals != d.sent || series+d.removed != d.sent {
		d.t.Fatalf("%d increments were sent; totals have %d, series %d, and %d were removed from them", d.sent, totals, series, d.removed)
	}
}
