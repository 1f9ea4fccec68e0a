package reader_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/reader/board"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// A modelled is a counter as a test expects it.
type modelled struct {
	sum, baseline int64
	deleted       bool
	buckets       map[wire.Minute]int64
}

// A world is a store with an index and a series, and a model of all its counters.
type world struct {
	*protocoltest.Store
	t      *testing.T
	random *rand.Rand
	set    store.Settings
	looks  []store.ResetRequest

	mu       sync.Mutex
	counters map[string]modelled
	scanned  map[time.Time]map[string]modelled // by the moments of Sums
	scans    int
}

func newWorld(t *testing.T, seed uint64, o protocoltest.Options) *world {
	o.Errorf = t.Errorf
	w := &world{
		Store: protocoltest.New(o), t: t, random: rand.New(rand.NewPCG(seed, 7)),
		counters: make(map[string]modelled), scanned: make(map[time.Time]map[string]modelled),
	}
	for _, c := range []store.RuleChange{
		{Pattern: "page:*", Keep: store.Retention{Minutes: 6 * time.Hour, Quarters: 400 * 24 * time.Hour}},
		{Index: &store.IndexChange{Step: store.CreateIndex, Index: store.Index{Name: "sites", Match: "page:{site}:*", Group: "site:{site}"}}},
	} {
		var err error
		if w.set, err = w.ChangeRules(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// Sums remembers the model at each scan.
func (w *world) Sums(ctx context.Context, q *store.SumsQuery, visit func(*store.CounterSum) error) (store.Sums, error) {
	sums, err := w.Store.Sums(ctx, q, visit)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.scans++
	w.scanned[sums.At] = w.cloneLocked()
	return sums, err
}

func (w *world) cloneLocked() map[string]modelled {
	clone := maps.Clone(w.counters)
	for name, m := range clone {
		m.buckets = maps.Clone(m.buckets)
		clone[name] = m
	}
	return clone
}

func (w *world) name() string {
	n := w.random.IntN(24)
	return fmt.Sprintf("page:s%d:/%d", n%3, n)
}

// add folds a delta for each counter, and puts it into minutes of today or earlier.
func (w *world) add(deltas map[string]int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	index := w.set.Rules.Index("sites")
	c := &store.Commit{Rules: w.set.Version}
	for name, delta := range deltas {
		c.Adds = append(c.Adds, store.NewShardDelta(name, 0, delta))
		c.Growths = append(c.Growths, store.Growth{Counter: name, Shards: 1})
	}
	slices.SortFunc(c.Adds, func(a, b store.ShardDelta) int {
		if a.Order != b.Order {
			return map[bool]int{true: -1, false: 1}[a.Order < b.Order]
		}
		return map[bool]int{true: -1, false: 1}[a.Counter < b.Counter]
	})
	slices.SortFunc(c.Growths, func(a, b store.Growth) int { return map[bool]int{true: -1, false: 1}[a.Counter < b.Counter] })
	now := wire.MinuteOf(time.Now())
	for i, a := range c.Adds {
		m := w.counters[a.Counter]
		if m.buckets == nil {
			m.buckets = make(map[wire.Minute]int64)
		}
		m.sum, m.deleted = m.sum+a.Delta, false
		minutes := map[wire.Minute]int64{now - wire.Minute(w.random.IntN(3)*w.random.IntN(700)): a.Delta}
		if w.random.IntN(4) == 0 { // one minute gains what another one loses
			minutes[now-5] += 40
			minutes[now-wire.Minute(w.random.IntN(2000))] -= 40
		}
		for _, minute := range slices.Sorted(maps.Keys(minutes)) {
			if delta := minutes[minute]; delta != 0 {
				c.Buckets = append(c.Buckets, store.BucketDelta{Add: i, Minute: minute, Delta: delta})
				m.buckets[minute] += delta
			}
		}
		w.counters[a.Counter] = m
		c.Grouped = append(c.Grouped, store.Grouping{Add: i, Indexes: []int64{index.Number}})
	}
	if _, err := w.Fold(w.t.Context(), c); err != nil {
		w.t.Fatalf("Fold: %v", err)
	}
}

// look looks a counter up for a reset that comes later.
func (w *world) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := w.name()
	m, exists := w.counters[name]
	v := w.View()
	defer v.Close()
	values, err := v.Lookup(w.t.Context(), []store.Key{{Counter: name, Shard: store.RecordKey}})
	if err != nil {
		w.t.Fatal(err)
	}
	var id [1]wire.PartID
	id[0][0], id[0][15] = byte(wire.ResetClass)<<4, byte(len(w.looks))
	for i := 1; i < 15; i++ {
		id[0][i] = byte(w.random.IntN(256))
	}
	w.looks = append(w.looks, store.ResetRequest{
		ID: id[0], Counter: name, Delete: w.random.IntN(2) == 0, At: time.Now(), ExpireAt: time.Now().Add(time.Hour),
		Look: store.Sum{Exists: exists, Sum: int128.Of(m.sum), ResetState: values[0].Reset, At: v.ReadTime()},
	})
}

// reset applies the oldest look.
func (w *world) reset() {
	if len(w.looks) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.looks[0]
	w.looks = w.looks[1:]
	if _, err := w.ResetCounter(w.t.Context(), r); err != nil {
		return // it came too late
	}
	m, exists := w.counters[r.Counter]
	if !exists {
		return
	}
	// It is hidden only while nothing is left: increments after the look-up are.
	m.baseline, m.deleted = int64(r.Look.Sum.Lo), m.deleted || r.Delete
	w.counters[r.Counter] = m
}

// truth is the order of all counters of a model, in the minutes from from on and before to.
func truth(model map[string]modelled, from, to wire.Minute) (all []board.Ranked) {
	for name, m := range model {
		hidden := m.deleted && m.sum == m.baseline
		sum := m.sum - m.baseline
		if to > 0 {
			sum = 0
			for minute, n := range m.buckets {
				if minute >= from && minute < to {
					sum += n
				}
			}
		}
		if !hidden && (to == 0 || sum != 0) {
			all = append(all, board.Ranked{Counter: name, Sum: sum})
		}
	}
	slices.SortFunc(all, board.Compare)
	return all
}

// A windowed is a window, and its bounds by other means than the reader's.
type windowed struct {
	name   string
	bounds func(now time.Time) (from, to wire.Minute)
}

var windows = []windowed{
	{"", func(time.Time) (from, to wire.Minute) { return 0, 0 }},
	{"today", func(now time.Time) (from, to wire.Minute) {
		day := wire.MinuteOf(now.UTC()) / store.DayMinutes * store.DayMinutes
		return day, day + store.DayMinutes
	}},
	{"1h", func(now time.Time) (from, to wire.Minute) { return wire.MinuteOf(now) - 60, 1 << 30 }},
}

func parseWindow(t *testing.T, name string) reader.Window {
	t.Helper()
	w, err := reader.ParseWindow(name, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	return w
}
