package indexer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// A rig is a store with counters page:s<site>:<page>, and the increments folded into it, in virtual time.
type rig struct {
	t     *testing.T
	store *protocoltest.Store
	part  int
}

// kinds are a store whose commits by older rules may come late, and a store that refuses them.
var kinds = map[string]protocoltest.Options{
	"apart": {}, "embedded": {GrowsInFold: true, CertainOutcome: true, Entities: 1 << 20},
}

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(clock.Earliest))
		f(t)
	})
}

// forKinds runs a test with each kind of store.
func forKinds(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) { f(t, newRig(t, opts)) })
		})
	}
}

func newRig(t *testing.T, opts protocoltest.Options) *rig {
	opts.Errorf = t.Errorf
	return &rig{t: t, store: protocoltest.New(opts)}
}

func (r *rig) settings() store.Settings {
	r.t.Helper()
	checked, err := r.store.Check(context.Background())
	if err != nil {
		r.t.Fatal(err)
	}
	return checked.Settings
}

// change makes a step of an index, by default sites, and returns the index after it; nil if it is gone.
func (r *rig) change(step store.IndexStep, of ...store.Index) *store.Index {
	r.t.Helper()
	x := store.Index{Name: "sites", Match: "page:{site}:*", Group: "site:{site}"}
	if len(of) > 0 {
		x = of[0]
	}
	s, err := r.store.ChangeRules(context.Background(), store.RuleChange{Index: &store.IndexChange{Step: step, Index: x}})
	if err != nil {
		r.t.Fatal(err)
	}
	return s.Rules.Index(x.Name)
}

func (r *rig) index() *store.Index { return r.settings().Rules.Index("sites") }

// commit makes the commit of an aggregator that goes by the settings.
func (r *rig) commit(s store.Settings, deltas map[string]int64) *store.Commit {
	sums, indexes := maps.Clone(deltas), make(map[string][]int64)
	if s.Rules != nil {
		byNumber := slices.Clone(s.Rules.Indexes)
		slices.SortFunc(byNumber, func(a, b store.Index) int { return cmp.Compare(a.Number, b.Number) })
		for i := range byNumber {
			for counter, delta := range deltas {
				if group, ok := byNumber[i].GroupOf(counter); ok && byNumber[i].InForce() {
					sums[group] += delta
					indexes[counter] = append(indexes[counter], byNumber[i].Number)
				}
			}
		}
	}
	r.part++
	marker := store.Marker{ID: wire.PartID{1, byte(r.part >> 16), byte(r.part >> 8), byte(r.part)}, At: time.Now(), ExpireAt: time.Now().Add(time.Hour)}
	c := &store.Commit{Markers: []store.Marker{marker}, Rules: s.Version}
	for counter, delta := range sums {
		if delta != 0 {
			a := store.ShardDelta{Counter: counter, Shard: r.part % 3, Delta: delta, Order: wire.Order(counter), Hash: wire.ShardHash(counter, r.part%3)}
			c.Adds = append(c.Adds, a)
		}
	}
	slices.SortFunc(c.Adds, func(a, b store.ShardDelta) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), strings.Compare(a.Counter, b.Counter))
	})
	for i := range c.Adds {
		if set := indexes[c.Adds[i].Counter]; len(set) > 0 {
			c.Grouped = append(c.Grouped, store.Grouping{Add: i, Indexes: set})
		}
	}
	return c
}

// apply makes the records of a commit, and applies it. A commit by older rules may be refused.
func (r *rig) apply(c *store.Commit) {
	r.t.Helper()
	var growths []store.Growth
	for _, a := range c.Adds {
		growths = append(growths, store.Growth{Counter: a.Counter, Shards: 3})
	}
	slices.SortFunc(growths, func(a, b store.Growth) int { return strings.Compare(a.Counter, b.Counter) })
	if r.store.Limits().GrowsInFold {
		c.Growths = growths
	} else if err := r.store.Grow(context.Background(), growths); err != nil {
		r.t.Error(err)
	}
	if _, err := r.store.Fold(context.Background(), c); err != nil && !errors.Is(err, store.ErrOutdated) {
		r.t.Error(err)
	}
}

func (r *rig) fold(deltas map[string]int64) { r.apply(r.commit(r.settings(), deltas)) }

// pages are deltas for n counters of as many sites as s.
func pages(n, s int, delta int64) map[string]int64 {
	deltas := make(map[string]int64)
	for i := range n {
		deltas[fmt.Sprintf("page:s%d:%d", i%s, i)] = delta + int64(i)
	}
	return deltas
}

// check compares each group of an index with the sum of its counters: at any moment the group's shards
// have the grouped increments, and if the index is built the group's total is the whole sum.
func (r *rig) check(what string, built bool) {
	r.t.Helper()
	rules := r.settings().Rules
	if rules == nil {
		return
	}
	totals := r.store.Totals()
	for i := range rules.Indexes {
		x := &rules.Indexes[i]
		want, grouped := make(map[string]int64), make(map[string]int64)
		for counter, total := range totals {
			group, ok := x.GroupOf(counter)
			if !ok {
				continue
			}
			want[group] += total
		}
		for key, part := range r.store.Grouped(x.Number) {
			if group, ok := x.GroupOf(key.Counter); ok {
				grouped[group] += part
			}
		}
		for group, sum := range want {
			if x.InForce() && totals[group] != grouped[group] {
				r.t.Errorf("%s: the shards of %s sum to %d, and %d is grouped", what, group, totals[group], grouped[group])
			}
			record := r.store.Record(group)
			if got := int128.Of(totals[group]).Add(record.Remainder).Sub(record.Reset.Baseline); built && got != int128.Of(sum) {
				r.t.Errorf("%s: the total of %s is %s, its counters sum to %d", what, group, got, sum)
			}
		}
	}
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// worker starts an Indexer that runs until stop.
func (r *rig) worker(cfg Config) (x *Indexer, stop func()) {
	if cfg.WorkerID == "" {
		r.part++
		cfg.WorkerID = fmt.Sprint("worker", r.part)
	}
	cfg.Logger = quiet
	x = New(r.store, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); x.Run(ctx) }()
	return x, func() { cancel(); <-done }
}

// await lets time pass until ok, for d at most.
func (r *rig) await(what string, d time.Duration, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(d); !ok(); {
		if time.Now().After(end) {
			r.t.Fatalf("%s: not within %s", what, d)
		}
		time.Sleep(time.Second)
		synctest.Wait()
	}
}

func (r *rig) serves() bool { x := r.index(); return x != nil && !x.Serving.IsZero() && x.InForce() }

func (r *rig) ranges(x *store.Index) []store.IndexRange {
	ranges, err := r.store.Ranges(context.Background(), x.Number)
	if err != nil {
		r.t.Fatal(err)
	}
	return ranges
}

// settled is longer than commits by older rules may come, and readers serve deleted groups.
const settled = store.RulesSettle + store.SettingsMaxAge + time.Minute
