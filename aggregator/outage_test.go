package aggregator_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
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
		st.OnFold(func(int, *store.Commit) protocoltest.Answer { return protocoltest.UnknownNotApplied })
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
		st.OnFold(func(_ int, c *store.Commit) protocoltest.Answer {
			if c.Entities() > 100 {
				return protocoltest.SlowNotApplied
			}
			return protocoltest.OK
		})
		r := run(t, st, aggregator.Config{WindowMessages: 4000})
		want := r.hot(t, 4000)
		settle(time.Hour)
		r.want(t, want)
	})
}

func TestAStoreThatHangsDoesNotHoldUpTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.OnFold(func(int, *store.Commit) protocoltest.Answer { return protocoltest.SlowNotApplied })
		for _, op := range []string{"write worker", "get marker", "write letter"} {
			st.On(op, func(int) protocoltest.Answer { return protocoltest.SlowNotApplied })
		}
		st.On("check", afterFirst(protocoltest.SlowNotApplied))
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
		st.On("check", func(n int) protocoltest.Answer {
			if n == 2 {
				return protocoltest.UnknownNotApplied
			}
			return protocoltest.OK
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
		r := run(t, strict(t, protocoltest.Options{Keys: 2, Latency: time.Second}), aggregator.Config{Remember: 2})
		want := r.hot(t, 1)
		settle(time.Minute)
		r.want(t, want)
	})
}

func TestADrainDoesNotSitOutABackoff(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		var puts atomic.Int64
		st.OnFold(func(int, *store.Commit) protocoltest.Answer { return protocoltest.UnknownNotApplied })
		st.On("write letter", func(int) protocoltest.Answer { puts.Add(1); return protocoltest.UnknownNotApplied })
		r := run(t, st, aggregator.Config{DrainTimeout: 3 * time.Second})
		want := r.hot(t, 100)
		m := r.sendBytes(t, []byte("garbage"))
		settle(time.Hour)
		for folds, last := st.FoldCalls(), puts.Load(); st.FoldCalls() == folds || puts.Load() == last; { // back-offs of up to 30 s begin
			settle(time.Millisecond)
		}
		st.OnFold(nil)
		st.On("write letter", nil)
		if err := r.finish(); err != nil || !acked(m) || len(st.DeadLetters()) != 1 {
			t.Errorf("the store is back, but: %v, acknowledged %v, dead letters %q", err, acked(m), r.reasons())
		}
		r.want(t, want)
	})
}
