package publisher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// byMinutes sums the deltas that the bus took, by counter and by minutes since then.
func (b *fakeBus) byMinutes(since time.Time) map[string]int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	sums := map[string]int64{}
	for _, batch := range b.batches {
		for i := range batch.Parts {
			minute := batch.Minute(&batch.Parts[i]) - wire.MinuteOf(since)
			for _, e := range batch.Parts[i].Entries {
				sums[fmt.Sprint(minute, " ", e.Counter)] += e.Delta
			}
		}
	}
	return sums
}

func (b *fakeBus) wantByMinutes(since time.Time, want map[string]int64) {
	b.t.Helper()
	if got := b.byMinutes(since); !maps.Equal(got, want) {
		b.t.Errorf("by minute and counter: got %v, want %v", got, want)
	}
}

// nextMinute sleeps until a minute begins, and lets the sender act on it.
func nextMinute() {
	time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
	synctest.Wait()
}

// A bus that was unreachable for ten minutes causes no spike: each increment counts at the minute
// in which it was added.
func TestAnOutageLeavesEachMinuteItsIncrements(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		release := make(chan struct{})
		bus.blockUntil(release)
		p := open(t, bus, Config{Linger: time.Second, MaxInFlight: 1})
		nextMinute()
		began := time.Now()
		must(t, p.Add("first", 1))
		time.Sleep(2 * time.Second) // on its way, and stuck
		want := map[string]int64{"0 first": 1}
		for minute := range 10 {
			for range minute + 1 {
				must(t, p.Add("added", 1))
			}
			go func() { must(t, errOf(p.Publish(ctx, countmill.Increment{Counter: "published", Delta: 100}))) }()
			go func() {
				must(t, errOf(p.PublishKeyed(ctx, "", fmt.Sprint(minute), countmill.Increment{Counter: "keyed", Delta: 1000})))
			}()
			want[fmt.Sprint(minute, " added")] = int64(minute + 1)
			want[fmt.Sprint(minute, " published")] = 100
			want[fmt.Sprint(minute, " keyed")] = 1000
			nextMinute()
		}
		close(release)
		must(t, errOf(p.Flush(ctx)))
		closeNow(t, p)
		bus.wantByMinutes(began, want)
		if n := p.open.entries.Load() + p.open.bytes.Load(); n != 0 {
			t.Errorf("%d entries and bytes are still open", n)
		}
	})
}

// A minute that waits with one counter takes little memory.
func TestMinutesThatWaitAreSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		release := make(chan struct{})
		bus.blockUntil(release)
		p := open(t, bus, Config{Linger: time.Second, MaxInFlight: 1})
		nextMinute()
		must(t, p.Add("stuck", 1))
		time.Sleep(2 * time.Second)
		const minutes = 500
		before := heap()
		for range minutes {
			must(t, p.Add("a", 1))
			nextMinute()
		}
		if each := (heap() - before) / minutes; each > 2000 {
			t.Errorf("a minute takes %d bytes", each)
		}
		close(release)
		closeNow(t, p)
		bus.wantTotals(map[string]int64{"stuck": 1, "a": minutes})
	})
}

// Waiting minutes count against the bounds. Beyond the bounds no increment is accepted.
func TestMinutesThatWaitAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		release := make(chan struct{})
		bus.blockUntil(release)
		p := open(t, bus, Config{Linger: time.Second, MaxInFlight: 1, MaxEntries: 5})
		nextMinute()
		must(t, p.Add("stuck", 1))
		time.Sleep(2 * time.Second)
		accepted := int64(0)
		for range 10 {
			if p.Add("a", 1) == nil {
				accepted++
			}
			nextMinute()
		}
		if accepted != 5 {
			t.Errorf("%d increments in as many minutes were accepted, want 5", accepted)
		}
		close(release)
		must(t, errOf(p.Flush(ctx)))
		must(t, p.Add("a", 1))
		closeNow(t, p)
		bus.wantTotals(map[string]int64{"stuck": 1, "a": accepted + 1})
	})
}

// Increments that Close leaves behind do not count against the bounds any more, in every minute.
func TestACloseThatIsCutShortLeavesNothingOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		bus.blockUntil(make(chan struct{}))
		p := open(t, bus, Config{Linger: time.Second, MaxInFlight: 1})
		nextMinute()
		must(t, p.Add("stuck", 1))
		time.Sleep(2 * time.Second)
		must(t, p.Add("past", 1))
		nextMinute()
		must(t, p.Add("final", 1))
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := p.Close(ctx); !errors.Is(err, countmill.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "3 increments") {
			t.Errorf("Close: got %v, want 3 increments with an unknown outcome", err)
		}
		synctest.Wait()
		if s := p.Stats(); s.OpenEntries != 0 || s.OpenBytes != 0 {
			t.Errorf("%d entries of %d bytes are still open", s.OpenEntries, s.OpenBytes)
		}
	})
}

// Increments with event times count at those, beside others that came at the same time.
func TestIncrementsCountAtTheirEventTimes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		p := open(t, bus, Config{Linger: time.Second})
		nextMinute()
		began := time.Now()
		at := func(minutes int) time.Time { return began.Add(time.Duration(minutes)*time.Minute + time.Second) }
		must(t, p.Add("a", 1))
		must(t, errOf(p.Publish(ctx,
			countmill.Increment{Counter: "a", Delta: 10},
			countmill.Increment{Counter: "a", Delta: 100, Time: at(-3)},
			countmill.Increment{Counter: "a", Delta: 7, Time: at(0)},
			countmill.Increment{Counter: "b", Delta: 5, Time: at(-3)},
			countmill.Increment{Counter: "b", Delta: -5, Time: at(-3)},
			countmill.Increment{Counter: "c", Delta: 5, Time: at(-3)},
			countmill.Increment{Counter: "c", Delta: -5, Time: at(-4)},
			countmill.Increment{Counter: "a", Delta: 1000, Time: at(-7), ID: "x"},
			countmill.Increment{Counter: "now", Delta: 1, ID: "y"},
			countmill.Increment{Counter: "ahead", Delta: 1, Time: at(1)},
		)))
		must(t, errOf(p.PublishKeyed(ctx, "", "k",
			countmill.Increment{Counter: "k", Delta: 1, Time: at(-2)},
			countmill.Increment{Counter: "k", Delta: 1, Time: at(-5)},
			countmill.Increment{Counter: "k", Delta: 1},
			countmill.Increment{Counter: "kid", Delta: 1, Time: at(-2), ID: "z"},
			countmill.Increment{Counter: "kid", Delta: 1, ID: "zz"},
		)))
		closeNow(t, p)
		bus.wantByMinutes(began, map[string]int64{
			"0 a": 18, "-3 a": 100, "-3 c": 5, "-4 c": -5, "-7 a": 1000, "0 now": 1, "1 ahead": 1,
			"-5 k": 1, "-2 k": 2, "-2 kid": 2,
		})
	})
}

// Increments of the past count at that minute, with and without a key or ids, and whatever their times are.
func TestPublishPast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		p := open(t, bus, Config{})
		now := time.Now()
		at := now.Add(-1000 * 24 * time.Hour)
		must(t, errOf(p.PublishPast(ctx, at, "", "", inc("plain", 1), countmill.Increment{Counter: "timed", Delta: 2, Time: now.Add(-time.Hour)},
			countmill.Increment{Counter: "named", Delta: 3, ID: "x"})))
		keyed := func() {
			must(t, errOf(p.PublishPast(ctx, at.Add(time.Minute), "", "key", inc("keyed", 4), countmill.Increment{Counter: "both", Delta: 5, ID: "y"})))
		}
		keyed()
		must(t, errOf(p.Publish(ctx, inc("plain", 6))))
		minutes := int(now.Sub(at) / time.Minute)
		bus.wantByMinutes(at, map[string]int64{"0 plain": 1, "0 timed": 2, "0 named": 3, "1 keyed": 4, "1 both": 5, fmt.Sprint(minutes, " plain"): 6})
		for name, at := range map[string]time.Time{"later than now": now.Add(time.Second), "before any series": now.Add(-MaxPast - time.Second)} {
			var field *countmill.FieldError
			if _, err := p.PublishPast(ctx, at, "", "", inc("a", 1)); !errors.As(err, &field) || field.Field != "at" || !errors.Is(err, countmill.ErrInvalid) {
				t.Errorf("%s: got %v, want a FieldError of at", name, err)
			}
		}
		keyed() // a repeat has the same ids
		bus.wantTotals(map[string]int64{"plain": 7, "timed": 2, "named": 3, "keyed": 4, "both": 5})
		closeNow(t, p)
	})
}
