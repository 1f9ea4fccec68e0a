package aggregator_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
	"github.com/countmill/countmill/wire"
)

// ruled is a store with a rule for the counters of a pattern.
func ruled(t *testing.T, opts fakestore.Options, pattern string) *fakestore.Store {
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

func wantSeries(t *testing.T, st *fakestore.Store, counter string, want map[wire.Minute]int64) {
	t.Helper()
	got := make(map[wire.Minute]int64)
	for _, b := range st.Buckets(counter) {
		got[b.Minute] += int64(b.Sum.Lo)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("series of %q (-want +got):\n%s", counter, diff)
	}
}

// +5 at 12:00 and -5 at 12:01 are two sums of the series, and none of the total.
func TestSeriesSumsByMinute(t *testing.T) {
	for name, opts := range map[string]fakestore.Options{
		"small commits": {}, "one commit": {Entities: 1 << 20, GrowsInFold: true, CertainOutcome: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := ruled(t, opts, "page:*")
				r := run(t, st, aggregator.Config{})
				settle(time.Second)
				m := wire.MinuteOf(time.Now()) - 100
				r.send(t, at(anonymous(one("page:a", 5), one("page:b", 1), one("x", 3)), m), at(anonymous(one("page:a", -5)), m+1))
				r.send(t, at(anonymous(one("page:b", 10)), m+1), at(anonymous(one("page:b", 100)), m), at(anonymous(one("x", -3)), m+1))
				settle(5 * time.Second)
				r.want(t, map[string]int64{"page:a": 0, "page:b": 111})
				wantSeries(t, st, "page:a", map[wire.Minute]int64{m: 5, m + 1: -5})
				wantSeries(t, st, "page:b", map[wire.Minute]int64{m: 101, m + 1: 10})
				wantSeries(t, st, "x", map[wire.Minute]int64{})
			})
		})
	}
}

// An increment that arrives late counts at its own time; one from the future counts now.
func TestSeriesGoByEventTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := ruled(t, fakestore.Options{}, "*")
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

// A rule holds for a running aggregator when it has read the settings, and no longer when the rule
// was removed.
func TestRulesComeAndGoWhileFolding(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := strict(t, fakestore.Options{})
		r := run(t, st, aggregator.Config{Linger: -1})
		settle(time.Second)
		m := wire.MinuteOf(st.Now()) - 10
		send := func(delta int64) {
			r.send(t, at(anonymous(one("a", delta)), m))
			settle(2 * time.Second)
		}
		send(1)
		change := store.RuleChange{Pattern: "a", Keep: store.Retention{Quarters: 30 * 24 * time.Hour}}
		if _, err := st.ChangeRules(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		settle(store.CheckEvery + time.Second)
		send(10)
		change.Remove = true
		if _, err := st.ChangeRules(t.Context(), change); err != nil {
			t.Fatal(err)
		}
		settle(store.CheckEvery + time.Second)
		send(100)
		r.want(t, map[string]int64{"a": 111})
		wantSeries(t, st, "a", map[wire.Minute]int64{m: 10})
	})
}

// A repeated delivery adds to the series once, as to the total.
func TestSeriesCountADuplicateOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := ruled(t, fakestore.Options{}, "*")
		st.OnFold(fakestore.FoldScript(fakestore.UnknownApplied, fakestore.UnknownNotApplied))
		r := run(t, st, aggregator.Config{Linger: -1})
		settle(time.Second)
		m := wire.MinuteOf(st.Now())
		p := at(anonymous(one("a", 5)), m)
		r.send(t, p)
		r.send(t, p)
		settle(time.Minute)
		r.send(t, p)
		settle(time.Minute)
		r.want(t, map[string]int64{"a": 5})
		wantSeries(t, st, "a", map[wire.Minute]int64{m: 5})
	})
}
