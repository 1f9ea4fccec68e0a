package aggregator_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
	"github.com/countmill/countmill/wire"
)

// Markers expire by the store's clock.
func TestTheWindowIsJudgedByTheStoresClock(t *testing.T) {
	for name, c := range map[string]struct {
		offset, age time.Duration
		refused     bool
	}{
		"ahead, beyond the window":  {3 * time.Hour, 22 * time.Hour, true},
		"ahead, within":             {3 * time.Hour, 20 * time.Hour, false},
		"behind, beyond the window": {-3 * time.Hour, 28 * time.Hour, true},
		"behind, within":            {-3 * time.Hour, 26 * time.Hour, false},
		"behind, too far ahead":     {-3 * time.Hour, -22 * time.Hour, true},
		"ahead, not too far":        {3 * time.Hour, -26 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := run(t, strict(t, fakestore.Options{ClockOffset: c.offset, Window: 24 * time.Hour}), aggregator.Config{})
				settle(2 * time.Second)
				if r.agg.Ready() == nil {
					t.Error("ready although the clocks differ by hours")
				}
				r.sendAt(t, time.Now().Add(-c.age), anonymous(one("a", 1)))
				settle(time.Minute)
				if got := r.store.Total("a") == 0; got != c.refused {
					t.Errorf("refused %v, want %v; dead letters %q", got, c.refused, r.reasons())
				}
			})
		})
	}
}

// With a publisher's clock that is ahead, messages on the bus are at least as old as the broker
// reports.
func TestAnEarlierBrokersTimeCounts(t *testing.T) {
	for name, c := range map[string]struct {
		says, published time.Duration // ago
		refused         bool
	}{
		"older than it says":   {20 * time.Hour, 25 * time.Hour, true},
		"younger than it says": {25 * time.Hour, time.Hour, true},
		"both young":           {20 * time.Hour, time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := run(t, windowed(t, 24*time.Hour), aggregator.Config{})
				m := message.NewMessage("", wire.Append(nil, &wire.Batch{Time: time.Now().Add(-c.says), Parts: []wire.Part{anonymous(one("a", 1))}}))
				m.Metadata.Set(wire.MetaPublished, time.Now().Add(-c.published).Format(time.RFC3339Nano))
				r.out <- m
				settle(time.Minute)
				if got := r.store.Total("a") == 0; got != c.refused || !acked(m) {
					t.Errorf("refused %v, want %v; acknowledged %v", got, c.refused, acked(m))
				}
				r.sent = append(r.sent, m)
			})
		})
	}
}

// Parts that a look-up finds applied by this process, and parts that are then committed, are one
// answer.
func TestTheResultOfALookupIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		r := run(t, st, clock.With(aggregator.Config{}, &clock.Env{Random: repeats{}})) // all folds have one id
		x := wire.CutIdentified(countmill.Increment{Counter: "a", Delta: 1, ID: "x"})
		y := wire.CutIdentified(countmill.Increment{Counter: "a", Delta: 2, ID: "y"})
		first := r.send(t, x)
		settle(time.Second)
		both := r.send(t, x, y)
		settle(time.Minute)
		if !acked(first) || !acked(both) || st.Total("a") != 3 {
			t.Errorf("acknowledged %v and %v, total %d", acked(first), acked(both), st.Total("a"))
		}
	})
}

// repeats is a machine whose image was restored: its generator repeats its values.
type repeats struct{}

func (repeats) Uint64() uint64 { return 0x9e3779b97f4a7c15 }

func TestAWindowClosesWhenItsLingerIsOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{Linger: 300 * time.Millisecond})
		settle(time.Minute)
		for range 5 {
			m := r.send(t, anonymous(one("a", 1)))
			settle(300*time.Millisecond - 1)
			if acked(m) {
				t.Error("did not linger")
			}
			settle(1)
			if !acked(m) {
				t.Error("lingers too long")
			}
			settle(173 * time.Millisecond)
		}
	})
}

func TestADrainDoesNotLinger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{Linger: time.Hour})
		m := r.send(t, anonymous(one("a", 1)))
		if err := r.finish(); err != nil || !acked(m) {
			t.Errorf("Run returned %v, acknowledged %v", err, acked(m))
		}
	})
}

func TestTheFirstRetryComesSoon(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.OnFold(fakestore.FoldScript(fakestore.UnknownNotApplied))
		r := run(t, st, aggregator.Config{Linger: -1})
		m := r.send(t, anonymous(one("a", 1)))
		settle(110 * time.Millisecond)
		if !acked(m) {
			t.Error("not tried again within 110 ms")
		}
	})
}

// A copy that is refused for its time does not affect the part under way. No id is in two open
// commits.
func TestACopyRefusedForItsTimeLeavesTheFirstAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, strict(t, fakestore.Options{Latency: 3 * time.Second}), aggregator.Config{Commits: 4})
		settle(2 * time.Minute)
		good := countmill.Increment{Counter: "a", Delta: 1, ID: "x"}
		ahead := good
		ahead.Time = time.Now().Add(48 * time.Hour)
		r.send(t, wire.CutIdentified(good))
		settle(time.Second)
		r.send(t, wire.CutIdentified(ahead))
		r.send(t, wire.CutIdentified(good))
		settle(time.Minute)
		r.want(t, map[string]int64{"a": 1})
		if got := r.reasons(); !slices.Equal(got, []string{"time is more than 24h ahead"}) {
			t.Errorf("dead letters %q, want the one that is ahead", got)
		}
		if got := r.store.Counts().Collisions; got > 0 {
			t.Errorf("%d commits met a marker, want the copy to wait", got)
		}
	})
}

// A marker that exists but is not found proves nothing: ask again, but not all the time.
func TestAMarkerThatIsNeverFoundIsNotLookedUpAllTheTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := strict(t, fakestore.Options{Latency: time.Millisecond})
		st.OnFold(func(int, *store.Commit) fakestore.Answer { return fakestore.MarkerExists })
		r := run(t, st, aggregator.Config{})
		m := r.send(t, anonymous(one("a", 1)))
		settle(time.Minute)
		if got := st.FoldCalls(); got > 50 || acked(m) {
			t.Errorf("%d commits in a minute, acknowledged %v", got, acked(m))
		}
	})
}

func TestARefusalAfterAnUnknownOutcomeSaysMaybeApplied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.On(fakestore.Applied, func(int) fakestore.Answer { return fakestore.Blank })
		st.OnFold(fakestore.FoldScript(fakestore.UnknownApplied, fakestore.Refused))
		r := run(t, st, aggregator.Config{})
		r.send(t, anonymous(one("a", 1)))
		settle(time.Minute)
		if got := st.DeadLetters(); len(got) != 1 || !got[0].Maybe {
			t.Errorf("dead letters %+v, want one that says maybe applied", got)
		}
	})
}

// A refused deployment has applied nothing: a person who replays the letter need not check.
func TestARefusalAfterAWrongDeploymentSaysNotApplied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		st.OnFold(fakestore.FoldScript(fakestore.Deployment, fakestore.Refused))
		r := run(t, st, aggregator.Config{})
		r.send(t, anonymous(one("a", 1)))
		settle(time.Minute)
		if got := st.DeadLetters(); len(got) != 1 || got[0].Maybe {
			t.Errorf("dead letters %+v, want one that does not say maybe applied", got)
		}
	})
}

func TestAfterAnUnknownOutcomeMarkersAreLookedUpFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		r := run(t, st, aggregator.Config{})
		settle(2 * time.Minute)
		st.OnFold(fakestore.FoldScript(fakestore.UnknownApplied))
		m := r.send(t, anonymous(one("a", 1)))
		settle(time.Minute)
		if got := st.FoldCalls(); got != 1 || !acked(m) {
			t.Errorf("%d commits, acknowledged %v, want one and then a look-up", got, acked(m))
		}
	})
}

func TestADuplicateDoesNotTakeItsCommitApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		r := run(t, st, aggregator.Config{})
		p := anonymous(one("a", 1))
		r.send(t, p)
		settle(2 * time.Minute) // markers are not looked up first any more
		before := st.FoldCalls()
		for range 40 {
			r.send(t, anonymous(one("a", 1)))
		}
		r.send(t, p)
		settle(time.Minute)
		r.want(t, map[string]int64{"a": 41})
		if got := st.FoldCalls() - before; got != 2 {
			t.Errorf("%d commits, want one that meets the marker and one without the duplicate", got)
		}
	})
}

// Nobody repeats a part without a marker, so its time does not matter. Its caller has a 202, and
// only a clock was wrong, or the machine was suspended.
func TestTheWindowIsForPartsWithMarkers(t *testing.T) {
	for name, c := range map[string]struct {
		age    time.Duration
		reason string // of the marked part's letter
	}{
		"of 1970": {30 * 365 * 24 * time.Hour, // a bubble begins in 2000
			"beyond the deduplication window of 192h0m0s"},
		"suspended":       {9 * 24 * time.Hour, "beyond the deduplication window of 192h0m0s"},
		"ahead by a year": {-365 * 24 * time.Hour, "time is more than 24h ahead"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := run(t, certain(t), aggregator.Config{})
				identified := wire.CutIdentified(countmill.Increment{Counter: "b", Delta: 1, ID: "x"})
				m := r.sendAt(t, time.Now().Add(-c.age), anonymous(one("a", 1)), identified)
				settle(time.Minute)
				r.want(t, map[string]int64{"a": 1})
				if got := r.reasons(); !acked(m) || !slices.Equal(got, []string{c.reason}) {
					t.Errorf("acknowledged %v, dead letters %q, want only the part with an id", acked(m), got)
				}
			})
		})
	}
}

// The machine is suspended while a part without a marker waits for its commit.
func TestASuspendedMachineCountsItsHeldParts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var slept atomic.Int64
		wall := func() time.Time { return time.Now().Add(time.Duration(slept.Load())) }
		st := certain(t)
		r := run(t, st, clock.With(aggregator.Config{Linger: time.Second}, &clock.Env{Wall: wall}))
		m := r.send(t, anonymous(one("a", 1)))
		slept.Store(int64(9 * 24 * time.Hour))
		settle(time.Minute)
		r.want(t, map[string]int64{"a": 1})
		if got := r.reasons(); !acked(m) || got != nil {
			t.Errorf("acknowledged %v, dead letters %q", acked(m), got)
		}
	})
}
