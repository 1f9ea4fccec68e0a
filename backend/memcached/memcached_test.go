package memcached

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(emulator.Around(m)) }

// patience is a time-out for events that must happen: longer than any machine needs.
const patience = time.Minute

// open sets a time-out for machines that are busy with other tests.
func open(t testing.TB, cfg Config) *Cache {
	t.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = patience
	}
	c, err := Open(cfg)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return c
}

func total(counter string, n int64, asOf time.Time) store.CachedTotal {
	return store.CachedTotal{Counter: counter, Total: n, Shards: 3, Exists: true, AsOf: asOf.UTC()}
}

func set(t testing.TB, c *Cache, totals ...store.CachedTotal) {
	t.Helper()
	if err := c.Set(t.Context(), totals, time.Minute); err != nil {
		t.Fatalf("Set: %v", err)
	}
}

func want(t testing.TB, c *Cache, counter string, total int64) {
	t.Helper()
	got, err := c.Get(t.Context(), []string{counter})
	if err != nil || len(got) != 1 || got[0].Total != total {
		t.Errorf("Get: got %v (error %v), want a total of %d", got, err, total)
	}
}

func TestCache(t *testing.T) {
	t.Parallel()
	one, two := emulator.Memcached(t), emulator.Memcached(t)
	for name, servers := range map[string][]string{"one server": {one.Host()}, "two servers": {one.Host(), two.Host()}} {
		t.Run(name, func(t *testing.T) {
			storetest.RunCache(t, func(t *testing.T) store.Cache {
				return open(t, Config{Servers: servers, Prefix: emulator.Project() + ":"})
			})
		})
	}
}

// Between the gets and the cas of a put the item may change or disappear: put looks again.
func TestPutLooksAgain(t *testing.T) {
	t.Parallel()
	c := open(t, Config{Servers: []string{emulator.Memcached(t).Host()}})
	now := time.Now()
	look := func(counter string) entry {
		entries, _, err := c.lookUp(t.Context(), []string{counter})
		if err != nil {
			t.Fatal(err)
		}
		return entries[counter]
	}
	put := func(n int64, asOf time.Time, e entry) {
		if err := c.put(t.Context(), total("a", n, asOf), 60, e); err != nil {
			t.Errorf("put: %v", err)
		}
	}
	nothing := look("a")
	set(t, c, total("a", 2, now))
	put(1, now.Add(-time.Second), nothing)
	want(t, c, "a", 2) // added in between, later
	second := look("a")
	set(t, c, total("a", 4, now.Add(2*time.Second)))
	put(3, now.Add(time.Second), second)
	want(t, c, "a", 4) // changed in between, later
	put(5, now.Add(3*time.Second), second)
	want(t, c, "a", 5) // changed in between, earlier
	evicted := look("a")
	if err := c.pool.all[0].client.FlushAll(); err != nil {
		t.Fatal(err)
	}
	put(6, now.Add(4*time.Second), evicted)
	want(t, c, "a", 6) // removed in between
}

func TestExpiration(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]int32{
		1: 3, time.Second: 3, time.Second + 1: 4, time.Minute: 62, (maxSeconds-2)*time.Second - 1: maxSeconds, 365 * 24 * time.Hour: maxSeconds, 1<<63 - 1: maxSeconds,
	} {
		if got := expiration(ttl); got != want {
			t.Errorf("expiration(%s): got %d, want %d", ttl, got, want)
		}
	}
}

// An item of n seconds disappears when the server's clock has advanced by n, up to two seconds early.
func TestLockHoldsForItsTTL(t *testing.T) {
	t.Parallel()
	server := emulator.Memcached(t)
	tick := time.NewTicker(130 * time.Millisecond)
	defer tick.Stop()
	for i := range 8 { // at different moments of the server's second
		<-tick.C
		counter := fmt.Sprint(i)
		t.Run(counter, func(t *testing.T) {
			t.Parallel()
			c := open(t, Config{Servers: []string{server.Host()}})
			began := time.Now()
			if won, err := c.Lock(t.Context(), counter, time.Second); err != nil || !won {
				t.Fatalf("Lock: got %t, %v", won, err)
			}
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for range tick.C {
				won, err := c.Lock(t.Context(), counter, time.Second)
				if err != nil {
					t.Fatalf("Lock: %v", err)
				}
				if took := time.Since(began); won && took < time.Second || took > patience {
					t.Fatalf("a lock of 1s was free after %s", took)
				}
				if won {
					return
				}
			}
		})
	}
}

func TestSetForNoTime(t *testing.T) {
	t.Parallel()
	c := open(t, Config{Servers: []string{emulator.Memcached(t).Host()}})
	if err := c.Set(t.Context(), []store.CachedTotal{total("a", 1, time.Now())}, 0); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Get(t.Context(), []string{"a"}); err != nil || len(got) != 0 {
		t.Errorf("got %v (error %v), want nothing: 0 must not mean for ever", got, err)
	}
}

// A total in the cache is read as it was written, or is refused as too long.
func FuzzValue(f *testing.F) {
	f.Add("a", int64(-5), 3, true, int64(1), int64(999_999_999))
	f.Add(strings.Repeat("x", 500), int64(1)<<62, 999, false, int64(-62135596800), int64(0))
	codec, err := newCodec([32]byte{7})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, counter string, n int64, shards int, exists bool, seconds, nanos int64) {
		if shards < 0 || shards > 999 {
			shards = 7
		}
		in := store.CachedTotal{Counter: counter, Total: n, Shards: shards, Exists: exists, AsOf: time.Unix(seconds%1e11, nanos%1e9).UTC()}
		b, err := codec.encode(in)
		if len(counter) > 900 && errors.Is(err, errLarge) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		out, err := codec.decode(b, counter)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(in, out); diff != "" {
			t.Errorf("encoded and decoded (-want +got):\n%s", diff)
		}
		for i := range b {
			if cut, err := codec.decode(b[:i], ""); err == nil {
				t.Errorf("%d bytes of %d are decoded as %v", i, len(b), cut)
			}
		}
		if other, err := codec.decode([]byte(counter), ""); err == nil {
			t.Errorf("%q is decoded as %v", counter, other)
		}
	})
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	_, err := Open(Config{
		Servers: []string{"h", ":1", "h:0", "h:http", "h:70000", "h:1", "h:1"},
		Prefix:  "a b", Timeout: -1, MaxIdle: -1,
	})
	for _, want := range []string{`"h"`, `":1"`, `"h:0"`, `"h:http"`, `"h:70000"`, `"h:1" is listed twice`, "Prefix", "Timeout", "MaxIdle"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one about %s", err, want)
		}
	}
	if _, err := Open(Config{}); err == nil {
		t.Error("no servers: got no error")
	}
}

func TestClosed(t *testing.T) {
	t.Parallel()
	c, err := Open(Config{Servers: []string{emulator.Memcached(t).Host()}, Timeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	set(t, c, total("a", 1, time.Now()))
	_ = c.Close()
	_ = c.Close()
	if _, err := c.Get(t.Context(), []string{"a"}); !errors.Is(err, errClosed) {
		t.Errorf("Get: got %v, want %v", err, errClosed)
	}
}
