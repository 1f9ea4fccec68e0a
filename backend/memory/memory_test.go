package memory

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest"
)

func open(t *testing.T, cfg Config) *Cache {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	return c
}

func TestCache(t *testing.T) {
	t.Parallel()
	storetest.RunCache(t, func(t *testing.T) store.Cache { return open(t, Config{}) })
}

func TestTotalsAndLocksExpireOnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, ctx := open(t, Config{}), t.Context()
		if err := c.Set(ctx, []store.CachedTotal{{Counter: "a", Total: 1, AsOf: time.Now()}}, time.Second); err != nil {
			t.Fatal(err)
		}
		if first, _ := c.Lock(ctx, "a", time.Second); !first {
			t.Fatal("the first Lock is false")
		}
		time.Sleep(time.Second - 1)
		if got, _ := c.Get(ctx, []string{"a"}); len(got) != 1 {
			t.Errorf("just before it expires: got %v, want the total", got)
		}
		if again, _ := c.Lock(ctx, "a", time.Second); again {
			t.Errorf("a second Lock just before the first expires is true")
		}
		time.Sleep(time.Nanosecond)
		if got, _ := c.Get(ctx, []string{"a"}); len(got) != 0 {
			t.Errorf("expired: got %v, want nothing", got)
		}
		if again, _ := c.Lock(ctx, "a", time.Second); !again {
			t.Errorf("Lock after the first has expired is false")
		}
	})
}

func TestBounded(t *testing.T) {
	t.Parallel()
	c, ctx := open(t, Config{Totals: 10}), t.Context()
	requests := make(map[*byte]string)
	for i := range 100 {
		request := fmt.Sprint("c", i, "&max_staleness=1s")
		name := request[:len(request)-len("&max_staleness=1s")]
		requests[unsafe.StringData(request)] = request
		if err := c.Set(ctx, []store.CachedTotal{{Counter: name}}, time.Hour); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Lock(ctx, name, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if c.totals.Len() != 10 || c.locks.Len() != 10 {
		t.Errorf("got %d totals and %d locks, want 10 of each", c.totals.Len(), c.locks.Len())
	}
	if got, _ := c.Get(ctx, []string{"c99", "c0"}); len(got) != 1 || got[0].Counter != "c99" {
		t.Errorf("got %v, want the newest only", got)
	}
	for i, name := range c.totals.Keys() {
		for _, kept := range []string{name, c.totals.Values()[i].total.Counter} {
			if request := requests[unsafe.StringData(kept)]; request != "" {
				t.Errorf("%q is cut from %q, and keeps it in memory", kept, request)
			}
		}
	}
}

func TestNewRefusesNegativeSize(t *testing.T) {
	t.Parallel()
	if _, err := New(Config{Totals: -1}); err == nil {
		t.Error("Totals -1: got no error")
	}
}

// On a busy machine a call may take longer than its deadline. That must not look like a failing cache:
// the reader would bypass it and ask the store.
func TestLateCallsAreServed(t *testing.T) {
	t.Parallel()
	c := open(t, Config{})
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	if err := c.Set(late, []store.CachedTotal{{Counter: "a", Total: 5, AsOf: time.Now()}}, time.Minute); err != nil {
		t.Errorf("Set: %v", err)
	}
	if got, err := c.Get(late, []string{"a"}); err != nil || len(got) != 1 || got[0].Total != 5 {
		t.Errorf("Get: %v, %v, want the total", got, err)
	}
	if won, err := c.Lock(late, "a", time.Minute); err != nil || !won {
		t.Errorf("Lock: %t, %v, want it", won, err)
	}
	if err := c.Unlock(late, "a"); err != nil {
		t.Errorf("Unlock: %v", err)
	}
}
