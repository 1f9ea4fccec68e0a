package aggregator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/wire"
)

// versioned is a batch as a later version may write it: the present format under another number.
func versioned(version byte, at time.Time, parts ...wire.Part) []byte {
	payload := wire.Append(nil, &wire.Batch{Time: at, Parts: parts})
	payload[1] = version
	return payload
}

// upTo reads such batches up to a version.
func upTo(version byte) func([]byte) (*wire.Batch, error) {
	return func(payload []byte) (*wire.Batch, error) {
		if len(payload) > 1 && payload[0] == 8 && payload[1] <= version {
			payload = append([]byte{8, wire.Version}, payload[2:]...)
		}
		return wire.Decode(payload)
	}
}

// sendNewer delivers a message of the next version that was published a while ago, and returns it.
func (r *rig) sendNewer(t *testing.T, age time.Duration) *message.Message {
	t.Helper()
	m := message.NewMessage("", versioned(wire.Version+1, time.Now(), anonymous(one("a", 1))))
	m.Metadata.Set(wire.MetaPublished, time.Now().Add(-age).Format(time.RFC3339Nano))
	r.deliver(t, m)
	return m
}

// wantUnready wants the aggregator to be not ready, and to name the version.
func (r *rig) wantUnready(t *testing.T) {
	t.Helper()
	if err := r.agg.Ready(); err == nil || !strings.Contains(err.Error(), fmt.Sprint("newer wire version ", wire.Version+1)) || !strings.Contains(err.Error(), "upgrade this aggregator") {
		t.Errorf("Ready: got %v, want an error that names the version and says what to do", err)
	}
}

func TestAMessageOfANewerVersionGoesBackToTheBus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{})
		m := r.sendNewer(t, time.Minute)
		settle(2 * time.Second)
		r.wantUnready(t)
		r.send(t, anonymous(one("b", 2)))
		settle(20 * time.Second)
		r.want(t, map[string]int64{"b": 2})
		if acked(m) || nacked(m) || len(r.reasons()) != 0 {
			t.Errorf("acknowledged %t, given back %t after 22 s, dead letters %q; want none", acked(m), nacked(m), r.reasons())
		}
		if s := r.agg.Stats(); s.Stalled || s.HeldMessages != 0 || s.Lag < 80*time.Second || s.Lag > 90*time.Second {
			t.Errorf("stalled %t, %d messages held, lag %s; want other messages taken, none held, and 82 s", s.Stalled, s.HeldMessages, s.Lag)
		}
		settle(10 * time.Second)
		if !nacked(m) {
			t.Error("not given back after half of its age")
		}
		settle(20 * time.Second)
		r.wantUnready(t)
		if got := r.agg.Stats().Lag; got != 0 {
			t.Errorf("lag %s when it had gone back", got)
		}
		settle(20 * time.Second)
		if err := r.agg.Ready(); err != nil {
			t.Errorf("a minute and more after the last one: got %v, want ready", err)
		}
	})
}

// Brokers give up a message that was delivered often. In a week it is delivered 250 times here,
// not once a second.
func TestAnOldMessageOfANewerVersionIsKeptForLonger(t *testing.T) {
	for age, want := range map[time.Duration]time.Duration{
		-time.Hour: time.Second, 0: time.Second, time.Hour: 30 * time.Minute, 7 * 24 * time.Hour: 45 * time.Minute,
	} {
		t.Run(age.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := run(t, large(t), aggregator.Config{})
				settle(2 * time.Second) // the store's time is known
				m, sent := r.sendNewer(t, age), time.Now()
				select {
				case <-m.Nacked():
				case <-time.After(time.Hour):
				}
				if got := time.Since(sent).Round(time.Second); got != want {
					t.Errorf("it went back after %s, want %s", got, want)
				}
			})
		})
	}
}

// A young message does not wait for an old one.
func TestMessagesOfANewerVersionGoBackWhenDue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{})
		old, young := r.sendNewer(t, time.Hour), r.sendNewer(t, time.Minute)
		settle(time.Minute)
		if nacked(old) || !nacked(young) {
			t.Errorf("after a minute the old one was given back: %t, the young one: %t; want the young one alone", nacked(old), nacked(young))
		}
	})
}

// Only few messages of newer versions are kept, and they do not block others.
func TestMessagesOfANewerVersionHoldUpNoOthers(t *testing.T) {
	for held, most := range map[int]int{1: 1, 300: 1, 600: 3} {
		t.Run(fmt.Sprint(held), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := run(t, large(t), aggregator.Config{HeldMessages: held})
				var all []*message.Message
				for range 100 {
					all = append(all, r.sendNewer(t, time.Hour))
				}
				settle(time.Second)
				for i, m := range all {
					if nacked(m) != (i < 100-most) {
						t.Errorf("message %d was given back: %t, want all but the last %d", i, nacked(m), most)
					}
				}
				r.send(t, anonymous(one("b", 2)))
				settle(time.Second)
				r.want(t, map[string]int64{"b": 2})
			})
		})
	}
}

// A drain gives them back at once.
func TestADrainGivesMessagesOfANewerVersionBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{})
		m, sent := r.sendNewer(t, time.Hour), time.Now()
		settle(time.Second)
		if err := r.finish(); err != nil || !nacked(m) || time.Since(sent) > 3*time.Second {
			t.Errorf("Run ended after %s: %v, given back %t", time.Since(sent), err, nacked(m))
		}
	})
}
