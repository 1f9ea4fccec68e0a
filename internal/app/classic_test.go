package app

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/store"
)

// "Sharding counters" (Joe Gregorio, Google App Engine, 2008) describes its counters. Each
// sentence is quoted before its test, which runs on every store.
func TestClassicCounters(t *testing.T) { // not parallel: it sets a variable
	for _, mode := range []struct{ name, store string }{
		{"pebble", ""},
		{"datastore", "datastore://PROJECT"},
	} {
		t.Run(mode.name, func(t *testing.T) {
			st := "pebble:" + escapeDir(t.TempDir())
			if mode.store != "" {
				t.Setenv("DATASTORE_EMULATOR_HOST", emulator.Firestore(t))
				st = strings.Replace(mode.store, "PROJECT", emulator.Project(), 1)
			}
			a, err := New(Config{Listen: "127.0.0.1:0", Store: st, Aggregator: aggregator.Config{Shards: 20, ShardRate: -1}})
			if err != nil {
				t.Fatal(err)
			}
			c := &classic{run(t, a), mode.store == ""}
			defer c.stop(t)
			c.waitReady(t)
			for _, sentence := range classicSentences {
				t.Run(sentence.says, func(t *testing.T) { sentence.test(t, c) })
			}
		})
	}
}

var classicSentences = []struct {
	says string
	test func(t *testing.T, c *classic)
}{
	{"allow you to create named counters on the fly", func(t *testing.T, c *classic) {
		c.want(t, "fly", 0)
		c.count(t, "fly", 3)
		c.want(t, "fly", 3)
		c.want(t, "another", 0)
	}},
	{"num_shards = ndb.IntegerProperty(default=20)", func(t *testing.T, c *classic) {
		c.count(t, "default", 1)
		if got := c.named(t, "default"); got != 20 {
			t.Errorf("a new counter has %d shards, want the 20 of --shards", got)
		}
	}},
	{"you pick one of the shards at random and increment it", func(t *testing.T, c *classic) {
		c.count(t, "random", 60)
		filled := c.shards(t, "random", 20)
		if len(filled) < 2 && !c.onDisk {
			t.Errorf("60 increments, one after the other, are all in shard %v", filled)
		}
	}},
	{"read all of the counter shards and sum up their individual counts", func(t *testing.T, c *classic) {
		c.count(t, "sum", 30)
		var sum int64
		for _, n := range c.shards(t, "sum", 20) {
			sum += n
		}
		if sum != 30 {
			t.Errorf("the shards sum to %d, want 30", sum)
		}
		c.want(t, "sum", 30)
	}},
	{"we create the shards lazily, only creating them when they are first incremented", func(t *testing.T, c *classic) {
		c.raise(t, "lazy", 40, 200)
		if got := c.shards(t, "lazy", 40); len(got) != 0 {
			t.Errorf("a counter that nobody incremented has the shards %v", got)
		}
		c.count(t, "lazy", 1)
		if got := c.shards(t, "lazy", 40); len(got) != 1 {
			t.Errorf("after one increment there are the shards %v, want one", got)
		}
	}},
	{"allows the number of shards to be increased (but never decreased)", func(t *testing.T, c *classic) {
		c.count(t, "increase", 5)
		c.raise(t, "increase", 40, 200)
		c.raise(t, "increase", 20, 409)
		c.raise(t, "increase", 40, 200)
		if got := c.named(t, "increase"); got != 40 {
			t.Errorf("it has %d shards, want 40", got)
		}
		c.want(t, "increase", 5)
	}},
	{"could be doubled and the results from get_count() would not change", func(t *testing.T, c *classic) {
		// Doubled in mid-flight: each total is the number of increments that were counted by then.
		var done sync.WaitGroup
		done.Go(func() { c.count(t, "double", 60) })
		last := int64(0)
		for n := 20; n <= 640; n *= 2 {
			c.raise(t, "double", n, 200)
			for range 5 {
				got := c.total(t, "double")
				if got < last || got > 60 {
					t.Errorf("with %d shards a total of %d after one of %d", n, got, last)
				}
				last = got
			}
		}
		done.Wait()
		c.want(t, "double", 60)
	}},
	{"increment() will lazily create shards that aren't there", func(t *testing.T, c *classic) {
		made := 7 // before its first increment
		if c.onDisk {
			made = 27 // folds raise without a look there, so it is never below --shards
		}
		c.raise(t, "there", made, 200)
		c.count(t, "there", 20)
		c.want(t, "there", 20)
		if got := c.named(t, "there"); got != made {
			t.Errorf("it has %d shards, want the %d that it was made with", got, made)
		}
	}},
	{"increase the number of shards for a particular counter", func(t *testing.T, c *classic) {
		c.count(t, "particular", 1)
		c.count(t, "other", 1)
		c.raise(t, "particular", 21, 200)
		if got := c.named(t, "other"); got != 20 {
			t.Errorf("another counter has %d shards, want 20 still", got)
		}
	}},
	{"many parallel requests", func(t *testing.T, c *classic) {
		var callers sync.WaitGroup
		for range 8 {
			callers.Go(func() { c.count(t, "parallel", 25) })
		}
		callers.Wait()
		c.want(t, "parallel", 200)
	}},
	{"use memcache to speed up reads: memcache.add(name, total, 60)", func(t *testing.T, c *classic) {
		c.count(t, "cached", 1)
		first := c.read(t, "cached", "1m")
		c.count(t, "cached", 1)
		if again := c.read(t, "cached", "1m"); !strings.Contains(again, `"source":"cache"`) || !strings.Contains(again, `"total":1,`) {
			t.Errorf("read again: %s, want 1 from the cache, as in %s", again, first)
		}
		c.poll(t, "expired", func() bool { return strings.Contains(c.read(t, "cached", "50ms"), `"total":2,`) })
		if fresh := c.read(t, "cached", "0s"); !strings.Contains(fresh, `"total":2,`) {
			t.Errorf("read with 0s: %s, want 2", fresh)
		}
	}},
}

// A classic is a running App, and its store.
type classic struct {
	*running
	onDisk bool
}

func (c *classic) count(t *testing.T, counter string, times int) {
	t.Helper()
	for range times {
		if status, text, err := c.try("POST", "/v1/increments", fmt.Sprintf(`{"counter":%q}`, counter)); status != 202 || err != nil {
			t.Errorf("increment: %d %s %v", status, text, err)
		}
	}
}

func (c *classic) raise(t *testing.T, counter string, shards, want int) {
	t.Helper()
	if status, text := c.call(t, "PATCH", "/v1/counters/"+counter, fmt.Sprintf(`{"shards":%d}`, shards)); status != want {
		t.Errorf("raise to %d: got %d %s, want %d", shards, status, text, want)
	}
}

func (c *classic) read(t *testing.T, counter, staleness string) string {
	t.Helper()
	_, text := c.call(t, "GET", "/v1/counters/"+counter+"?max_staleness="+staleness, "")
	return text
}

func (c *classic) total(t *testing.T, counter string) (total int64) {
	t.Helper()
	text := c.read(t, counter, "0s")
	if _, err := fmt.Sscanf(text[strings.Index(text, `"total"`):], `"total":%d`, &total); err != nil {
		t.Fatalf("total of %s: %s: %v", counter, text, err)
	}
	return total
}

func (c *classic) want(t *testing.T, counter string, want int64) {
	t.Helper()
	if got := c.total(t, counter); got != want {
		t.Errorf("total of %q is %d, want %d", counter, got, want)
	}
}

// lookup reads shard 0 to n-1 of a counter, or its record, in the store.
func (c *classic) lookup(t *testing.T, keys ...store.Key) []store.Value {
	t.Helper()
	v := serviceOf[tending](t, c.App).store.View()
	defer v.Close()
	values, err := v.Lookup(t.Context(), keys)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// named is how many shards the counter's record names.
func (c *classic) named(t *testing.T, counter string) int {
	t.Helper()
	return c.lookup(t, store.Key{Counter: counter, Shard: store.RecordKey})[0].Shards
}

// shards returns the shards that exist, with their counts.
func (c *classic) shards(t *testing.T, counter string, n int) map[int]int64 {
	t.Helper()
	keys := make([]store.Key, n)
	for i := range keys {
		keys[i] = store.Key{Counter: counter, Shard: i}
	}
	found := make(map[int]int64)
	for i, v := range c.lookup(t, keys...) {
		if v.Exists {
			found[i] = int64(v.Count.Lo)
		}
	}
	return found
}
