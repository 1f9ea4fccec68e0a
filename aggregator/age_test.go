package aggregator

import (
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
)

// A process ages at least as fast as the store's clock and the monotonic clock, even if the clock
// is set.
func TestAging(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		offset := time.Duration(0)
		a := newAging(func() time.Time { return time.Now().Add(offset) })
		for _, step := range []struct {
			pass, set time.Duration
			least     time.Duration // that it ages
		}{
			{time.Hour, 0, time.Hour},
			{0, 0, 0},
			{time.Minute, time.Hour, time.Hour + time.Minute}, // suspended, or set ahead
			{time.Minute, -2 * time.Hour, time.Minute},        // set back
			{0, -time.Hour, 0},
			{time.Minute, 0, time.Minute},
		} {
			before := a.age()
			time.Sleep(step.pass)
			offset += step.set
			if got := a.age() - before; got != age(step.least/time.Second) {
				t.Errorf("%s pass, the clock is set by %s: ages by %d seconds, want %s", step.pass, step.set, got, step.least)
			}
		}
	})
}

// A clock that jumps by centuries makes everything old, and nothing young again.
func TestAgingOverCenturies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		years := []int{2026, 9999, 1, 2026, 1, 2162, 1, 9999, 1970, 2262, 1700}
		now := year(2000)
		a := newAging(func() time.Time { return now })
		last := a.age()
		for i, n := range years {
			later := year(n).After(now)
			now = year(n)
			got := a.age()
			if by := got - last; later && by < age(store.RememberFor/time.Second) || !later && by != 0 || got < last {
				t.Errorf("step %d, to the year %d: ages by %d seconds", i, n, by)
			}
			last = got
		}
	})
}

func year(n int) time.Time { return time.Date(n, 1, 2, 0, 0, 0, 0, time.UTC) }

// A record is read again after an hour, however often it was used.
func TestRecordsAreRememberedForAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fakeRecorder{shards: map[string]int{"a": 2, "b": 3}}
		r := newRecords(st, 2, 20, 100, newAging(time.Now))
		steps := []struct {
			at   time.Duration
			name string
			want int // asked for so far
		}{
			{0, "a", 1}, {30 * time.Minute, "b", 2}, {59 * time.Minute, "a", 2}, {61 * time.Minute, "a", 3},
			{62 * time.Minute, "b", 3}, {91 * time.Minute, "b", 4}, {120 * time.Minute, "a", 4}, {121 * time.Minute, "a", 5},
		}
		began := time.Now()
		for _, step := range steps {
			time.Sleep(time.Until(began.Add(step.at)))
			if _, _, err := r.learn(t.Context(), toShard0(step.name), time.Hour); err != nil || st.looked != step.want {
				t.Errorf("%s, after %s: %d records asked for, %v, want %d", step.name, step.at, st.looked, err, step.want)
			}
		}
	})
}

// Records that are used together are as old as the oldest, and a fold checks that again right
// before it commits.
func TestAnOldRecordIsReadBeforeTheCommit(t *testing.T) {
	t.Parallel()
	for _, inFold := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			st := &cannedStore{nullStore: nullStore{store.Limits{Keys: 10, GrowsInFold: inFold}}, foundShards: 1}
			a, err := New(nil, st, Config{Shards: 1, Commits: 1})
			if err != nil {
				t.Fatal(err)
			}
			a.settings.Store(&snapshot{})
			folds := func() (n int) {
				for _, call := range st.called {
					if strings.HasPrefix(call, "fold") {
						n++
					}
				}
				return n
			}
			fold := func(frozen time.Duration) outcome {
				o := outcome{job: &job{}}
				adds := toShard0("a")
				adds[0].Delta = 1
				k, growths, ok := a.learn(&o, adds)
				if !ok {
					t.Fatal(o.err)
				}
				time.Sleep(frozen)
				a.settings.Store(&snapshot{asked: a.aging.age()})
				a.fold(&o, taken{adds, k.shards}, &tally{version: a.settings.Load().Version}, growths, &k, a.settings.Load())
				return o
			}
			for _, step := range []struct {
				pass, frozen time.Duration
				want         verdict
				folds        int
			}{
				{0, 0, settled, 1}, {30 * time.Minute, 29 * time.Minute, settled, 2}, {0, time.Minute, again, 2},
				{0, 0, settled, 3}, {0, 59 * time.Minute, settled, 4}, {time.Minute, 24 * time.Hour, again, 4},
			} {
				time.Sleep(step.pass)
				o := fold(step.frozen)
				if o.verdict != step.want || folds() != step.folds {
					t.Errorf("in fold %t, frozen for %s: verdict %d (%v), %d folds; want %d and %d", inFold, step.frozen, o.verdict, o.err, folds(), step.want, step.folds)
				}
			}
		})
	}
}

// A commit asks about the age of each of its parts: the first one may be younger than the others.
func TestEachPartIsYoungBeforeTheCommit(t *testing.T) {
	t.Parallel()
	now := time.Now()
	st := &cannedStore{nullStore: nullStore{store.Limits{Keys: 10}}, foundShards: 1}
	a, err := New(nil, st, Config{Shards: 1, Commits: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := &snapshot{Settings: store.Settings{ForgetBefore: now.Add(-time.Hour)}, asked: a.aging.age()}
	o := outcome{job: &job{}, rest: []*part{{marked: true, from: now}, {marked: true, from: now.Add(-2 * time.Hour)}}}
	adds := toShard0("a")
	if a.fold(&o, taken{adds, []int{1}}, &tally{}, nil, &known{asked: s.asked}, s); o.verdict != again || len(st.called) > 0 {
		t.Errorf("verdict %d after the calls %q", o.verdict, st.called)
	}
}

// Two lives of a restored machine image draw the same random numbers. Their records of one moment have different keys.
func TestRecordsOfAnImageDiffer(t *testing.T) {
	t.Parallel()
	record := func(life string) store.JournalKey {
		a := &Aggregator{cfg: Config{env: &clock.Env{Random: rand.NewPCG(1, 2), Entropy: strings.NewReader(life)}}}
		var c store.Commit
		a.close(&c, &openRecord{}, time.Unix(1, 0), time.Hour)
		return c.Records[0].Key
	}
	if one, other := record("one life"), record("another life"); one == other {
		t.Errorf("both have the key %x", one)
	}
}
