package recount_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// Fold folds one part as an aggregator does: with its record, groups and series.
func (r *rig) Fold(id wire.PartID, minute wire.Minute, deltas map[string]int64) error {
	r.t.Helper()
	set := r.Settings()
	at, done := r.JournalMoment(r.Now())
	defer done()
	c := &store.Commit{Rules: set.Version, Archive: r.Limits().Ring.Archive(r.Now()), Markers: []store.Marker{r.marker(id)}}
	part := journal.Part{ID: id, Fingerprint: 1, Minute: minute, Sender: "rig"}
	keeps := make(map[time.Duration]*journal.Record)
	for _, name := range slices.Sorted(maps.Keys(deltas)) {
		if rule := set.Rules.JournalOf(name); rule != nil {
			if keeps[rule.Keep.Entries] == nil {
				keeps[rule.Keep.Entries] = &journal.Record{Parts: []journal.Part{part}}
			}
			p := &keeps[rule.Keep.Entries].Parts[0]
			p.Entries = append(p.Entries, journal.Entry{Counter: name, Delta: deltas[name]})
		}
	}
	for keep, record := range keeps {
		r.n++
		c.Records = append(c.Records, store.JournalRecord{Key: store.NewJournalKey(at, r.n), ExpireAt: at.Add(keep), Data: record.Encode(nil)})
	}
	r.sums(c, &set, minute, deltas)
	r.grow(c)
	return r.fold(c)
}

// fold repeats a commit whose outcome is open.
func (r *rig) fold(c *store.Commit) error {
	for range 100 {
		_, err := r.Store.Fold(context.Background(), c)
		if err == nil || errors.Is(err, store.ErrMarkerExists) || errors.Is(err, store.ErrRefused) {
			return err
		}
	}
	return errors.New("no fold succeeds")
}

func (r *rig) marker(id wire.PartID) store.Marker {
	return store.Marker{ID: id, Fingerprint: 1, Fold: 1, At: r.Now(), ExpireAt: r.Now().Add(9 * 24 * time.Hour)}
}

// sums adds the sums of the deltas and of their groups to a commit.
func (r *rig) sums(c *store.Commit, set *store.Settings, minute wire.Minute, deltas map[string]int64) {
	all := maps.Clone(deltas)
	indexes := make(map[string][]int64)
	for i := range set.Rules.Indexes {
		for name, delta := range deltas {
			if group, ok := set.Rules.Indexes[i].GroupOf(name); ok {
				all[group] += delta
				indexes[name] = append(indexes[name], set.Rules.Indexes[i].Number)
			}
		}
	}
	for name, delta := range all {
		if delta != 0 {
			c.Adds = append(c.Adds, store.NewShardDelta(name, r.Rand.IntN(shards), delta))
		}
	}
	slices.SortFunc(c.Adds, func(a, b store.ShardDelta) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), strings.Compare(a.Counter, b.Counter))
	})
	for i, a := range c.Adds {
		if set.Rules.SeriesOf(a.Counter) != nil {
			c.Buckets = append(c.Buckets, store.BucketDelta{Add: i, Minute: minute, Delta: a.Delta})
		}
		if of := indexes[a.Counter]; len(of) > 0 {
			c.Grouped = append(c.Grouped, store.Grouping{Add: i, Indexes: of})
		}
	}
}

func (r *rig) grow(c *store.Commit) {
	r.t.Helper()
	for _, a := range c.Adds {
		c.Growths = append(c.Growths, store.Growth{Counter: a.Counter, Shards: shards})
	}
	slices.SortFunc(c.Growths, func(a, b store.Growth) int { return strings.Compare(a.Counter, b.Counter) })
	if !r.Limits().GrowsInFold {
		r.ok(r.Grow(context.Background(), c.Growths))
		c.Growths = nil
	}
}

// NewID returns an id that no part had.
func (r *rig) NewID() (id wire.PartID) {
	for i := range id {
		id[i] = byte(r.Rand.Uint32())
	}
	id[0] = byte(wire.AnonymousClass)<<4 | id[0]&0xf
	return id
}

// History folds parts for hours; some parts come twice.
func (r *rig) History(parts int) {
	r.t.Helper()
	for range parts {
		r.pass(30 * time.Second)
		deltas := make(map[string]int64)
		for range 1 + r.Rand.IntN(5) {
			name := fmt.Sprintf("page:s%d:%d", r.Rand.IntN(7), r.Rand.IntN(9))
			if r.Rand.IntN(4) == 0 {
				name = fmt.Sprintf("billing:%d", r.Rand.IntN(20))
			}
			deltas[name] = r.Rand.Int64N(1000) - 300
		}
		maps.DeleteFunc(deltas, func(_ string, d int64) bool { return d == 0 })
		now := wire.MinuteOf(r.Now())
		minute := r.first + wire.Minute(r.Rand.IntN(int(now-r.first)+1))
		id := r.NewID()
		r.ok(r.Fold(id, minute, deltas))
		if r.Rand.IntN(5) == 0 {
			if err := r.Fold(id, minute, deltas); !errors.Is(err, store.ErrMarkerExists) {
				r.t.Fatalf("a part that came again: got %v, want ErrMarkerExists", err)
			}
		}
	}
}
