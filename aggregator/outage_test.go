package aggregator_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
	"github.com/countmill/countmill/wire"
)

// hot sends messages of one full part each, all over the same counters, and returns their sum.
func (r *rig) hot(t *testing.T, messages int) map[string]int64 {
	t.Helper()
	want := make(map[string]int64)
	for range messages {
		var entries []wire.Entry
		for c := range wire.MaxEntries {
			entries = append(entries, one(fmt.Sprint("hot", c), 1))
			want[fmt.Sprint("hot", c)]++
		}
		r.send(t, anonymous(entries...))
	}
	return want
}

// An outage of ten minutes does not show that commits are too large.
func TestAnOutageDoesNotTakeCommitsApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.OnFold(func(int, *store.Commit) fakestore.Answer { return fakestore.UnknownNotApplied })
		r := run(t, st, aggregator.Config{WindowMessages: 4000})
		want := r.hot(t, 4000) // some 11 commits
		settle(10 * time.Minute)
		st.OnFold(nil)
		before := st.FoldCalls()
		settle(time.Hour)
		r.want(t, want)
		if got := st.FoldCalls() - before; got > 500 {
			t.Errorf("%d commits after an outage for what fits 11: taken apart into single parts", got)
		}
	})
}

func TestACommitTooLargeForItsTimeoutIsTakenApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.OnFold(func(_ int, c *store.Commit) fakestore.Answer {
			if c.Entities() > 100 {
				return fakestore.SlowNotApplied
			}
			return fakestore.OK
		})
		r := run(t, st, aggregator.Config{WindowMessages: 4000})
		want := r.hot(t, 4000)
		settle(time.Hour)
		r.want(t, want)
	})
}

func TestADrainDoesNotSitOutABackoff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.OnFold(func(int, *store.Commit) fakestore.Answer { return fakestore.UnknownNotApplied })
		r := run(t, st, aggregator.Config{DrainTimeout: 3 * time.Second})
		want := r.hot(t, 100)
		settle(time.Hour)
		calls := st.FoldCalls()
		for st.FoldCalls() == calls { // a back-off of up to 30 s begins
			settle(time.Millisecond)
		}
		st.OnFold(nil)
		if err := r.finish(); err != nil {
			t.Errorf("the store is back, but: %v", err)
		}
		r.want(t, want)
	})
}

func TestADrainDoesNotSitOutTheBackoffOfADeadLetter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		var puts atomic.Int64
		st.On(fakestore.PutDeadLetters, func(int) fakestore.Answer { puts.Add(1); return fakestore.UnknownNotApplied })
		r := run(t, st, aggregator.Config{DrainTimeout: time.Second})
		m := r.sendBytes(t, []byte("garbage"))
		settle(time.Hour)
		last := puts.Load()
		for puts.Load() == last { // a back-off of up to 30 s begins
			settle(time.Millisecond)
		}
		st.On(fakestore.PutDeadLetters, nil)
		if err := r.finish(); err != nil || !acked(m) || len(st.DeadLetters()) != 1 {
			t.Errorf("the store is back, but: %v, acknowledged %v, dead letters %q", err, acked(m), r.reasons())
		}
	})
}

func TestAStoreThatHangsDoesNotHoldUpTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.OnFold(func(int, *store.Commit) fakestore.Answer { return fakestore.SlowNotApplied })
		for _, op := range []fakestore.Op{fakestore.Beat, fakestore.Applied, fakestore.PutDeadLetters} {
			st.On(op, func(int) fakestore.Answer { return fakestore.SlowNotApplied })
		}
		st.On(fakestore.Check, afterFirst(fakestore.SlowNotApplied))
		r := run(t, st, aggregator.Config{DrainTimeout: 3 * time.Second})
		r.send(t, anonymous(one("a", 1)))
		r.sendBytes(t, []byte("garbage"))
		settle(time.Minute + time.Second)
		started := time.Now()
		if err := r.finish(); err == nil {
			t.Error("Run returned nil with messages held")
		}
		if took := time.Since(started); took > 5*time.Second {
			t.Errorf("Run returned %s after its context, want 3 s and at most 2 s for the last word", took)
		}
	})
}

// One lost answer of Check must not stop folding for as long as checks are apart.
func TestAFailedCheckIsRepeatedSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		r := run(t, st, aggregator.Config{})
		st.On(fakestore.Check, func(n int) fakestore.Answer {
			if n == 2 {
				return fakestore.UnknownNotApplied
			}
			return fakestore.OK
		})
		settle(10*time.Second + time.Millisecond)
		if r.agg.Ready() == nil {
			t.Error("ready although the check failed")
		}
		settle(1500 * time.Millisecond)
		if err := r.agg.Ready(); err != nil {
			t.Errorf("1.5 s later: %v", err)
		}
	})
}

// The time-out is for one call: each call for a window of new counters has its own.
func TestManySlowLookupsOfRecordsComeToAnEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, strict(t, fakestore.Options{Keys: 2, Latency: time.Second}), aggregator.Config{Remember: 2})
		want := r.hot(t, 1)
		settle(time.Minute)
		r.want(t, want)
	})
}

// A commit that never began has a certain outcome. Without markers too it is tried again, whole
// and without a look-up. If one of its parts is refused later, that part was certainly not
// applied.
func TestACommitThatNeverBeganIsTriedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := certain(t)
		sizes := make(map[int]int) // commits by how many adds they have
		st.OnFold(func(n int, c *store.Commit) fakestore.Answer {
			sizes[len(c.Adds)]++
			switch {
			case n <= 6:
				return fakestore.NotApplied
			case c.Adds[0].Counter == "poison" || len(c.Adds) > 1:
				return fakestore.Refused
			}
			return fakestore.OK
		})
		r := run(t, st, aggregator.Config{})
		settle(2 * time.Minute)
		good, bad := r.send(t, anonymous(one("a", 1))), r.send(t, wire.CutIdentified(countmill.Increment{Counter: "poison", Delta: 1, ID: "x"}))
		settle(time.Hour)
		r.want(t, map[string]int64{"a": 1})
		if got := st.DeadLetters(); !acked(good) || !acked(bad) || len(got) != 1 || got[0].Maybe {
			t.Errorf("acknowledged %v and %v, dead letters %+v, want the one that was refused, which does not say maybe", acked(good), acked(bad), got)
		}
		if sizes[2] != 7 || st.Calls(fakestore.Applied) != 0 {
			t.Errorf("commits by size %v, %d look-ups; want 6 whole ones that never began, one refused, and no look-ups", sizes, st.Calls(fakestore.Applied))
		}
		if err := r.finish(); err != nil {
			t.Error(err)
		}
	})
}
