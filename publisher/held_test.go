package publisher

import (
	"errors"
	"fmt"
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
