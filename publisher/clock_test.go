package publisher

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
)

// A machine that starts without a clock of its own shows 1970 until it has asked for the
// time. Its batches would be dead letters until then. So nothing is accepted, and Ready says why.
func TestAClockThatCannotBeRightRefusesAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		var behind atomic.Int64
		wall := func() time.Time { return time.Now().Add(-time.Duration(behind.Load())) }
		p := open(t, bus, Config{Linger: -1, env: &clock.Env{Wall: wall}})
		set := func(right bool) {
			behind.Store(0)
			if !right {
				behind.Store(int64(time.Since(time.Unix(10, 0))))
			}
		}
		set(false)
		h, err := p.Counter("handle")
		must(t, err)
		future := countmill.Increment{Counter: "a", Delta: 1, ID: "x", Time: time.Now()} // to this clock
		for name, err := range map[string]error{
			"Add": p.Add("a", 1), "handle": h.Add(1), "Publish": errOf(p.Publish(ctx, inc("a", 1))), "an id": errOf(p.Publish(ctx, future)),
			"PublishKeyed": errOf(p.PublishKeyed(ctx, "", "k", future)), "Ready": p.Ready(),
		} {
			if !errors.Is(err, countmill.ErrUnavailable) || !strings.Contains(err.Error(), "1970-01-01") {
				t.Errorf("%s: got %v, want ErrUnavailable that names the time", name, err)
			}
		}
		synctest.Wait()
		if bus.calls != 0 || p.Stats().OpenEntries != 0 {
			t.Errorf("%d messages were sent and %d entries are open, want none", bus.calls, p.Stats().OpenEntries)
		}
		set(true)
		must(t, p.Ready())
		must(t, h.Add(1))
		must(t, errOf(p.Publish(ctx, future)))
		must(t, errOf(p.Flush(ctx)))
		bus.wantTotals(map[string]int64{"handle": 1, "a": 1})
		closeNow(t, p)
	})
}

// An increment that was accepted while the clock was right keeps its time when the clock is set back, and waits no longer than
// the linger.
func TestAClockThatIsSetTo1970KeepsTheOpenBatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		var behind atomic.Int64
		p := open(t, bus, Config{Linger: time.Second, env: &clock.Env{Wall: func() time.Time { return time.Now().Add(-time.Duration(behind.Load())) }}})
		began := time.Now().Truncate(time.Microsecond)
		must(t, p.Add("a", 1))
		behind.Store(int64(time.Since(time.Unix(10, 0))))
		must(t, p.Add("a", 1))
		time.Sleep(1100 * time.Millisecond)
		bus.wantTotals(map[string]int64{"a": 2})
		if got := bus.batches[0].Time; !got.Equal(began) {
			t.Errorf("the batch's time is %s, want %s", got, began)
		}
		closeNow(t, p)
	})
}
