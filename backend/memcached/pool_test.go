package memcached

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/store"
)

type cachedTotal = store.CachedTotal

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !cond(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// names is a Resolver that tests change.
type names struct {
	mu    sync.Mutex
	addrs map[string][]string
	asked int
}

func (n *names) LookupHost(_ context.Context, host string) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	if n.addrs[host] == nil {
		return nil, errors.New("no such host")
	}
	return slices.Clone(n.addrs[host]), nil
}

func (n *names) set(host string, addrs ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.addrs == nil {
		n.addrs = make(map[string][]string)
	}
	n.addrs[host] = addrs
}

// times is how often a name was looked up.
func (n *names) times() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

func port(host string) string { return host[strings.LastIndexByte(host, ':')+1:] }

// The server's name gets another address: 127.0.0.2 has no server, 127.0.0.1 has one. Nothing is
// restarted.
func TestAddressChanges(t *testing.T) {
	t.Parallel()
	server := emulator.Memcached(t)
	resolver := &names{}
	c := open(t, Config{Servers: []string{"cache:" + port(server.Host())}, Resolver: resolver})
	if _, err := c.Get(t.Context(), []string{"a"}); err == nil || !strings.Contains(err.Error(), "no such host") {
		t.Errorf("unknown: got error %v, want no such host", err)
	}
	resolver.set("cache", "127.0.0.2")
	eventually(t, "the name resolves", func() bool {
		_, err := c.Get(t.Context(), []string{"a"})
		return err != nil && strings.Contains(err.Error(), "127.0.0.2")
	})
	resolver.set("cache", "127.0.0.1")
	eventually(t, "the moved server is found", func() bool {
		return c.Set(t.Context(), []cachedTotal{total("a", 1, time.Now())}, time.Minute) == nil
	})
	want(t, c, "a", 1)
	resolver.set("cache")
	before := resolver.times()
	c.pool.suspect()
	eventually(t, "the name was looked up in vain", func() bool {
		want(t, c, "a", 1) // the last addresses stay in use
		c.pool.mu.Lock()
		defer c.pool.mu.Unlock()
		return resolver.times() > before && c.pool.doubtful && c.pool.looking == nil
	})
	want(t, c, "a", 1)
}

func TestFailingServerIsResolvedOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		resolver := &names{}
		c := open(t, Config{Servers: []string{"cache:1"}, Resolver: resolver})
		for range 350 { // a call every 10 ms
			if _, err := c.Get(t.Context(), []string{"a"}); err == nil {
				t.Fatal("got no error")
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := resolver.times(); n != 4 {
			t.Errorf("asked %d times in 3.5s, want 4", n)
		}
	})
}

func TestNamesAreServers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		addrs []string
		want  []string // id and address
	}{
		{[]string{"10.0.0.1"}, []string{"m:1=10.0.0.1:1"}},
		{[]string{"::1", "127.0.0.1"}, []string{"m:1=127.0.0.1:1"}},
		{[]string{"fd00::2"}, []string{"m:1=[fd00::2]:1"}},
		{[]string{"10.0.0.2", "10.0.0.1", "10.0.0.2"}, []string{"m:1 10.0.0.1=10.0.0.1:1", "m:1 10.0.0.2=10.0.0.2:1"}},
	} {
		resolver := &names{}
		resolver.set("m", test.addrs...)
		c := open(t, Config{Servers: []string{"m:1"}, Resolver: resolver})
		servers, err := c.pool.servers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range servers {
			got = append(got, s.id+"="+s.addr.String())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%v: got %q, want %q", test.addrs, got, test.want)
		}
	}
}

func makeServers(n int) []*server {
	var all []*server
	for i := range n {
		all = append(all, newServer(fmt.Sprintf("cache-%d:11211", i), "", nil, Config{MaxIdle: 1}))
	}
	return all
}

// With crc32 % n, a sixth server would move five counters of six.
func TestRendezvousMovesFewCounters(t *testing.T) {
	t.Parallel()
	const keys = 10_000
	c := open(t, Config{Servers: []string{"h:1"}})
	six := makeServers(6)
	five, shuffled := six[:5], slices.Concat(six[3:], six[:3])
	moved, load := 0, make(map[string]int)
	for i := range keys {
		key := c.key(totalKind, fmt.Sprint(i))
		before, after := pick(five, key), pick(six, key)
		load[after.id]++
		if before != after {
			moved++
			if after != six[5] {
				t.Fatalf("a counter moved from %s to %s, although neither is new or gone", before.id, after.id)
			}
		}
		if pick(shuffled, key) != after {
			t.Fatal("the order of the servers matters")
		}
	}
	for id, n := range load {
		if n < keys/6*9/10 || n > keys/6*11/10 {
			t.Errorf("%s has %d of %d counters, want a sixth", id, n, keys)
		}
	}
	if len(load) != 6 || moved != load[six[5].id] {
		t.Errorf("%d counters moved, loads %v", moved, slices.Collect(maps.Values(load)))
	}
}

// Servers that a new list no longer names must not keep connections.
func TestConnectionsOfGoneServersAreClosed(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_ = l.Close() // a call that has begun with the old address must not wait here for an answer
		for lines := bufio.NewScanner(c); lines.Scan(); {
			_, _ = c.Write([]byte("END\r\n"))
		}
	}()
	resolver := &names{}
	resolver.set("cache", "127.0.0.1")
	var log bytes.Buffer
	c := open(t, Config{Servers: []string{"cache:" + port(l.Addr().String())}, Resolver: resolver,
		ResolveEvery: time.Millisecond, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if _, err := c.Get(t.Context(), []string{"a"}); err != nil {
		t.Fatal(err)
	}
	resolver.set("cache", "127.0.0.2")
	eventually(t, "the old connection is closed", func() bool {
		_, _ = c.Get(t.Context(), []string{"a"})
		select {
		case <-closed:
			return true
		default:
			return false
		}
	})
	_ = c.Close()
	if !strings.Contains(log.String(), "name resolves again") || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("got log %q, want one line about the new address", log.String())
	}
}
