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
	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
)

// The statistics are exact: every increment is in one place at a time, and a repeated one is
// counted once.
func TestStatsSayWhatHappened(t *testing.T) {
	t.Parallel()
	const counter = int64(entryCost + 1) // what "a" takes while it is open
	fail := func(calls int, err error) func(*fakeBus) {
		return func(b *fakeBus) {
			b.answer = func(call int, _ *message.Message) (bool, error) {
				if call < calls {
					return false, err
				}
				return true, nil
			}
		}
	}
	block := func(b *fakeBus) { b.blockUntil(make(chan struct{})) }
	for name, tc := range map[string]struct {
		bus    func(*fakeBus)
		cfg    Config
		script func(t *testing.T, p *Publisher)
		want   Stats // Bytes are those on the bus
	}{
		"nothing": {script: func(*testing.T, *Publisher) {}},
		"open": {
			script: func(t *testing.T, p *Publisher) {
				must(t, p.Add("a", 1))
				must(t, p.Add("a", 1))
				must(t, p.Add("b", 1))
			},
			want: Stats{OpenEntries: 2, OpenBytes: 2 * counter},
		},
		"sent": {
			script: func(t *testing.T, p *Publisher) {
				must(t, p.Add("a", 1))
				must(t, errOf(p.Publish(ctx, inc("a", 1), inc("b", 1))))
				must(t, errOf(p.PublishKeyed(ctx, "", "k", inc("a", 1))))
			},
			want: Stats{Increments: 4, Durable: 4, Entries: 3, Messages: 2},
		},
		"in two messages": {
			script: func(t *testing.T, p *Publisher) {
				for i := range 1500 {
					must(t, p.Add(strings.Repeat("x", 490)+fmt.Sprint(i), 1))
				}
				must(t, errOf(p.Flush(ctx)))
			},
			want: Stats{Increments: 1500, Durable: 1500, Entries: 1500, Messages: 2},
		},
		"cancelled out": {
			script: func(t *testing.T, p *Publisher) {
				must(t, errOf(p.Publish(ctx, inc("a", 1), inc("a", -1))))
			},
			want: Stats{Increments: 2, Durable: 2},
		},
		"sent again": {
			bus:    fail(2, errors.New("away")),
			script: func(t *testing.T, p *Publisher) { must(t, errOf(p.Publish(ctx, inc("a", 1)))) },
			want:   Stats{Increments: 1, Durable: 1, Entries: 1, Messages: 1, Resends: 2},
		},
		"outcome unknown": {
			bus: fail(1, countmill.ErrClosed),
			script: func(t *testing.T, p *Publisher) {
				_, _ = p.Publish(ctx, inc("a", 1), inc("b", 1))
				must(t, errOf(p.Publish(ctx, inc("c", 1))))
			},
			want: Stats{Increments: 3, Durable: 1, Unknown: 2, Entries: 1, Messages: 1},
		},
		"refused": {
			cfg: Config{MaxEntries: 2},
			script: func(t *testing.T, p *Publisher) {
				must(t, errOf(p.PublishKeyed(ctx, "", "k", inc("a", 1))))
				_, _ = p.PublishKeyed(ctx, "", "k", inc("b", 1))             // conflict
				_, _ = p.Publish(ctx, inc("a", 1), inc("b", 1), inc("c", 1)) // overloaded
				_, _ = p.Publish(ctx, inc("a", 0))                           // not valid
				closeNow(t, p)
				_ = p.Add("a", 1)
				_, _ = p.Publish(ctx, inc("a", 1))
			},
			want: Stats{Increments: 1, Durable: 1, Refused: 6, Entries: 1, Messages: 1},
		},
		"withdrawn": {
			bus: block,
			cfg: Config{Linger: time.Hour},
			script: func(t *testing.T, p *Publisher) {
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_, _ = p.Publish(short, inc("a", 1), inc("b", 1))
			},
		},
		"under way": {
			bus: block,
			cfg: Config{Linger: -1, MaxInFlight: 1},
			script: func(t *testing.T, p *Publisher) {
				var incs []countmill.Increment
				for i := range 1500 {
					incs = append(incs, inc(strings.Repeat("x", 490)+fmt.Sprint(i), 1))
				}
				go func() { _, _ = p.Publish(ctx, incs...) }()
				synctest.Wait()
				must(t, p.Add("a", 1))
			},
			want: Stats{Increments: 1500, InFlight: 1, Queued: 1, Unsettled: 1, OpenEntries: 1, OpenBytes: counter},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				bus := newBus(t)
				if tc.bus != nil {
					tc.bus(bus)
				}
				p := open(t, bus, tc.cfg)
				tc.script(t, p)
				want := tc.want
				want.Bytes = bus.bytes
				if diff := cmp.Diff(want, p.Stats()); diff != "" {
					t.Errorf("stats (-want +got):\n%s", diff)
				}
				over, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_ = p.Close(over)
			})
		})
	}
}
