package plan

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend/datastore"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/publisher"
)

func TestClassesAreTheDistribution(t *testing.T) {
	t.Parallel()
	for _, s := range []float64{0, 0.7, 1, 1.1, 2, 5} {
		const counters = 50_000
		weights, total := make([]float64, counters), 0.0
		for k := range weights {
			weights[k] = math.Pow(float64(k+1), -s)
			total += weights[k]
		}
		of := classes(counters, s)
		n, share := 0.0, 0.0
		for _, c := range of {
			n, share = n+c.counters, share+c.counters*c.share
		}
		if n != counters || math.Abs(share-1) > 1e-9 {
			t.Errorf("Zipf %g: %g counters with a share of %g, want %d and 1", s, n, share, counters)
		}
		for _, draws := range []float64{1, 100, 10_000, 1e6} {
			want := 0.0
			for _, w := range weights {
				want += drawn(w/total, draws)
			}
			got, _ := distinct(of, draws)
			near(t, "distinct", got, want, 0.001)
		}
	}
}

func TestRanges(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ mean, stray, size, want float64 }{
		{0, 0, 24, 0}, {0.3, 0, 24, 1}, {1, 0, 24, 1}, {24, 0, 24, 1}, {25, 0, 24, 2}, {100, 0, 24, 5}, {2400, 0, 24, 100},
		{10, 3, 24, 1}, // 15 sigma are missing
	} {
		near1(t, c.mean, ranges(c.mean, c.stray, c.size), c.want)
	}
	// With a large deviation, all sizes of the last range are equally likely.
	random := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct{ mean, stray float64 }{{2213, 40}, {60, 8}, {30, 4}} {
		const n = 200_000
		sum := 0.0
		for range n {
			sum += max(math.Ceil(math.Round(c.mean+c.stray*random.NormFloat64())/24), 1)
		}
		near(t, "ranges", ranges(c.mean, c.stray, 24), sum/n, 0.005)
	}
}

func near1(t *testing.T, mean, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-6 {
		t.Errorf("ranges of %g: got %g, want %g", mean, got, want)
	}
}

// plan computes the plan of a load with the defaults.
func planned(t *testing.T, change func(*Load)) Plan {
	t.Helper()
	l := Defaults()
	l.Rate = 1000
	change(&l)
	p, err := Make(l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (p Plan) wantNote(t *testing.T, text string) {
	t.Helper()
	if !strings.Contains(strings.Join(p.Notes, "\n"), text) {
		t.Errorf("no note with %q in %q", text, p.Notes)
	}
}

func TestShards(t *testing.T) {
	t.Parallel()
	l := Defaults()
	l.StartShards, l.MaxShards = 4, 128
	for commits, want := range map[float64]float64{0: 4, 3: 4, 6: 8, 500: 128} {
		if got := l.shards(commits); got != want {
			t.Errorf("%g commits/s: %g shards, want %g", commits, got, want)
		}
	}
	if got := l.shards(70); got < 80 || got > 105 {
		t.Errorf("70 commits/s: %g shards, want 1.2 to 1.5 times as many", got)
	}
	l.ShardRate = 5
	if got := l.shards(100); got < 23 || got > 30 {
		t.Errorf("100 commits/s of 5 each: %g shards, want 1.2 to 1.5 times 20", got)
	}
}

// Many aggregators each commit the hot counter every 100 ms, beyond what 128 shards take.
func TestShardsAtTheCap(t *testing.T) {
	t.Parallel()
	p := planned(t, func(l *Load) { l.Rate, l.Publishers, l.Aggregators = 1e7, 1000, 50 })
	if c := p.Countmill; c.MostShards != 128 || c.Commits < 400 {
		t.Errorf("%g shards for %g commits/s, want the cap of 128 for 50 aggregators' 8 or more a second", c.MostShards, c.Commits)
	}
	p.wantNote(t, "128 shards, which a counter gets by itself, are too few for 1 of the counters, which get up to 3.")
}

func TestClassic(t *testing.T) {
	t.Parallel()
	p := planned(t, func(l *Load) { l.Rate, l.Counters, l.Totals, l.MaxStaleness = 1000, 10, 100, 0 })
	c := p.Classic
	if c.Shards != 1000 || c.MostShards != 100 || c.EntitiesWritten != 1000 || c.EntitiesRead != 1000+100*100 {
		t.Errorf("got %+v; want 100 shards a counter, a read and a write an increment, 100 reads a total", c)
	}
}

func TestBill(t *testing.T) {
	t.Parallel()
	b := Prices{Reads: 1, Writes: 2, Deletes: 3, Storage: 4, PubSub: 5}.bill(Cost{
		EntitiesRead: 10, EntitiesWritten: 20, EntitiesDeleted: 30, StoredBytes: 3 << 30, PubSubBytes: 1 << 40,
	})
	want := Bill{PubSub: 5 * 2_592_000, Writes: 1036.8, Reads: 259.2, Deletes: 2332.8, Storage: 12}
	want.Total = want.PubSub + want.Writes + want.Reads + want.Deletes + want.Storage
	if math.Abs(b.Total-want.Total) > 1e-6 || math.Abs(b.Writes-want.Writes) > 1e-9 || b.Storage != want.Storage || math.Abs(b.Deletes-want.Deletes) > 1e-9 {
		t.Errorf("got %+v, want %+v", b, want)
	}
	if got := pubSubBytes(10, 5000); got != 20_000 {
		t.Errorf("10 messages of 500 bytes: %g bytes, want the 1,000 that a call has at least, twice", got)
	}
	if got := pubSubBytes(10, 50_000); got != 2*10*(5000+55+20+17) {
		t.Errorf("10 messages of 5,000 bytes: %g bytes", got)
	}
}

// As docs/evidence/unverified.md has them.
func TestStoredSizes(t *testing.T) {
	t.Parallel()
	l := Defaults()
	if markerBytes != 149 || l.shardBytes() != 448 || l.recordBytes() != 117 {
		t.Errorf("%g, %g and %g bytes; want 149, 448 and 117", markerBytes, l.shardBytes(), l.recordBytes())
	}
}

// Markers stay for the deduplication window and two hours, and are deleted as fast as they are written.
func TestStoredMarkers(t *testing.T) {
	t.Parallel()
	p := planned(t, func(l *Load) { l.Publishers, l.Rate, l.DedupWindow = 10, 1e5, 10*time.Hour })
	c := p.Countmill
	divided := 0.25 / 60 // of the batches: at the end of a minute, which adds a part and a completion marker
	near(t, "markers", c.Markers, 40*(1+2*divided)*12*3600, 0.001)
	if c.EntitiesDeleted != c.MarkersWritten || c.Month.Deletes == 0 {
		t.Errorf("%g deleted and %g written a second", c.EntitiesDeleted, c.MarkersWritten)
	}
}

// With CountWithin all publishers flush at the same moments, and an aggregator has one window of
// that.
func TestStaleness(t *testing.T) {
	t.Parallel()
	of := func(staleness time.Duration, rate float64, publishers, aggregators int) Cost {
		return planned(t, func(l *Load) {
			l.CountWithin, l.Rate, l.Publishers, l.Aggregators = staleness, rate, publishers, aggregators
		}).Countmill
	}
	for _, c := range []struct {
		got               Cost
		messages, commits float64
	}{
		{of(time.Second, 1e5, 10, 1), 12.5, 1.25},             // 800 ms
		{of(10*time.Second, 1e5, 10, 1), 10 / 9.35, 1 / 9.35}, // 9.5 s less 150 ms
		{of(200*time.Millisecond, 1e5, 10, 1), 62.5, 6.25},
		{of(time.Second, 1e5, 10, 1000), 12.5, 12.45}, // hardly two in one window
		{of(time.Second, 0.1, 10, 1), 0.0996, 0.096},  // hardly two in one message
	} {
		near(t, "messages", c.got.Messages, c.messages, 0.001)
		near(t, "commits", c.got.Commits, c.commits, 0.05)
	}
	l := Defaults()
	l.Rate, l.CountWithin = 1, 50*time.Millisecond
	if err := l.Check(); err == nil || !strings.Contains(err.Error(), "--count-within: must be from 100ms to 1m0s, or 0s, got 50ms") {
		t.Errorf("got %v", err)
	}
	if minStaleness != publisher.MinCountWithin || maxStaleness != publisher.MaxCountWithin {
		t.Error("the plan takes another staleness than publishers do")
	}
}

// A counter is read when four fifths of its permitted age are used, by each reader with a
// cache of its own.
func TestServed(t *testing.T) {
	t.Parallel()
	of := []class{{counters: 10, share: 0.05}, {counters: 90, share: 0.005}}
	for _, c := range []struct {
		totals    float64
		asked     int64
		staleness time.Duration
		readers   int
		want      [2]float64
	}{
		{0, 0, time.Second, 1, [2]float64{0, 0}},
		{100, 0, time.Second, 1, [2]float64{10 / 1.8, 90 / 1.8}},
		{100, 0, 0, 1, [2]float64{10, 90}},
		{100, 20, time.Second, 1, [2]float64{10 / 1.0, 10 / 1.0}},
		{400, 0, time.Second, 4, [2]float64{4 * 10 / 1.8, 4 * 90 / 1.8}},
		{100, 0, time.Hour, 1, [2]float64{10.0 / 49, 90.0 / 49}}, // the cache keeps nothing for longer than a minute
	} {
		l := Defaults()
		l.Counters, l.Totals, l.Asked, l.MaxStaleness, l.Readers = 100, c.totals, c.asked, c.staleness, c.readers
		got := l.served(of)
		if math.Abs(got[0]-c.want[0]) > 1e-9 || math.Abs(got[1]-c.want[1]) > 1e-9 {
			t.Errorf("%+v: got %v", c, got)
		}
	}
}

// Watched counters are read once a second by each reader: the record and the shards.
func TestWatched(t *testing.T) {
	t.Parallel()
	without := planned(t, func(l *Load) { l.Counters, l.StartShards, l.MaxShards, l.Readers = 1000, 3, 3, 2 })
	p := planned(t, func(l *Load) { l.Counters, l.StartShards, l.MaxShards, l.Readers, l.Watched = 1000, 3, 3, 2, 500 })
	near(t, "entities read for watchers", p.Countmill.WatchedRead, 500*4*2, 1e-9)
	aggregators := float64(p.Aggregators)
	near(t, "all entities read", p.Countmill.EntitiesRead, without.Countmill.EntitiesRead+4000+2/10.0+2*aggregators/lagEvery, 1e-9)
	near(t, "entities of the classic counter", p.Classic.WatchedRead, 500*2, 1e-9)
	near(t, "its entities read", p.Classic.EntitiesRead, without.Classic.EntitiesRead+1000, 1e-9)
}

// An aggregator reads each record once an hour, and earlier if it has forgotten the record.
func TestRecords(t *testing.T) {
	t.Parallel()
	of := []class{{counters: 3600, share: 1.0 / 3600}}
	near(t, "records", records(of, []float64{1}, 2), 2*3600.0/3601, 0.001)
	near(t, "seldom folded", records(of, []float64{1.0 / 36_000}, 1), 3600.0/39_600, 0.001)
	of = []class{{counters: 3e6, share: 1 / 3e6}}
	if got := records(of, []float64{0.01}, 1); got < 5000 || got > 3e4 {
		t.Errorf("3M counters folded every 100 s: %g records/s, want about half of the 30,000 folds", got)
	}
}

// With slow commits windows wait for them, or the aggregators do not keep up at all.
func TestSlowCommits(t *testing.T) {
	t.Parallel()
	slow := func(aggregators int) Plan {
		return planned(t, func(l *Load) {
			l.Rate, l.Counters, l.Publishers, l.Aggregators, l.CommitTime = 2e4, 10_000, 10, aggregators, 100*time.Millisecond
		})
	}
	one, many := slow(1), slow(20)
	one.wantNote(t, "windows wait for commits")
	if one.Countmill.Commits > 40 || one.Countmill.EntitiesWritten >= many.Countmill.EntitiesWritten {
		t.Errorf("1 aggregator makes %.1f commits/s of 100 ms, 4 at once, and writes %.0f entities/s; 20 write %.0f",
			one.Countmill.Commits, one.Countmill.EntitiesWritten, many.Countmill.EntitiesWritten)
	}
	p := planned(t, func(l *Load) {
		l.Rate, l.Counters, l.Publishers, l.Aggregators, l.CommitTime = 1e5, 100_000_000, 10, 1, time.Second
	})
	p.wantNote(t, "does not keep up: --aggregators 1 allows 4 commits/s")
	p = planned(t, func(l *Load) { l.Rate, l.Counters, l.Publishers, l.CommitTime = 1e5, 100_000_000, 10, time.Second })
	if p.Aggregators < 125 || p.Aggregators > 150 || len(p.Notes) > 0 && strings.Contains(p.Notes[0], "keep up") {
		t.Errorf("%d aggregators for some 260 commits/s of a second, 4 at once, half busy: %q", p.Aggregators, p.Notes)
	}
}

// A linger ends early if more counters arrive than a batch holds.
func TestFullBatches(t *testing.T) {
	t.Parallel()
	p := planned(t, func(l *Load) { l.Rate, l.Counters, l.Linger, l.Aggregators = 1e7, 1_000_000_000, time.Second, 100 })
	p.wantNote(t, "publishers' lingers end early")
	near(t, "parts", p.Countmill.Parts, 1e7/24, 0.01)
}

// For every load the sums are consistent.
func TestAnyLoad(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	between := func(least, most float64) float64 { return least * math.Pow(most/least, random.Float64()) }
	for range 400 {
		l := Defaults()
		l.Rate, l.Counters, l.Publishers = between(0.01, 1e7), int64(between(1, 1e8)), int(between(1, 1000))
		l.Linger, l.Window = time.Duration(between(1e6, 1e10)), time.Duration(between(1e6, 1e9))
		l.IDs = max(random.Float64()*2-1, 0)
		l.Zipf = max(random.Float64()*4-2, 0)
		l.Aggregators = int(between(0.5, 100))
		l.Totals = between(0.1, 1e5)
		l.Series = int64(random.Float64() * float64(l.Counters))
		if random.IntN(2) == 0 {
			l.IndexCounters = int64(random.Float64() * float64(l.Counters))
			l.Groups = int64(between(1, matched(l.IndexCounters, l.Counters)))
		}
		p, err := Make(l)
		if err != nil {
			t.Fatal(err)
		}
		c := p.Countmill
		for what, ok := range map[string]bool{
			"finite":                                !math.IsNaN(c.Month.Total) && !math.IsInf(c.Month.Total, 0) && c.Month.Total > 0,
			"shards at most rate":                   c.ShardsWritten <= l.Rate*1.0001,
			"parts at most rate":                    c.Parts <= l.Rate*1.0001,
			"a marker a part":                       c.MarkersWritten > c.Parts*(1-1e-6),
			"at most a completion marker a message": c.MarkersWritten < (c.Parts+c.Messages)*(1+1e-6),
			"a part a message":                      c.Parts > c.Messages*0.999 || l.Rate < 10,
			"400 entities a commit":                 c.ShardsWritten+c.MarkersWritten+c.GroupsWritten <= 400.01*c.Commits,
			"groups at most shards":                 c.GroupsWritten <= 1.001*c.ShardsWritten,
			"an index costs something":              (c.GroupsWritten > 0 && c.IndexRead > 0) == (l.Groups > 0),
			"an entity a commit":                    c.ShardsWritten+c.MarkersWritten >= c.Commits*0.99,
			"shards up to the cap":                  c.Shards <= 128.001*float64(l.Counters+l.Groups) && c.Shards >= 0.999*float64(l.StartShards)*float64(l.Counters+l.Groups),
			"series at most folds":                  c.SeriesWritten <= 3.1*c.ShardsWritten,
			"writes are what they are":              math.Abs(c.EntitiesWritten-c.ShardsWritten-c.MarkersWritten-c.WorkersWritten-c.SeriesWritten-c.GroupsWritten) < 1e-6*c.EntitiesWritten,
		} {
			if !ok {
				t.Errorf("%s: not so for %+v:\n%+v", what, l, c)
			}
		}
	}
}

func TestCheckNamesEverything(t *testing.T) {
	t.Parallel()
	l := Defaults()
	l.Rate, l.IDs, l.Asked, l.Watched, l.Series, l.IndexCounters, l.Groups, l.CommitTime, l.Prices.Reads = math.NaN(), 2, 2, 3, 4, 5, 6, time.Hour, -1
	_, err := Make(l)
	for _, want := range []string{
		"--rate: must be from 0.001 to 1e+10, got NaN", "--ids: must be from 0 to 1, got 2",
		"--asked: must be from 0 to 1, got 2", "--watched: must be from 0 to 1, got 3", "--series-counters: must be from 0 to 1, got 4",
		"--index-counters: must be from 0 to 1, got 5", "--groups: must be from 0 to 5, got 6", "--commit-time: must be from 1ms to 10s, got 1h0m0s", "--price-read: must be from 0 to 1e+06, got -1",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	var field *FieldError
	if !errors.As(err, &field) || field.Field != "rate" {
		t.Errorf("got %v, want a FieldError", err)
	}
}

// The model uses the defaults of the product.
func TestDefaultsAreTheProducts(t *testing.T) {
	t.Parallel()
	cfg := app.Defaults(app.Up)
	cfg.Bus, cfg.Store = "pubsub://p/t?subscription=s", "datastore://p"
	cfg = cfg.Resolved()
	d := Defaults()
	if cfg.Publisher.Linger != d.Linger || cfg.Aggregator.Linger != d.Window || cfg.Reader.DefaultStaleness != d.MaxStaleness || cfg.DedupWindow != 0 {
		t.Errorf("countmill has lingers %s and %s, staleness %s and deduplication window %s; the plan %s, %s, %s and the default",
			cfg.Publisher.Linger, cfg.Aggregator.Linger, cfg.Reader.DefaultStaleness, cfg.DedupWindow, d.Linger, d.Window, d.MaxStaleness)
	}
	if cfg.Aggregator.WindowMessages != windowMessages || cfg.Aggregator.WindowCounters != windowEntities || cfg.Aggregator.WindowMemory != windowBytes ||
		cfg.Publisher.MaxEntries != 2*openEntries || cfg.Publisher.MaxBytes != 2*openBytes {
		t.Errorf("the limits of the plan are not those of %+v", cfg)
	}
	if d.DedupWindow != countmill.DefaultDedupWindow {
		t.Errorf("a new database remembers ids for %s, the plan says %s", countmill.DefaultDedupWindow, d.DedupWindow)
	}
	if cfg.Indexer.Recheck.Seconds() != recheckEvery {
		t.Errorf("countmill reads an index again after %s, the plan says %g s", cfg.Indexer.Recheck, recheckEvery)
	}
	limits := new(datastore.Store).Limits()
	if limits.Commits != commitsAtOnce || limits.Shards != d.StartShards {
		t.Errorf("datastore has %d commits at once and begins with %d shards, the plan %d and %d", limits.Commits, limits.Shards, commitsAtOnce, d.StartShards)
	}
}

func BenchmarkMake(b *testing.B) {
	l := Defaults()
	l.Rate, l.Counters, l.Zipf, l.Publishers = 1e6, 10_000_000, 1.1, 50
	for b.Loop() {
		if _, err := Make(l); err != nil {
			b.Fatal(err)
		}
	}
}
