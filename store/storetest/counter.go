package storetest

import (
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// A reset removes the sum of its look-up, and nothing that was folded later.
func testResetTakesOffWhatItSaw(t *testing.T, su *suite) {
	s := su.open(t)
	grow(t, s, store.Growth{Counter: "a", Shards: 3}, store.Growth{Counter: "b", Shards: 1})
	mustFold(t, s, commit(nil, add("a", 0, 5), add("a", 2, -12), add("b", 0, 1)))
	seen := look(t, s, "a")
	mustFold(t, s, commit(nil, add("a", 1, 100)))
	want := store.ResetResult{Removed: of(-7), At: seen.At}
	if got := reset(t, s, resetOf("a", seen)); !cmp.Equal(got, want, sameTimes) {
		t.Errorf("reset: got %+v, want %+v", got, want)
	}
	checkLook(t, s, "a", store.Sum{Exists: true, Sum: of(93), ResetState: store.ResetState{Baseline: of(-7), ResetAt: seen.At}})
	checkLook(t, s, "b", store.Sum{Exists: true, Sum: of(1)})
	again := look(t, s, "a")
	if got, want := reset(t, s, resetOf("a", again)), (store.ResetResult{Removed: of(100), At: again.At}); !cmp.Equal(got, want, sameTimes) {
		t.Errorf("second reset: got %+v, want %+v", got, want)
	}
	checkLook(t, s, "a", store.Sum{Exists: true, Sum: of(93), ResetState: store.ResetState{Baseline: of(93), ResetAt: again.At}})
	grow(t, s, store.Growth{Counter: "a", Shards: 9})
	checkLook(t, s, "a", store.Sum{Exists: true, Sum: of(93), ResetState: store.ResetState{Baseline: of(93), ResetAt: again.At}})
	if got := list(t, s, "a", "", 2); len(got) != 1 || got[0].Shards != 9 || got[0].Reset.Baseline != of(93) || !got[0].Reset.ResetAt.Equal(again.At) {
		t.Errorf("List: got %+v, want 9 shards and a baseline of 93", got)
	}
}

func testResetIsIdempotent(t *testing.T, su *suite) {
	s := su.open(t)
	grow(t, s, store.Growth{Counter: "a", Shards: 1})
	mustFold(t, s, commit(nil, add("a", 0, math.MinInt64/2)))
	first := resetOf("a", look(t, s, "a"))
	done := reset(t, s, first)
	mustFold(t, s, commit(nil, add("a", 0, 8)))
	second := resetOf("a", look(t, s, "a"))
	second.ID = first.ID
	for range 2 {
		if got := reset(t, s, second); !cmp.Equal(got, done, sameTimes) {
			t.Errorf("reset under the same id: got %+v, want %+v as before", got, done)
		}
	}
	checkLook(t, s, "a", store.Sum{Exists: true, Sum: of(math.MinInt64/2 + 8), ResetState: store.ResetState{Baseline: of(math.MinInt64 / 2), ResetAt: done.At}})
	if got := applied(t, s, first.ID); len(got) != 1 || got[0].ExpireAt.Before(first.ExpireAt) && got[0].At.Before(first.At) {
		t.Errorf("its marker: got %v, want the marker of a reset by %s, kept until %s", got, first.At, first.ExpireAt)
	}
	none := resetOf("nobody's", look(t, s, "nobody's"))
	done = reset(t, s, none)
	grow(t, s, store.Growth{Counter: "nobody's", Shards: 1})
	mustFold(t, s, commit(nil, add("nobody's", 0, 1)))
	again := resetOf("nobody's", look(t, s, "nobody's"))
	again.ID = none.ID
	if got := reset(t, s, again); !cmp.Equal(got, done, sameTimes) {
		t.Errorf("a repeat after the counter was made: got %+v, want %+v", got, done)
	}
	checkLook(t, s, "nobody's", store.Sum{Exists: true, Sum: of(1)})
}

// A reset that has not seen the last reset is refused, whichever look-up was later: its sum may be
// older than the baseline.
func testResetSeesTheLastOne(t *testing.T, su *suite) {
	s := su.open(t)
	grow(t, s, store.Growth{Counter: "a", Shards: 1})
	mustFold(t, s, commit(nil, add("a", 0, 3)))
	early := look(t, s, "a")
	mustFold(t, s, commit(nil, add("a", 0, 4)))
	<-time.After(2 * time.Microsecond)
	late := look(t, s, "a")
	if got := reset(t, s, resetOf("a", late)); got.Removed != of(7) {
		t.Errorf("the reset: got %+v, want 7 removed", got)
	}
	later := late
	later.At = later.At.Add(time.Second)
	for name, seen := range map[string]store.Sum{"looked before": early, "looked at the same time": late, "claims a later look-up": later} {
		r := resetOf("a", seen)
		if got, err := s.ResetCounter(t.Context(), r); !errors.Is(err, store.ErrChanged) {
			t.Errorf("one that %s: got %+v, %v, want ErrChanged", name, got, err)
		}
		if len(applied(t, s, r.ID)) != 0 {
			t.Errorf("one that %s left a marker", name)
		}
	}
	checkLook(t, s, "a", store.Sum{Exists: true, Sum: of(7), ResetState: store.ResetState{Baseline: of(7), ResetAt: late.At}})
}

// The clock was ahead at the last reset, and is right again. The next resets work, and have the clock's
// present time.
func testResetAfterAClockAhead(t *testing.T, su *suite) {
	s := su.open(t)
	grow(t, s, store.Growth{Counter: "a", Shards: 1})
	mustFold(t, s, commit(nil, add("a", 0, 3)))
	ahead := look(t, s, "a")
	ahead.At = ahead.At.Add(store.MaxLook - 10*time.Second)
	if got := reset(t, s, resetOf("a", ahead)); got.Removed != of(3) {
		t.Fatalf("the reset with a clock ahead: got %+v, want 3 removed", got)
	}
	last := ahead.At
	for n := range 3 {
		grow(t, s, store.Growth{Counter: "a", Shards: 1}) // ends the deletion
		mustFold(t, s, commit(nil, add("a", 0, 4)))
		seen := look(t, s, "a")
		r := resetOf("a", seen)
		r.Delete = n == 1
		want := store.ResetResult{Removed: of(4), At: seen.At}
		for range 2 { // one id, one answer
			if got := reset(t, s, r); !cmp.Equal(got, want, sameTimes) {
				t.Errorf("reset %d: got %+v, want %+v", n, got, want)
			}
		}
		now := look(t, s, "a")
		if now.Baseline != now.Sum || now.Sum != of(int64(3+4*(n+1))) || !now.ResetAt.After(last) || now.DeletedAt.IsZero() == r.Delete {
			t.Errorf("after reset %d: got %+v, want a baseline of all, deleted %t, and a reset_at after %s", n, now, r.Delete, last)
		}
		last = now.ResetAt
	}
	again := look(t, s, "a")
	if got := reset(t, s, resetOf("a", again)); got.Removed != of(0) {
		t.Errorf("with nothing folded since: got %+v, want 0 removed", got)
	}
}

// A reset does nothing if its look-up is too old, or from an earlier life of the counter.
func testResetRefusesOldLooks(t *testing.T, su *suite) {
	s := su.open(t)
	grow(t, s, store.Growth{Counter: "a", Shards: 1})
	mustFold(t, s, commit(nil, add("a", 0, 3)))
	change := func(counter string, f func(*store.Sum)) store.ResetRequest {
		seen := look(t, s, counter)
		f(&seen)
		return resetOf(counter, seen)
	}
	for name, c := range map[string]struct {
		reset store.ResetRequest
		want  error
	}{
		"too old":              {change("a", func(s *store.Sum) { s.At = s.At.Add(-store.MaxLook - time.Second) }), store.ErrChanged},
		"from an earlier life": {change("a", func(s *store.Sum) { s.ResetAt = s.At.Add(-time.Second) }), store.ErrChanged},
		"of a swept counter":   {change("c", func(s *store.Sum) { s.Exists = true }), store.ErrChanged},
	} {
		if got, err := s.ResetCounter(t.Context(), c.reset); !errors.Is(err, c.want) {
			t.Errorf("%s: got %+v, %v, want %v", name, got, err, c.want)
		}
		if got := applied(t, s, c.reset.ID); len(got) != 0 {
			t.Errorf("%s: left a marker", name)
		}
	}
	checkLook(t, s, "a", store.Sum{Exists: true, Sum: of(3)})
	checkLook(t, s, "c", store.Sum{})
}

// Resets, deletes and sweeps work for any sum. Nothing is removed of a counter that has counted a multiple of 2^64 since.
func testResetsBeyondInt64(t *testing.T, su *suite) {
	s := su.open(t)
	far := of(math.MaxInt64).Add(of(math.MaxInt64)) // in two shards
	for name, sign := range map[string]int64{"above": 1, "below": -1, "counted": 1} {
		grow(t, s, store.Growth{Counter: name, Shards: 2})
		for shard := range 2 {
			mustFold(t, s, commit(nil, add(name, shard, sign*math.MaxInt64)))
		}
		want := far
		if sign < 0 {
			want = far.Neg()
		}
		seen := look(t, s, name)
		r := resetOf(name, seen)
		for range 2 { // one id, one answer
			if got, want := reset(t, s, r), (store.ResetResult{Removed: want, At: seen.At}); !cmp.Equal(got, want, sameTimes) {
				t.Errorf("%s: reset: got %+v, want %+v", name, got, want)
			}
		}
		checkLook(t, s, name, store.Sum{Exists: true, Sum: want, ResetState: store.ResetState{Baseline: want, ResetAt: seen.At}})
		mustFold(t, s, commit(nil, add(name, 0, -sign*math.MaxInt64), add(name, 1, -sign*math.MaxInt64)))
		d := resetOf(name, look(t, s, name))
		d.Delete = true
		if got := reset(t, s, d); got.Removed != want.Neg() {
			t.Errorf("%s: delete: removed %d, want %d", name, got.Removed, want.Neg())
		}
	}
	for range 4 {
		mustFold(t, s, commit(nil, add("counted", 1, 1<<62)))
	}
	removed := 0
	<-time.After(2 * time.Millisecond)
	for range 5 { // a store may need several calls
		n, err := s.SweepCounters(t.Context(), time.Microsecond)
		if err != nil {
			t.Fatalf("SweepCounters: %v", err)
		}
		removed += n
	}
	if total := of(1 << 62).Add(of(1 << 62)); removed != 2 || look(t, s, "counted").Sum != total.Add(total) {
		t.Errorf("a sweep removed %d counters, and left %+v; want two, and 2^64", removed, look(t, s, "counted"))
	}
}

// With concurrent folds and growths, each increment is either removed by one reset or in the total.
func testResetsBesideFolds(t *testing.T, su *suite) {
	s := su.open(t)
	grow(t, s, store.Growth{Counter: "a", Shards: 4})
	var removed int128.Int
	var work, resets sync.WaitGroup
	stop := make(chan struct{})
	for i := range 2 {
		work.Go(func() {
			for n := range su.rounds / 2 {
				m := marker()
				if _, err := foldRetrying(t.Context(), s, commit(one(m), add("a", (i+n)%4, 1))); err != nil && !errors.Is(err, store.ErrMarkerExists) {
					t.Errorf("Fold: %v", err)
				}
				if n%5 == 0 {
					_ = s.Grow(t.Context(), []store.Growth{{Counter: "a", Shards: 4 + n%8}})
				}
			}
		})
	}
	resets.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				removed = removed.Add(reset(t, s, resetOf("a", look(t, s, "a"))).Removed)
			}
		}
	})
	work.Wait()
	close(stop)
	resets.Wait()
	seen := look(t, s, "a")
	total := seen.Sum.Sub(seen.Baseline)
	if want := of(int64(su.rounds / 2 * 2)); removed.Add(total) != want {
		t.Errorf("removed %d, and a total of %d; want %d together", removed, total, want)
	}
}

// resetOf makes a reset with an id of its own.
func resetOf(counter string, seen store.Sum) store.ResetRequest {
	m := marker()
	return store.ResetRequest{ID: newID(wire.ResetClass), Counter: counter, Look: seen, At: m.At, ExpireAt: m.ExpireAt}
}

// reset applies a reset. It repeats the reset if its outcome is unknown.
func reset(t testing.TB, s store.Store, r store.ResetRequest) (done store.ResetResult) {
	t.Helper()
	var err error
	for range 100 {
		done, err = s.ResetCounter(t.Context(), r)
		if err == nil || errors.Is(err, store.ErrChanged) || errors.Is(err, countmill.ErrUnavailable) {
			break
		}
	}
	if err != nil {
		t.Errorf("ResetCounter: %v", err)
	}
	return done
}

// look reads the record and the shards in one view, as the role does.
func look(t testing.TB, s store.Store, counter string) store.Sum {
	t.Helper()
	v := s.View()
	defer v.Close()
	keys := []store.Key{{Counter: counter, Shard: store.RecordKey}}
	for n := range 40 {
		keys = append(keys, store.Key{Counter: counter, Shard: n})
	}
	values := lookup(t, v, keys...)
	rec := values[0]
	got := store.Sum{Exists: rec.Exists, At: v.ReadTime(), ResetState: store.ResetState{
		Baseline: rec.Reset.Baseline, ResetAt: rec.Reset.ResetAt, DeletedAt: rec.Reset.DeletedAt,
	}}
	got.Sum = rec.Remainder // of a group
	for _, value := range values[1:] {
		got.Sum = got.Sum.Add(value.Count)
	}
	return got
}

func checkLook(t *testing.T, s store.Store, counter string, want store.Sum) {
	t.Helper()
	got := look(t, s, counter)
	want.At = got.At
	if diff := cmp.Diff(want, got, sameTimes); diff != "" {
		t.Errorf("counter %q (-want +got):\n%s", counter, diff)
	}
}
