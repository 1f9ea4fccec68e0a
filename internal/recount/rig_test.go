package recount_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/countmill/countmill"
	clocks "github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/internal/indexer"
	"github.com/countmill/countmill/internal/recount"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

const shards = 4

// A rig is a store with counters, groups and series under a journal.
type rig struct {
	t *testing.T
	*protocoltest.Store
	*clock
	Rand *rand.Rand

	n     uint64
	first wire.Minute // of complete series
}

// newRig makes the rules, the opening balance and the index, and waits until the series are complete.
func newRig(t *testing.T, opts protocoltest.Options) *rig {
	t.Helper()
	c := &clock{at: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)}
	opts.Clock, opts.Errorf = c.now, t.Errorf
	r := &rig{t: t, Store: protocoltest.New(opts), clock: c, Rand: rand.New(rand.NewPCG(7, 7))}
	for pattern, keep := range map[string]string{"page:*": "400d", "billing:*": "30d,paged"} {
		r.Change(keepJournal(t, pattern, keep))
	}
	for _, pattern := range []string{"page:*", countmill.GroupMark + "site:*"} {
		keep, err := store.ParseRetention(store.KindSeries, "1m:6h,15m:400d")
		r.ok(err)
		r.Change(store.RuleChange{Pattern: pattern, Keep: keep})
	}
	index, err := store.ParseIndex("sites", "page:{site}:*", "site:{site}")
	r.ok(err)
	r.Change(store.RuleChange{Index: &store.IndexChange{Step: store.CreateIndex, Index: index}})
	r.pass(2 * store.RulesSettle)
	for _, prefix := range []string{"page:", "billing:"} {
		r.Recount(recount.Query{Prefix: prefix, Open: true})
	}
	r.Check1()
	r.pass(10 * time.Minute)
	r.first = wire.MinuteOf(r.Now())
	return r
}

func (r *rig) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// Change changes the rules.
func (r *rig) Change(c store.RuleChange) {
	r.t.Helper()
	for range 10 {
		_, err := r.ChangeRules(context.Background(), c)
		if err == nil {
			return
		}
		if errors.Is(err, countmill.ErrInvalid) {
			r.t.Fatal(err)
		}
	}
	r.t.Fatalf("no change of %+v", c)
}

// Check1 has the index checked once: its ranges are read again.
func (r *rig) Check1() {
	r.t.Helper()
	r.pass(time.Minute)
	env := &clocks.Env{Wall: r.Now}
	x := indexer.New(r.Store, clocks.With(indexer.Config{WorkerID: "w", Ranges: 3, Recheck: 30 * time.Second, Logger: quiet}, env))
	for worked := true; worked; {
		var err error
		worked, err = x.Step(context.Background())
		r.ok(err)
	}
	r.pass(time.Second)
}

// Settings are those of now.
func (r *rig) Settings() store.Settings {
	r.t.Helper()
	checked, err := r.Check(context.Background())
	r.ok(err)
	return checked.Settings
}

// Recounter recounts the store by its clock.
func (r *rig) Recounter(s recount.Store, cfg recount.Config) *recount.Recounter {
	return recount.New(s, clocks.With(cfg, &clocks.Env{Wall: r.Now}))
}

// Recount recounts all ranges.
func (r *rig) Recount(q recount.Query) recount.Result {
	r.t.Helper()
	return r.RecountBy(r.Recounter(r.Store, recount.Config{}), q)
}

// RecountBy is Recount by another Recounter. It returns the sums of all ranges.
func (r *rig) RecountBy(x *recount.Recounter, q recount.Query) (all recount.Result) {
	r.t.Helper()
	all.Reasons = make(map[string]int)
	for {
		got, err := x.Recount(context.Background(), q)
		if err != nil {
			r.t.Fatalf("Recount %+v: %v", q, err)
		}
		all.Findings = append(all.Findings, got.Findings...)
		all.Counters, all.Buckets = all.Counters+got.Counters, all.Buckets+got.Buckets
		all.Entries, all.Opened = all.Entries+got.Entries, all.Opened+got.Opened
		for reason, n := range got.Reasons {
			all.Reasons[reason] += n
		}
		if q.Range = got.Next; q.Range == "" {
			return all
		}
	}
}

// A state is everything that readers see, and each shard.
type state struct {
	Shards map[string][]int64
	Totals map[string]int64
	Series map[string]map[string]int64
}

// State reads the state in one view.
func (r *rig) State() state {
	r.t.Helper()
	s := state{make(map[string][]int64), make(map[string]int64), make(map[string]map[string]int64)}
	v := r.View()
	defer v.Close()
	records, err := v.List(context.Background(), "", "", 10_000)
	r.ok(err)
	for i := range records {
		rec := &records[i]
		total := int64(rec.Remainder.Lo)
		for n := range rec.Shards {
			values, err := v.Lookup(context.Background(), []store.Key{{Counter: rec.Counter, Shard: n}})
			r.ok(err)
			s.Shards[rec.Counter] = append(s.Shards[rec.Counter], int64(values[0].Count.Lo))
			total += int64(values[0].Count.Lo)
		}
		s.Totals[rec.Counter] = total
		buckets, err := v.Series(context.Background(), records[i:i+1], r.first-store.DayMinutes, r.first+store.DayMinutes)
		r.ok(err)
		of := make(map[string]int64)
		for _, b := range buckets[0] {
			of[fmt.Sprint(b.Minute, b.Quarter)] = int64(b.Sum.Lo)
		}
		s.Series[rec.Counter] = of
	}
	return s
}
