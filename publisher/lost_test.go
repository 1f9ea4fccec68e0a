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
		p := open(t, bus, Config{Linger: time.Second})
		must(t, p.Add("a", 1))
		must(t, p.Add("b", 1))
		time.Sleep(2 * time.Second) // one batch has both
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
