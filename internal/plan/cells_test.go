package plan

import (
	"math"
	"testing"
	"time"
)

// A cell is a row of the table of entities in docs/evidence/benchmarks.md: the writes of the real
// publishers and aggregators for a million increments.
type cell struct {
	name                       string
	load                       Load
	entries                    float64 // distinct counters a message; 0: not given
	shards, markers, perCommit float64
}

func measured() []cell {
	hot := func(aggregators int) Load {
		return Load{Rate: 100_000, Counters: 1, Publishers: 10, Aggregators: aggregators}
	}
	uniform := func(counters int64) Load {
		return Load{Rate: 100_000, Counters: counters, Publishers: 10, Aggregators: 1}
	}
	zipf := func(rate float64, publishers int, linger time.Duration) Load {
		return Load{Rate: rate, Counters: 1_000_000, Zipf: 1.1, Publishers: publishers, Linger: linger, Aggregators: 1}
	}
	const usual = 250 * time.Millisecond
	return []cell{
		{"hot, 1 aggregator", hot(1), 1, 85, 403, 5.7},
		{"hot, 2 aggregators", hot(2), 1, 147, 403, 3.7},
		{"hot, 4 aggregators", hot(4), 1, 222, 403, 2.8},
		{"Zipf, 1,000/s", zipf(1000, 25, usual), 10, 709_817, 96_200, 87.8},
		{"Zipf, 10,000/s", zipf(10_000, 25, usual), 72, 532_025, 44_748, 311.2},
		{"Zipf, 100,000/s", zipf(100_000, 25, usual), 528, 382_186, 23_483, 371.5},
		{"1 counter", uniform(1), 1, 88, 400, 5.5},
		{"10 counters", uniform(10), 10, 930, 400, 14.3},
		{"100 counters", uniform(100), 100, 9_400, 2_400, 125.5},
		{"1,000 counters", uniform(1000), 918, 97_578, 15_908, 342.3},
		{"10,000 counters", uniform(10_000), 2213, 623_758, 37_466, 379.7},
		{"100,000 counters", uniform(100_000), 2469, 949_392, 41_742, 379.2},
		{"1,000,000 counters", uniform(1_000_000), 2497, 984_157, 42_250, 393.1},
		{"linger 10ms", zipf(100_000, 10, 10*time.Millisecond), 75, 468_094, 44_486, 387.6},
		{"linger 30ms", zipf(100_000, 10, 30*time.Millisecond), 190, 417_866, 30_748, 376.8},
		{"linger 100ms", zipf(100_000, 10, 100*time.Millisecond), 529, 385_102, 23_466, 372.6},
		{"linger 250ms", zipf(100_000, 10, usual), 1154, 371_500, 19_823, 371.1},
	}
}

// with is the load with countmill's defaults and the bench's store.
func (l Load) with(d Load) Load {
	d.Rate, d.Counters, d.Zipf, d.Publishers, d.Aggregators = l.Rate, l.Counters, l.Zipf, l.Publishers, l.Aggregators
	if l.Linger > 0 {
		d.Linger = l.Linger
	}
	d.CommitTime = 10 * time.Millisecond
	return d
}

// near fails unless got is within the fraction part of want.
func near(t *testing.T, what string, got, want, part float64) {
	t.Helper()
	if math.Abs(got/want-1) > part || math.IsNaN(got) {
		t.Errorf("%s: got %.4g, want %.4g: %.3f times, and at most %.0f %% off", what, got, want, got/want, 100*part)
	}
}

// The plan is close for numbers that depend only on chance: messages, and so markers, and the
// content of both. The number of windows depends on the moments at which the bench's ten
// publishers begin: they give 84 to 94, and random ones give 80. That is 15 %.
func TestMeasuredCells(t *testing.T) {
	t.Parallel()
	for _, c := range measured() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := c.load.with(Defaults())
			p, err := Make(l)
			if err != nil {
				t.Fatal(err)
			}
			got, million := p.Countmill, 1e6/l.Rate
			b := l.send(classes(l.Counters, l.Zipf))
			near(t, "distinct counters a message", b.entries/b.messages, c.entries, 0.04)
			near(t, "markers", got.MarkersWritten*million, c.markers, 0.05)
			near(t, "shards", got.ShardsWritten*million, c.shards, 0.15)
			near(t, "commits", got.Commits*million, (c.shards+c.markers)/c.perCommit, 0.15)
			near(t, "all", got.PerMillion-got.WorkersWritten*million, c.shards+c.markers, 0.12)
		})
	}
}

// In these rows publishers are in step, so the content of a window is known: only its writes
// remain to be computed.
func TestMeasuredWindows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                        string
		counters                    int64
		zipf, ids                   float64
		increments, batches, stray  float64 // a batch's, a window's
		shards, markers, perCommits float64
	}{
		// Every publisher sends at the same moment.
		{"Zipf, 10 a message", 1_000_000, 1.1, 0, 10, 25, 0, 641_800, 100_000, 0},
		{"Zipf, 100 a message", 1_000_000, 1.1, 0, 100, 25, 0, 490_920, 44_600, 0},
		{"Zipf, 1,000 a message", 1_000_000, 1.1, 0, 1000, 25, 0, 349_690, 23_518, 0},
		{"Zipf, 5,000 a message", 1_000_000, 1.1, 0, 5000, 25, 0, 258_140, 17_562, 0},
		// Ten publishers begin 37 ms apart: windows of 3, 3, 3 and 1 in each linger. Those of
		// 4 s are written for longer than 100 ms, and the next wait: 3, 4 and 3.
		{"linger 1s", 1_000_000, 1.1, 0, 10_000, 2.5, 1, 300_757, 15_578, 376.1},
		{"linger 4s", 1_000_000, 1.1, 0, 40_000, 10.0 / 3, 1, 210_471, 12_105, 386.4},
		// Ten calls of 100 increments at once ten times a second, of which a linger has three.
		{"ids, 1 counter", 1, 0, 1, 300, 10, 0, 2_670, 1_003_400, 334.2},
		{"ids, 1,000 counters", 1000, 0, 1, 300, 10, 0, 340_000, 1_003_400, 364.1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l := Defaults()
			l.Counters, l.Zipf, l.IDs = c.counters, c.zipf, c.ids
			of := classes(c.counters, c.zipf)
			w := pack(of, l.batch(of, c.increments), c.batches, c.stray)
			if c.ids > 0 {
				w.commits++ // all messages come together, and their tails have a commit of their own
			}
			million := 1e6 / (c.increments * c.batches)
			near(t, "markers", w.markers*million, c.markers, 0.02)
			near(t, "shards", w.shards*million, c.shards, 0.1)
			if c.perCommits > 0 {
				near(t, "entities a commit", (w.shards+w.markers)/w.commits, c.perCommits, 0.07)
			}
		})
	}
}

// Entities read for 1,000 totals, 1,000 counters of 20 shards, 100 clients.
func TestMeasuredReads(t *testing.T) {
	t.Parallel()
	for every, want := range map[time.Duration]float64{500 * time.Millisecond: 65, 2 * time.Second: 259, 10 * time.Second: 1234} {
		l := Defaults()
		l.Rate, l.Counters, l.StartShards, l.Totals = 1, 1000, 20, 100*1000/every.Seconds()
		p, err := Make(l)
		if err != nil {
			t.Fatal(err)
		}
		near(t, every.String(), p.Countmill.TotalsRead/l.Totals*1000, want, 0.03)
	}
}
