package aggregator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

// The heartbeat has the counts of Stats, and the counters that moved.
func TestHeartbeatHasTheCountsAndTheBusiest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{WorkerID: "w"})
		busy := anonymous(one("a", 1), one("b", -30))
		busy.Increments = 9
		r.send(t, busy, identified("c", 5))
		settle(10 * time.Second)
		r.send(t, busy) // a copy
		settle(10 * time.Second)
		got, s := r.worker(t), r.agg.Stats()
		if got.Increments != 10 || got.Duplicates != 1 || got.Entities == 0 || got.Entities != s.EntitiesWritten || got.DeadLetters != 0 {
			t.Errorf("got %+v, want 10 increments, a duplicate and %d entities", got, s.EntitiesWritten)
		}
		var names []string
		for _, b := range got.Busiest {
			names = append(names, b.Counter)
		}
		if !slices.Equal(names, []string{"b", "a"}) {
			t.Errorf("the busiest are %q, want b, and a (1 and 5)", names)
		}
		settle(2 * time.Minute)
		if got := r.worker(t).Busiest; len(got) != 0 {
			t.Errorf("after two quiet minutes the busiest are %v, want none", got)
		}
		if err := r.finish(); err != nil {
			t.Error(err)
		}
	})
}

// The heartbeat has the difference of the clocks: status and its readers learn it from nowhere else.
func TestHeartbeatHasTheSkew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, protocoltest.New(protocoltest.Options{ClockOffset: -time.Hour}), aggregator.Config{WorkerID: "w"})
		settle(time.Minute)
		if got := r.worker(t).Skew; got < time.Hour-time.Second || got > time.Hour+time.Second {
			t.Errorf("the skew is %s, want an hour", got)
		}
		if err := r.finish(); err != nil {
			t.Error(err)
		}
	})
}

// An aggregator whose heartbeats are not written says so, and works. After an orderly end nobody takes it for late.
func TestHeartbeatsThatAreNotWritten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		r := run(t, st, aggregator.Config{WorkerID: "w"})
		settle(time.Minute)
		st.On("write worker", func(int) protocoltest.Answer { return protocoltest.UnknownNotApplied })
		settle(time.Minute)
		if got := r.agg.Degraded(); !strings.Contains(got, "heartbeats were not written") || r.agg.Ready() != nil {
			t.Errorf("degraded %q, ready %v; want a word about heartbeats, and ready", got, r.agg.Ready())
		}
		st.On("write worker", protocoltest.Script())
		settle(time.Minute)
		if got := r.agg.Degraded(); got != "" {
			t.Errorf("written again: degraded %q", got)
		}
		if err := r.finish(); err != nil {
			t.Error(err)
		}
		if since := time.Since(r.worker(t).Expires); since < store.WorkerLate {
			t.Errorf("after an orderly end the record has expired for %s, and is late", since)
		}
	})
}
