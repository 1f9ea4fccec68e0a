package pebble

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	sums "github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// A wrong clock differs from the right time by an offset.
type wrong struct{ by atomic.Int64 }

func (w *wrong) set(by time.Duration) { w.by.Store(int64(by)) }
func (w *wrong) now() time.Time       { return time.Now().Add(time.Duration(w.by.Load())) }

// Moments ascend, are never before the clock, and advance while the clock is behind them until it has
// caught up.
func TestMoments(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var shown wrong
		m := moments{clock: shown.now}
		began := time.Now()
		for i, step := range []struct {
			pass, off time.Duration
			ahead     time.Duration // of the last moment before the clock, after the step
		}{
			{0, 0, 0}, {0, 0, time.Microsecond}, {0, 0, 2 * time.Microsecond}, {time.Second, 0, 0},
			{0, -time.Hour, time.Hour + time.Microsecond},
			{16 * time.Minute, -time.Hour, 59*time.Minute + time.Microsecond},
			{0, -2 * time.Hour, time.Hour + 59*time.Minute + 2*time.Microsecond},
			{24 * time.Hour, -2 * time.Hour, 29*time.Minute + 2*time.Microsecond},
			{24 * time.Hour, -2 * time.Hour, 0},
			{0, 14 * 365 * 24 * time.Hour, 0},
			{time.Minute, 0, 14*365*24*time.Hour + time.Minute - time.Minute/16 - time.Minute},
		} {
			time.Sleep(step.pass)
			shown.set(step.off)
			before := m.newest()
			got := m.next()
			if !got.After(before) || got.Before(shown.now().Truncate(time.Microsecond)) {
				t.Errorf("step %d, after %s: %s follows %s, and the clock shows %s", i, time.Since(began), got, before, shown.now())
			}
			if ahead := got.Sub(shown.now()); (ahead - step.ahead).Abs() > time.Microsecond {
				t.Errorf("step %d: %s ahead of the clock, want %s", i, ahead, step.ahead)
			}
		}
	})
}

// A pause after the clock was read puts no later moment before its time: every fold that had returned by
// the clock's time of a view is in that view.
func TestMomentsOfAPausedProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var before, after time.Duration // pauses around one reading of the clock
		m := moments{clock: func() time.Time {
			time.Sleep(before)
			now := time.Now()
			time.Sleep(after)
			return now
		}}
		for _, pause := range []struct{ before, after time.Duration }{
			{0, 0}, {time.Second, 0}, {0, 0}, {0, time.Second}, {0, 0}, {time.Second, time.Second}, {0, 0},
		} {
			before, after = pause.before, pause.after
			time.Sleep(time.Millisecond)
			if got := m.next(); got.After(time.Now()) {
				t.Errorf("pauses of %s and %s: the moment is %s ahead of the clock", before, after, time.Until(got))
			}
		}
	})
}

// However the machine's clock is set, readers underestimate a total's age by a fifteenth at most.
// Readers learn the time from the views.
func TestAgesByMoments(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			var shown wrong
			m := moments{clock: shown.now}
			learned := clock.Store{Env: &clock.Env{Wall: shown.now}}
			type total struct{ asOf, read time.Time }
			var kept []total
			for range 300 {
				time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
				if random.IntN(10) == 0 {
					shown.set(time.Duration(random.IntN(20_000)-10_000) * time.Millisecond)
				}
				began, at := learned.Moment(), m.next()
				learned.Learn(at, began)
				kept = append(kept, total{at, time.Now()})
				for _, k := range kept {
					if says, is := learned.Now().Sub(k.asOf), time.Since(k.read); says < is-is/slower-time.Millisecond {
						t.Fatalf("seed %d: a total seems %s old, and is %s old", seed, says, is)
					}
				}
			}
		})
	}
}

// asOf is the moment of a view that is taken now.
func asOf(t *testing.T, s *Store) time.Time {
	t.Helper()
	v := s.View()
	defer v.Close()
	if _, err := v.Lookup(t.Context(), []store.Key{{Counter: "a"}}); err != nil {
		t.Fatal(err)
	}
	return v.ReadTime()
}

// A view shows every fold that returned by the view's moment, including a fold that returns while the
// view is taken.
func TestViewsShowWhatReturnedByTheirMoment(t *testing.T) {
	t.Parallel()
	var between atomic.Pointer[func()] // called when the clock is read next
	s := open(t, Config{Dir: t.TempDir(), clock: func() time.Time {
		if f := between.Swap(nil); f != nil {
			(*f)()
		}
		return time.Now()
	}})
	for want := int64(1); want < 4; want++ {
		var returned time.Time
		f := func() {
			fold(t, s, nil, "a", 1)
			returned = time.Now().Truncate(time.Microsecond)
		}
		between.Store(&f)
		v := s.View()
		got, err := v.Lookup(t.Context(), []store.Key{{Counter: "a"}})
		if err != nil || returned.IsZero() || v.ReadTime().Before(returned) || got[0].Count != sums.Of(want) {
			t.Errorf("as of %s: got %d, %v; want %d, as the last fold returned at %s", v.ReadTime(), got[0].Count, err, want, returned)
		}
		v.Close()
	}
}

// The commit count's file has the last moment, even without new commits, and after a kill.
func TestMomentsOfAKilledProcess(t *testing.T) {
	t.Parallel()
	files := vfs.NewCrashableMem()
	s := open(t, Config{Dir: "d", FS: files})
	if err := s.keepCommitCount(); err != nil {
		t.Fatal(err)
	}
	last := asOf(t, s)
	if err := s.keepCommitCount(); err != nil {
		t.Fatal(err)
	}
	var clock wrong
	clock.set(-time.Hour)
	again := open(t, Config{Dir: "d", FS: files.CrashClone(vfs.CrashCloneCfg{}), clock: clock.now})
	if got := asOf(t, again); !got.After(last) || got.After(last.Add(time.Minute)) {
		t.Errorf("as of %s after %s in the process before", got, last)
	}
}

// Entries from Rule.PagedSince on have rows. Those from before the change have none, and their keys are moments.
func TestRulesChangeByMoments(t *testing.T) {
	t.Parallel()
	var clock wrong
	s := open(t, Config{Dir: t.TempDir(), clock: clock.now})
	change := func(paged bool) store.Rule {
		keep := store.Retention{Entries: store.MinKeep, Paged: paged}
		set, err := s.ChangeRules(t.Context(), store.RuleChange{Kind: store.KindJournal, Pattern: "a", Keep: keep})
		if err != nil {
			t.Fatal(err)
		}
		return set.Rules.Journal[0]
	}
	change(false)
	before, done := s.JournalMoment(clock.now())
	done()
	clock.set(-time.Hour)
	paged := change(true)
	after, done := s.JournalMoment(clock.now())
	done()
	if !paged.PagedSince.After(before) || !paged.PagedSince.Before(after) {
		t.Errorf("rows since %s, between entries of %s and %s", paged.PagedSince, before, after)
	}
}

// A clock that showed a far time once costs neither the journal nor series, although moments stay there.
func TestSweepsAfterAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	var clock wrong
	s := open(t, Config{Dir: t.TempDir(), clock: clock.now})
	set, err := s.ChangeRules(t.Context(), store.RuleChange{Pattern: "a", Keep: store.Retention{Quarters: 30 * day}})
	if err != nil {
		t.Fatal(err)
	}
	foldRecorded(t, s, "a", 1)
	at := wire.MinuteOf(clock.now())
	c := &store.Commit{Rules: set.Version, Adds: []store.ShardDelta{store.NewShardDelta("a", 0, 1)}, Buckets: []store.BucketDelta{{Minute: at, Delta: 1}}}
	if _, err := s.Fold(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	clock.set(14 * 365 * day)
	s.Moment()
	clock.set(0)
	if err := errors.Join(s.Sweep(t.Context()), s.SweepSeries(t.Context())); err != nil {
		t.Fatal(err)
	}
	v := s.JournalView()
	defer v.Close()
	page, err := v.JournalRecords(t.Context(), store.JournalQuery{Limit: 10})
	if err != nil || len(page.Records) != 1 {
		t.Errorf("%d records are left, %v, want 1", len(page.Records), err)
	}
	if buckets, err := v.Series(t.Context(), []store.Record{{Counter: "a"}}, store.QuarterOf(at), at+1); err != nil || len(buckets[0]) != 1 {
		t.Errorf("%d buckets are left, %v, want 1", len(buckets), err)
	}
}

// DeadLetterRefs go when their completion markers may.
func TestDeadLetterRefsAreSwept(t *testing.T) {
	t.Parallel()
	clock := newTestClock()
	s := open(t, clock.config(Config{Dir: t.TempDir(), Window: day}))
	completion := wire.FlushHash{1}.Completion(0)
	d := store.DeadLetter{Key: "a", At: clockStart, DeadLetterRefs: []store.DeadLetterRef{{Completion: completion, Key: "a", At: clockStart}}}
	if err := s.PutDeadLetters(t.Context(), []store.DeadLetter{d}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		pass time.Duration
		left int
	}{{day + time.Hour, 1}, {8 * day, 0}} {
		clock.pass(t, s, step.pass)
		if err := s.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := s.DeadLetterRefs(t.Context(), []wire.PartID{completion}); err != nil || len(got) != step.left {
			t.Errorf("after %s more: %+v, %v; want %d", step.pass, got, err, step.left)
		}
	}
}
