package publisher

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Publishers whose increments come at different times flush at the same moment, and none later
// than the budget allows.
func TestPublishersWithABudgetFlushTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const budget, linger = 2 * time.Second, 1750 * time.Millisecond
		type seen struct {
			bus  *fakeBus
			p    *Publisher
			came time.Time
		}
		var all []seen
		leave2000()
		time.Sleep(123 * time.Millisecond)
		next := time.Now().Truncate(linger).Add(linger)
		for _, before := range []time.Duration{linger, 900 * time.Millisecond, time.Millisecond} {
			bus := newBus(t)
			p := open(t, bus, Config{CountWithin: budget})
			time.Sleep(max(0, time.Until(next.Add(-before))))
			must(t, p.Add("a", 1))
			all = append(all, seen{bus, p, time.Now()})
		}
		time.Sleep(time.Until(next) - 1)
		synctest.Wait()
		for i, s := range all {
			if n := s.p.Stats().Messages; n != 0 {
				t.Errorf("publisher %d has sent %d messages before the moment", i, n)
			}
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		for i, s := range all {
			if n := s.p.Stats().Messages; n != 1 {
				t.Errorf("publisher %d has sent %d messages at the moment, want 1", i, n)
			}
			if waited := time.Since(s.came); waited > linger {
				t.Errorf("publisher %d: an increment waited for %s", i, waited)
			}
			must(t, s.p.Add("b", 1)) // at the moment itself: the next one
		}
		time.Sleep(linger - 1)
		synctest.Wait()
		for i, s := range all {
			s.bus.wantTotals(map[string]int64{"a": 1})
			if n := s.p.Stats().Messages; n != 1 {
				t.Errorf("publisher %d has sent %d messages a moment before the next one", i, n)
			}
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		for _, s := range all {
			s.bus.wantTotals(map[string]int64{"a": 1, "b": 1})
			closeNow(t, s.p)
		}
	})
}

func TestALingerWinsOverABudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		bus := newBus(t)
		p := open(t, bus, Config{Linger: 300 * time.Millisecond, CountWithin: 10 * time.Second})
		for i := range 5 {
			time.Sleep(77 * time.Millisecond)
			must(t, p.Add(fmt.Sprint(i), 1))
			time.Sleep(300 * time.Millisecond)
			synctest.Wait()
			if n := p.Stats().Messages; n != int64(i+1) {
				t.Fatalf("%d messages, want one for each linger of 300ms: %d", n, i+1)
			}
		}
		closeNow(t, p)
	})
}
