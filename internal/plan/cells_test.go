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
		{"hot, 1 aggregator", hot(1), 1, 81, 403, 6.0},
		{"hot, 2 aggregators", hot(2), 1, 138, 403, 3.9},
		{"hot, 4 aggregators", hot(4), 1, 208, 403, 2.9},
		// The bench's increments are 25 ms apart. At random moments, a batch waits 25 ms for its first one.
		{"Zipf, 1,000/s", zipf(1000, 25, usual-25*time.Millisecond), 9.2, 715_283, 100_733, 86.5},
		{"Zipf, 10,000/s", zipf(10_000, 25, usual), 72, 533_143, 44_672, 206.1},
		{"Zipf, 100,000/s", zipf(100_000, 25, usual), 528, 381_774, 23_488, 347.7},
		{"1 counter", uniform(1), 1, 82, 400, 5.8},
		{"10 counters", uniform(10), 10, 825, 400, 14.8},
		{"100 counters", uniform(100), 100, 8_250, 2_400, 129.1},
		{"1,000 counters", uniform(1000), 918, 85_816, 15_901, 275.3},
		{"10,000 counters", uniform(10_000), 2212, 572_879, 37_462, 361.9},
		{"100,000 counters", uniform(100_000), 2469, 940_575, 41_698, 376.6},
		{"1,000,000 counters", uniform(1_000_000), 2497, 984_266, 42_252, 393.6},
		{"linger 10ms", zipf(100_000, 10, 10*time.Millisecond), 72, 471_410, 44_540, 386.9},
		{"linger 30ms", zipf(100_000, 10, 30*time.Millisecond), 187, 418_348, 30_810, 353.9},
		{"linger 100ms", zipf(100_000, 10, 100*time.Millisecond), 528, 386_168, 23_486, 344.4},
		{"linger 250ms", zipf(100_000, 10, usual), 1154, 361_338, 19_818, 361.6},
		{"linger 1s", zipf(100_000, 10, time.Second), 3702, 325_895, 15_571, 370.0},
		{"linger 4s", zipf(100_000, 10, 4*time.Second), 11587, 275_804, 12_108, 384.9},
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

// Messages, markers and the content of both depend only on the load. The number of windows depends on
// the moments at which the bench's publishers begin, too. They are drawn once, so chance moves it by some percent.
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
			near(t, "distinct counters a message", b.entries/b.messages, c.entries, 0.01)
			near(t, "markers", got.MarkersWritten*million, c.markers, 0.01)
			near(t, "shards", got.ShardsWritten*million, c.shards, 0.05)
			near(t, "commits", got.Commits*million, (c.shards+c.markers)/c.perCommit, 0.08)
			near(t, "all", got.PerMillion-got.WorkersWritten*million, c.shards+c.markers, 0.04)
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
				w.commits++ // all messages come together, and their completion markers have a commit of their own
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
