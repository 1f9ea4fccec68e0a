package publisher

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
)

// Accepted increments that the bus lost stay lost: no later Flush may report that the bus has
// them.
func TestFlushReportsEarlierLosses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		bus.answer = func(call int, _ *message.Message) (bool, error) {
			if call == 0 {
				return false, countmill.ErrClosed
			}
			return true, nil
		}
		p := open(t, bus, Config{Linger: -1})
		must(t, p.Add("a", 1))
		must(t, p.Add("b", 1))
		synctest.Wait()
		must(t, p.Add("c", 1))
		for range 2 {
			_, err := p.Flush(ctx)
			if !errors.Is(err, countmill.ErrOutcomeUnknown) || errors.Is(err, countmill.ErrClosed) || !strings.Contains(err.Error(), "2 increments") {
				t.Errorf("Flush after a batch was lost: got %v, want 2 increments of unknown outcome", err)
			}
		}
		bus.wantTotals(map[string]int64{"c": 1})
		if err := p.Close(ctx); !errors.Is(err, countmill.ErrOutcomeUnknown) {
			t.Errorf("Close: got %v, want ErrOutcomeUnknown", err)
		}
	})
}

// A lost Publish has returned an error. Flush reports only increments of Add.
func TestFlushIgnoresTheLossesOfPublish(t *testing.T) {
	t.Parallel()
	bus := newBus(t)
	bus.answer = func(call int, _ *message.Message) (bool, error) {
		if call == 0 {
			return false, countmill.ErrClosed
		}
		return true, nil
	}
	p := open(t, bus, Config{Linger: -1})
	if _, err := p.Publish(ctx, inc("a", 1)); !errors.Is(err, countmill.ErrOutcomeUnknown) {
		t.Errorf("Publish: got %v, want ErrOutcomeUnknown", err)
	}
	must(t, p.Add("b", 1))
	must(t, errOf(p.Flush(ctx)))
	_ = p.Close(ctx)
}

// An increment that a request holds twice under one id has the older of the two times: a
// marker that the older one left may be forgotten by the time of the younger one.
func TestARepeatedIDHasTheOlderTime(t *testing.T) {
	t.Parallel()
	now := time.Now().Truncate(time.Microsecond)
	old := now.Add(-3 * time.Hour)
	for name, tc := range map[string]struct{ first, second, want time.Time }{
		"older first":  {old, now, old},
		"older second": {now, old, old},
		"none first":   {time.Time{}, old, old},
		"none second":  {old, time.Time{}, old},
		"none":         {},
	} {
		r, err := newRequest([]countmill.Increment{
			{Counter: "a", Delta: 1, ID: "x", Time: tc.first}, {Counter: "b", Delta: 1, ID: "x", Time: now}, {Counter: "a", Delta: 1, ID: "x", Time: tc.second},
		}, 0)
		must(t, err)
		if len(r.parts) != 2 || !r.parts[0].Time.Equal(tc.want) || !r.parts[1].Time.Equal(now) {
			t.Errorf("%s: %d parts of %s and %s, want 2 of %s and %s", name, len(r.parts), r.parts[0].Time, r.parts[1].Time, tc.want, now)
		}
	}
}
