package publisher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// A bus that holds a message may ask for a longer wait, up to 30 s.
func TestHeldMessagesWaitLonger(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ after, least, most time.Duration }{
		{0, 0, minBackoff}, {20 * time.Second, 20 * time.Second, 20 * time.Second}, {time.Hour, 30 * time.Second, 30 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			bus := newBus(t)
			bus.answer = func(call int, _ *message.Message) (bool, error) {
				if call > 0 {
					return true, nil
				}
				return false, fmt.Errorf("bus: %w", &wire.HeldError{Reason: errors.New("come again"), After: tc.after})
			}
			p, err := New(bus, Config{Linger: -1})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if _, err := p.Publish(t.Context(), countmill.Increment{Counter: "a", Delta: 1}); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took < tc.least || took > tc.most+time.Millisecond {
				t.Errorf("asked for %s: the repeat came after %s, want %s to %s", tc.after, took, tc.least, tc.most)
			}
			if err := p.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Close ends a pause, because what held the message may be repaired. It does not try without pauses.
func TestCloseEndsPauses(t *testing.T) {
	t.Parallel()
	for _, repaired := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			bus := newBus(t)
			var up atomic.Bool
			bus.answer = func(int, *message.Message) (bool, error) {
				if !up.Load() {
					return false, &wire.HeldError{Reason: errors.New("no token"), After: time.Hour}
				}
				return true, nil
			}
			p := open(t, bus, Config{Linger: -1, MaxInFlight: 1})
			must(t, p.Add("asleep", 1))
			time.Sleep(5 * time.Second)
			must(t, p.Add("waits", 1))
			synctest.Wait()
			up.Store(repaired)
			short, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			if err := p.Close(short); (err == nil) != repaired {
				t.Errorf("repaired %t: Close: got %v", repaired, err)
			}
			synctest.Wait()
			want := map[string]int64{}
			if repaired {
				want = map[string]int64{"asleep": 1, "waits": 1}
			}
			if bus.wantTotals(want); bus.calls > 3 {
				t.Errorf("repaired %t: %d calls", repaired, bus.calls)
			}
		})
	}
}

// Messages that the bus refuses alone leave their slots to others while they wait, up to MaxBytes and maxAside.
func TestMessagesHeldAloneLeaveTheirSlots(t *testing.T) {
	t.Parallel()
	const bound = 10_000
	for _, tc := range []struct {
		name     string
		cfg      Config
		old      int // messages
		long     bool
		repaired bool
	}{
		{"long", Config{}, 3, true, true}, {"beyond MaxBytes", Config{MaxBytes: bound}, bound/400 + 1, false, true},
		{"beyond maxAside", Config{}, maxAside + 1, false, true}, {"for ever", Config{}, 3, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bus := newBus(t)
				var repaired atomic.Bool
				bus.answer = func(_ int, m *message.Message) (bool, error) {
					if !repaired.Load() && bytes.Contains(m.Payload, []byte("old")) {
						return false, &wire.HeldError{Reason: errors.New("clock-skew"), After: 30 * time.Second, Alone: true}
					}
					return true, nil
				}
				tc.cfg.Linger, tc.cfg.MaxInFlight = -1, 1
				p := open(t, bus, tc.cfg)
				want := map[string]int64{"new": 2}
				for n := range tc.old {
					name := fmt.Sprint(strings.Repeat("x", 400), "old", n)
					must(t, p.Add(name, 1))
					want[name] = 1
					synctest.Wait()
				}
				if tc.long {
					want["old"] = 30_000
					go func() { _, _ = p.Publish(ctx, longIncrements("old")...) }()
					synctest.Wait()
				}
				for range 2 {
					must(t, p.Add("new", 1))
					time.Sleep(time.Minute)
					if taken := bus.totals()["new"] > 0; taken == (tc.old > 3) {
						t.Errorf("a message behind %d that wait was sent: %t", tc.old, taken)
					}
				}
				repaired.Store(tc.repaired)
				short, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				if err := p.Close(short); tc.repaired && err != nil || !tc.repaired && (!errors.Is(err, countmill.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "30003 increments")) {
					t.Errorf("Close: got %v", err)
				}
				if tc.repaired {
					bus.wantTotals(want)
				}
				synctest.Wait()
				if s := p.Stats(); s.InFlight != 0 || p.aside != 0 || p.asideBytes != 0 {
					t.Errorf("%d messages have a slot, and %d of %d bytes wait", s.InFlight, p.aside, p.asideBytes)
				}
			})
		})
	}
}

// Messages that came back go before new ones of the same flush. So the bus must remember few.
func TestMessagesThatCameBackGoFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		var repaired atomic.Bool
		bus.answer = func(int, *message.Message) (bool, error) {
			if !repaired.Load() {
				return false, &wire.HeldError{Reason: errors.New("clock-skew"), After: 30 * time.Second, Alone: true}
			}
			return false, nil
		}
		p := open(t, bus, Config{MaxInFlight: 1})
		for name, many := range map[string]int{"first": 500, "second": 2000} {
			s := &flush{done: make(chan struct{}), messages: make([]Sent, many)}
			messages := make([]*busMessage, many)
			for i := range messages {
				messages[i] = &busMessage{flush: s, number: i, uuid: fmt.Sprint(name, i)}
			}
			p.enqueue(s, messages)
			p.signal()
			time.Sleep(29 * time.Second)
		}
		time.Sleep(5 * time.Minute)
		bus.mu.Lock()
		if seen := len(bus.payloads); seen > maxAside+2 {
			t.Errorf("the bus has seen %d messages, and taken none", seen)
		}
		bus.mu.Unlock()
		repaired.Store(true)
		time.Sleep(5 * time.Minute)
		if closeNow(t, p); p.Stats().Messages != 2500 {
			t.Errorf("%d messages were sent, want 2500", p.Stats().Messages)
		}
	})
}
