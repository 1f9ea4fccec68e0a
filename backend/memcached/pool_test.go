package memcached

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

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

func makeServers(n int) []*server {
	var all []*server
	for i := range n {
		all = append(all, newServer(fmt.Sprintf("cache-%d:11211", i), Config{MaxIdle: 1}))
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
