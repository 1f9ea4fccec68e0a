package publisher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
)

// longIncrements have ids, and are far more than one message holds.
func longIncrements(name string) []countmill.Increment {
	all := make([]countmill.Increment, 30_000)
	for i := range all {
		all[i] = countmill.Increment{Counter: name, Delta: 1, ID: fmt.Sprint(i, strings.Repeat("x", 40))}
	}
	return all
}

// slow makes each call of the bus take a second.
func (b *fakeBus) slow() {
	b.answer = func(int, *message.Message) (bool, error) {
		time.Sleep(time.Second)
		return true, nil
	}
}

// A request with few increments waits for a part of a long one, and not for all of it. The long one goes on beside many such
// requests, and nothing is lost.
func TestLongRequestsTakeTurns(t *testing.T) {
	t.Parallel()
	for _, slots := range []int{1, 2, 8} {
		t.Run(fmt.Sprint(slots), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bus := newBus(t)
				bus.slow()
				p := open(t, bus, Config{Linger: -1, MaxInFlight: slots})
				ended := make(chan time.Time, 2)
				began := time.Now()
				for _, name := range []string{"long", "longer"} {
					go func() {
						must(t, errOf(p.Publish(ctx, longIncrements(name)...)))
						ended <- time.Now()
					}()
				}
				synctest.Wait()
				for n := range 5 {
					before := time.Now()
					must(t, errOf(p.Publish(ctx, inc("small", 1))))
					if took := time.Since(before); took > 3*time.Second {
						t.Errorf("small request %d took %s beside long ones, want a few calls of a second", n, took)
					}
				}
				for n := range int64(3) { // Add alone gets turns, too
					must(t, p.Add("added", 1))
					time.Sleep(5 * time.Second) // a gather and two calls are 4s
					if got := bus.totals()["added"]; got != n+1 {
						t.Errorf("%d of %d increments of Add were sent within 5s each, beside long ones", got, n+1)
					}
				}
				if first := <-ended; first.Sub(began) > 2*time.Minute {
					t.Errorf("the first long request took %s", first.Sub(began))
				}
				<-ended
				closeNow(t, p)
				bus.wantTotals(map[string]int64{"long": 30_000, "longer": 30_000, "small": 5, "added": 3})
			})
		})
	}
}

// A long request has the only slot while others wait for their flush, and not for a slot.
func TestLongRequestsGoOnWhileOthersLinger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		bus.slow()
		p := open(t, bus, Config{CountWithin: time.Minute, MaxInFlight: 1})
		small := make(chan error, 1)
		go func() {
			for range 3 {
				small <- errOf(p.Publish(ctx, inc("small", 1)))
			}
		}()
		synctest.Wait()
		began := time.Now()
		must(t, errOf(p.Publish(ctx, longIncrements("long")...)))
		if took := time.Since(began); took > time.Minute {
			t.Errorf("a long request of some 20 messages of a second took %s", took)
		}
		for range 3 {
			must(t, <-small)
		}
		if took := time.Since(began); took > 4*time.Minute {
			t.Errorf("three small requests one after the other took %s", took)
		}
		closeNow(t, p)
	})
}

// A long request that waits for its turn can be withdrawn, and one that does not is sent by Close.
func TestLongRequestsWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		release := make(chan struct{})
		bus.blockUntil(release)
		p := open(t, bus, Config{Linger: -1, MaxInFlight: 1})
		errs := make(chan error, 3)
		publish := func(ctx context.Context, name string) {
			go func() { errs <- errOf(p.Publish(ctx, longIncrements(name)...)) }()
			synctest.Wait()
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		publish(ctx, "first")
		publish(short, "withdrawn")
		publish(ctx, "last")
		if err := <-errs; !errors.Is(err, countmill.ErrUnavailable) {
			t.Errorf("the withdrawn one got %v", err)
		}
		if s := p.Stats(); s.Waiting != 1 || s.OpenEntries != 30_000 {
			t.Errorf("%d requests with %d increments wait, want the last one", s.Waiting, s.OpenEntries)
		}
		close(release)
		closeNow(t, p)
		must(t, <-errs)
		must(t, <-errs)
		bus.wantTotals(map[string]int64{"first": 30_000, "last": 30_000})
	})
}
