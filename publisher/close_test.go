package publisher

import (
	"context"
	"crypto/rand"
	"errors"
	"hash/maphash"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
)

// An accepted increment is sent even if Close comes before the signal that would have started the
// sender.
func TestCloseSendsWithoutASignal(t *testing.T) {
	t.Parallel()
	for name, accept := range map[string]func(*Publisher) error{
		"Add": func(p *Publisher) error {
			place := maphash.String(p.seed, "a")
			_, _, err := p.stripes[stripeOf(place)].addSlow(place, "a", 1)
			return err
		},
		"Publish": func(p *Publisher) error {
			r, err := newRequest([]countmill.Increment{inc("a", 1)}, 0)
			if err == nil {
				r.at, r.done = time.Now(), make(chan struct{})
				_, err = p.admit(r)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bus := newBus(t)
			p := open(t, bus, Config{})
			must(t, accept(p))
			closeNow(t, p)
			bus.wantTotals(map[string]int64{"a": 1})
		})
	}
}

// Close gives up while the sender flushes the next batch.
func TestABatchThatIsFlushedTooLateIsNotSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		gaveUp := make(chan struct{})
		entropy := readFunc(func(b []byte) (int, error) { <-gaveUp; return rand.Read(b) })
		p := open(t, bus, Config{Linger: -1, env: &clock.Env{Entropy: entropy}})
		must(t, p.Add("a", 1))
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err := p.Close(short)
		if !errors.Is(err, countmill.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "1 increments") {
			t.Errorf("Close: got %v, want 1 increment of unknown outcome", err)
		}
		close(gaveUp)
		synctest.Wait()
		if bus.calls != 0 {
			t.Errorf("%d messages were sent after that", bus.calls)
		}
	})
}
