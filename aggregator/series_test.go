package aggregator_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// ruled is a store with a rule for the counters of a pattern.
func ruled(t *testing.T, opts protocoltest.Options, pattern string) *protocoltest.Store {
	t.Helper()
	st := strict(t, opts)
	change := store.RuleChange{Pattern: pattern, Keep: store.Retention{Minutes: 6 * time.Hour, Quarters: 400 * 24 * time.Hour}}
	if _, err := st.ChangeRules(t.Context(), change); err != nil {
		t.Fatal(err)
	}
	return st
}

// at is a part that counts at a minute of its own.
func at(p wire.Part, minute wire.Minute) wire.Part {
	p.Minute = minute
	return p
}

func wantSeries(t *testing.T, st *protocoltest.Store, counter string, want map[wire.Minute]int64) {
	t.Helper()
	got := make(map[wire.Minute]int64)
	for _, b := range st.Buckets(counter) {
		got[b.Minute] += int64(b.Sum.Lo)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("series of %q (-want +got):\n%s", counter, diff)
	}
}

// An increment that arrives late counts at its own time; one from the future counts now.
func TestSeriesGoByEventTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := ruled(t, protocoltest.Options{}, "*")
		r := run(t, st, aggregator.Config{Linger: -1})
		settle(time.Second)
		now := wire.MinuteOf(st.Now())
		r.send(t, at(anonymous(one("a", 1)), now-3000), at(anonymous(one("a", 10)), now+1), at(anonymous(one("a", 100)), now+2), at(anonymous(one("a", 1000)), now+500000))
		settle(2 * time.Second)
		if later := wire.MinuteOf(st.Now()); later != now {
			t.Fatalf("the minute ended")
		}
		wantSeries(t, st, "a", map[wire.Minute]int64{now - 3000: 1, now + 1: 10, now: 1100})
	})
}
