package publisher

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/wire"
)

func TestThreeQuartersOfABatchEndTheLinger(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"entries": {Linger: time.Hour, MaxEntries: 10},
		"bytes":   {Linger: time.Hour, MaxBytes: 8*(entryCost+1) + requestCost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				bus := newBus(t)
				p := open(t, bus, cfg)
				want := map[string]int64{}
				for i := range 8 {
					synctest.Wait()
					bus.wantTotals(map[string]int64{})
					must(t, p.Add(fmt.Sprint(i), 1))
					want[fmt.Sprint(i)]++
				}
				synctest.Wait()
				bus.wantTotals(want)
				began := time.Now()
				must(t, errOf(p.Publish(ctx, inc("0", 1), inc("1", 1), inc("2", 1), inc("3", 1), inc("4", 1), inc("5", 1), inc("6", 1), inc("7", 1))))
				if took := time.Since(began); took != 0 {
					t.Errorf("a request of more than three quarters of a batch waited for %s", took)
				}
				closeNow(t, p)
			})
		})
	}
}

// The sender  finds the batch not due, and has yet to go to sleep
// Add         fills it to three quarters: the sender must not sleep through that
func TestABatchThatFillsWhileTheSenderLooks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		var p *Publisher
		var looks atomic.Int64
		wall := func() time.Time {
			if looks.Add(1) == 2 { // the sender's, after Add's
				for i := range 7 {
					must(t, p.Add(fmt.Sprint(i), 1))
				}
			}
			return time.Now()
		}
		p = open(t, bus, Config{Linger: time.Hour, MaxEntries: 10, env: &clock.Env{Wall: wall}})
		must(t, p.Add("first", 1))
		synctest.Wait()
		bus.wantTotals(map[string]int64{"first": 1, "0": 1, "1": 1, "2": 1, "3": 1, "4": 1, "5": 1, "6": 1})
		closeNow(t, p)
	})
}

// A Flush ends the linger of the increments before it, and of no others.
func TestAFlushKeepsTheLingerOfLaterIncrements(t *testing.T) {
	t.Parallel()
	for name, flush := range map[string]func(t *testing.T, p *Publisher, bus *fakeBus, flushing *func()){
		"added while it is flushed": func(t *testing.T, p *Publisher, _ *fakeBus, flushing *func()) {
			*flushing = func() { must(t, p.Add("later", 1)) }
			must(t, errOf(p.Flush(ctx)))
		},
		"added after it was given up": func(t *testing.T, p *Publisher, bus *fakeBus, _ *func()) {
			release := make(chan struct{})
			bus.blockUntil(release)
			for range 2 { // the second has no slot and is withdrawn
				short, cancel := context.WithTimeout(ctx, time.Second)
				if _, err := p.Flush(short); !errors.Is(err, countmill.ErrOutcomeUnknown) {
					t.Errorf("Flush: got %v, want ErrOutcomeUnknown", err)
				}
				cancel()
			}
			close(release)
			synctest.Wait()
			must(t, p.Add("later", 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				bus := newBus(t)
				var flushing func() // called once, by the sender
				entropy := readFunc(func(b []byte) (int, error) {
					if f := flushing; f != nil {
						flushing = nil
						f()
					}
					return rand.Read(b)
				})
				p := open(t, bus, Config{Linger: time.Minute, MaxInFlight: 1, env: &clock.Env{Entropy: entropy}})
				must(t, p.Add("a", 1))
				flush(t, p, bus, &flushing)
				synctest.Wait()
				bus.wantTotals(map[string]int64{"a": 1})
				time.Sleep(time.Minute)
				synctest.Wait()
				bus.wantTotals(map[string]int64{"a": 1, "later": 1})
				closeNow(t, p)
			})
		})
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

// Without a linger the first increment leaves at once. Increments that arrive during its call
// leave together, when that call ends, or 10 ms later because a call can hang.
func TestWithoutALingerIncrementsGatherDuringCalls(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]time.Duration{"calls of 5ms": 5 * time.Millisecond, "a call that hangs": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				bus := newBus(t)
				bus.answer = func(n int, _ *message.Message) (bool, error) {
					if n == 0 {
						time.Sleep(call)
					}
					return true, nil
				}
				p := open(t, bus, Config{Linger: -1})
				began := time.Now()
				must(t, p.Add("first", 1))
				synctest.Wait()
				if n := p.Stats().InFlight; n != 1 {
					t.Fatalf("%d calls are under way after the first increment, want 1", n)
				}
				for range 3 {
					time.Sleep(time.Millisecond)
					must(t, p.Add("later", 1))
				}
				must(t, errOf(p.Publish(ctx, inc("later", 1))))
				if took, want := time.Since(began), min(call, time.Millisecond+10*time.Millisecond); took != want {
					t.Errorf("what came meanwhile was there after %s, want %s", took, want)
				}
				closeNow(t, p)
				if bus.messages != 2 {
					t.Errorf("%d messages, want 2", bus.messages)
				}
				bus.wantTotals(map[string]int64{"first": 1, "later": 4})
			})
		})
	}
}

// Increments without a waiting caller stay until the calls under way have ended, or for two
// seconds. After a batch that kept the store busy they stay four times as long as that took. After a
// small batch they leave when its calls end.
func TestWithoutALingerBatchesGrowWhileTheStoreIsBusy(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		counters   int
		waited     bool // somebody waits for the second batch
		call, want time.Duration
	}{
		"a call that hangs":   {1, false, time.Hour, time.Millisecond + 2*time.Second},
		"small and slow":      {manyEntries - 1, false, 300 * time.Millisecond, 300 * time.Millisecond},
		"large":               {manyEntries, false, 300 * time.Millisecond, time.Millisecond + 1200*time.Millisecond},
		"large and very slow": {manyEntries, false, 1500 * time.Millisecond, time.Millisecond + 2*time.Second},
		"large and waited":    {manyEntries, true, 5 * time.Millisecond, 5 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				bus, began := newBus(t), time.Now()
				second := make(chan time.Duration, 10)
				bus.answer = func(n int, _ *message.Message) (bool, error) {
					if n == 0 {
						time.Sleep(tc.call)
					} else {
						second <- time.Since(began)
					}
					return true, nil
				}
				p := open(t, bus, Config{Linger: -1})
				incs := make([]countmill.Increment, tc.counters)
				for i := range incs {
					incs[i] = inc(fmt.Sprint(i), 1)
				}
				result := make(chan error, 1)
				go func() { result <- errOf(p.Publish(ctx, incs...)) }()
				time.Sleep(time.Millisecond)
				if tc.waited {
					must(t, errOf(p.Publish(ctx, inc("later", 1))))
				} else {
					must(t, p.Add("later", 1))
				}
				if got := <-second; got != tc.want {
					t.Errorf("the next increment left after %s, want %s", got, tc.want)
				}
				must(t, <-result)
				synctest.Wait()
				began = time.Now()
				must(t, p.Add("alone", 1))
				if got := <-second; got != 0 {
					t.Errorf("the next batch left after %s: a small batch must not delay it", got)
				}
				closeNow(t, p)
			})
		})
	}
}

// The answers of a bus may come after the fold. Then the linger grows after a batch that kept the store
// busy, unless somebody waits.
func TestTheLingerGrowsWhileTheStoreIsBusy(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		counters int
		counted  bool
		waited   bool // somebody waits for the second batch
		call     time.Duration
		want     time.Duration
	}{
		"large":               {manyEntries, true, false, 300 * time.Millisecond, 1200 * time.Millisecond},
		"large and very slow": {manyEntries, true, false, time.Second, 2 * time.Second},
		"large and fast":      {manyEntries, true, false, 20 * time.Millisecond, 250 * time.Millisecond},
		"large and waited":    {manyEntries, true, true, 300 * time.Millisecond, 250 * time.Millisecond},
		"large, folded later": {manyEntries, false, false, 300 * time.Millisecond, 250 * time.Millisecond},
		"small and slow":      {manyEntries - 1, true, false, 300 * time.Millisecond, 250 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				bus := newBus(t)
				second := make(chan time.Time, 10)
				bus.answer = func(n int, m *message.Message) (bool, error) {
					if n > 0 {
						second <- time.Now()
						return true, nil
					}
					time.Sleep(tc.call)
					if tc.counted {
						wire.OfferedReply(m.Context()).Answer(wire.Receipt{}, time.Now())
					}
					return true, nil
				}
				p := open(t, bus, Config{})
				for i := range tc.counters {
					must(t, p.Add(fmt.Sprint(i), 1))
				}
				must(t, errOf(p.Flush(ctx)))
				began := time.Now()
				if tc.waited {
					must(t, errOf(p.Publish(ctx, inc("later", 1))))
				} else {
					must(t, p.Add("later", 1))
				}
				if got := (<-second).Sub(began); got != tc.want {
					t.Errorf("the next increment left after %s, want %s", got, tc.want)
				}
				closeNow(t, p)
			})
		})
	}
}
