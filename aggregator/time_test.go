package aggregator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
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
				r := run(t, strict(t, protocoltest.Options{ClockOffset: c.offset, Window: 24 * time.Hour}), aggregator.Config{})
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

// A message beyond the window is a dead letter as soon as it would be counted: nothing else may wake the aggregator.
func TestAMessageBeyondTheWindowIsADeadLetterAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, strict(t, protocoltest.Options{Window: 24 * time.Hour}), aggregator.Config{Linger: 300 * time.Millisecond})
		settle(time.Minute)
		for n := range 5 {
			m := r.sendAt(t, time.Now().Add(-25*time.Hour), identified(fmt.Sprint(n), 1))
			settle(300 * time.Millisecond)
			if !acked(m) || len(r.reasons()) != n+1 {
				t.Errorf("message %d: acknowledged %t, dead letters %q", n, acked(m), r.reasons())
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

// A marker that exists but is not found proves nothing: ask again, but not all the time.
func TestAMarkerThatIsNeverFoundIsNotLookedUpAllTheTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := strict(t, protocoltest.Options{Latency: time.Millisecond})
		st.OnFold(func(int, *store.Commit) protocoltest.Answer { return protocoltest.MarkerExists })
		r := run(t, st, aggregator.Config{})
		m := r.send(t, anonymous(one("a", 1)))
		settle(time.Minute)
		if got := st.FoldCalls(); got > 50 || acked(m) {
			t.Errorf("%d commits in a minute, acknowledged %v", got, acked(m))
		}
	})
}

// A person who replays the letter need not check what was certainly not applied.
func TestARefusedPartSaysWhetherItMayBeApplied(t *testing.T) {
	for first, maybe := range map[protocoltest.Answer]bool{protocoltest.UnknownApplied: true, protocoltest.Deployment: false, protocoltest.NotApplied: false} {
		t.Run(fmt.Sprint(first), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := large(t)
				st.On("get marker", func(int) protocoltest.Answer { return protocoltest.Blank })
				st.OnFold(protocoltest.FoldScript(first, protocoltest.Refused))
				r := run(t, st, aggregator.Config{})
				r.send(t, anonymous(one("a", 1)))
				settle(time.Minute)
				if got := st.DeadLetters(); len(got) != 1 || got[0].Maybe != maybe {
					t.Errorf("dead letters %+v, want one, maybe applied: %t", got, maybe)
				}
			})
		})
	}
}
