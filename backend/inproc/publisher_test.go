package inproc_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend/inproc"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/wire"
)

// fold counts messages without markers and refuses some of them, as an aggregator does that trusts this
// bus with anonymous parts.
func fold(t *testing.T, messages <-chan *message.Message) int64 {
	total := int64(0)
	for m := range messages {
		if rand.N(3) == 0 {
			m.Nack()
			continue
		}
		b, err := wire.Decode(m.Payload)
		if err != nil {
			t.Error(err)
		}
		for _, p := range b.Parts {
			for _, e := range p.Entries {
				total += e.Delta
			}
		}
		m.Ack()
	}
	return total
}

func TestPublisherCountsOnceWithoutMarkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(clock.Earliest)) // a synctest bubble begins in the year 2000
		bus := open(t, inproc.Config{WaitForAck: true})
		messages := subscribe(t, bus, t.Context())
		p, err := publisher.New(bus, publisher.Config{Topic: "t", Linger: -1})
		if err != nil {
			t.Fatal(err)
		}
		var callers sync.WaitGroup
		for i := range 20 {
			callers.Go(func() {
				for range 50 {
					if err := p.Add("a", 1); err != nil {
						t.Error(err)
					}
					if _, err := p.Publish(t.Context(), countmill.Increment{Counter: fmt.Sprint(i), Delta: 1}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		go func() {
			callers.Wait()
			if err := p.Close(t.Context()); err != nil {
				t.Error(err)
			}
			_ = bus.Close()
		}()
		if got := fold(t, messages); got != 2000 {
			t.Errorf("counted %d, want 2000", got)
		}
	})
}
