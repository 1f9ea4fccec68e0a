// Package recounttest damages the sums of a store, and tests that a recount finds and corrects exactly that.
package recounttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/indexer"
	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/internal/recount"
	"github.com/countmill/countmill/internal/sysenv"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

const shards = 4

// A Rig is a store with counters, groups and series under a journal.
type Rig struct {
	T *testing.T
	store.Store
	// Pass moves the store's clock, and Now is its time.
	Pass func(d time.Duration)
	Now  func() time.Time
	Rand *rand.Rand

	n     uint64
	first wire.Minute // of complete series
}

// New makes the rules, the opening balance and the index, and waits until the series are complete.
func New(t *testing.T, s store.Store, pass func(time.Duration), now func() time.Time) *Rig {
	t.Helper()
	r := &Rig{T: t, Store: s, Pass: pass, Now: now, Rand: rand.New(rand.NewPCG(7, 7))}
	for pattern, keep := range map[string]string{"page:*": "400d", "billing:*": "30d,paged"} {
		change, err := store.ParseJournalKeep(keep)
		r.ok(err)
		r.Change(store.RuleChange{Pattern: pattern, Journal: &change})
	}
	for _, pattern := range []string{"page:*", countmill.GroupMark + "site:*"} {
		keep, err := store.ParseRetention("1m:6h,15m:400d")
		r.ok(err)
		r.Change(store.RuleChange{Pattern: pattern, Keep: keep})
	}
	index, err := store.ParseIndex("sites", "page:{site}:*", "site:{site}")
	r.ok(err)
	r.Change(store.RuleChange{Index: &store.IndexChange{Step: store.CreateIndex, Index: index}})
	r.Pass(2 * store.RulesSettle)
	for _, prefix := range []string{"page:", "billing:"} {
		r.Recount(recount.Query{Prefix: prefix, Open: true})
	}
	r.Check1()
	r.Pass(10 * time.Minute)
	r.first = wire.MinuteOf(r.Now())
	return r
}

func (r *Rig) ok(err error) {
	r.T.Helper()
	if err != nil {
		r.T.Fatal(err)
	}
}

// Change changes the rules.
func (r *Rig) Change(c store.RuleChange) {
	r.T.Helper()
	for range 10 {
		_, err := r.ChangeRules(context.Background(), c)
		if err == nil {
			return
		}
		if errors.Is(err, countmill.ErrInvalid) {
			r.T.Fatal(err)
		}
	}
	r.T.Fatalf("no change of %+v", c)
}

// Check1 has the index checked once: its pieces are read again.
func (r *Rig) Check1() {
	r.T.Helper()
	r.Pass(time.Minute)
	env := &sysenv.Env{Wall: r.Now}
	x := indexer.New(r.Store, sysenv.With(indexer.Config{WorkerID: "w", Pieces: 3, Recheck: 30 * time.Second, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}, env))
	for worked := true; worked; {
		var err error
		worked, err = x.Step(context.Background())
		r.ok(err)
	}
	r.Pass(time.Second)
}

// Settings are those of now.
func (r *Rig) Settings() store.Settings {
	r.T.Helper()
	checked, err := r.Check(context.Background())
	r.ok(err)
	return checked.Settings
}

// Recounter recounts the store by its clock.
func (r *Rig) Recounter(s recount.Store, cfg recount.Config) *recount.Recounter {
	return recount.New(s, sysenv.With(cfg, &sysenv.Env{Wall: r.Now}))
}

// Recount recounts all pieces.
func (r *Rig) Recount(q recount.Query) recount.Result {
	r.T.Helper()
	return r.RecountBy(r.Recounter(r.Store, recount.Config{}), q)
}

// RecountBy is Recount by another Recounter. It returns the sums of all pieces.
func (r *Rig) RecountBy(x *recount.Recounter, q recount.Query) (all recount.Result) {
	r.T.Helper()
	all.Reasons = make(map[string]int)
	for {
		got, err := x.Recount(context.Background(), q)
		if err != nil {
			r.T.Fatalf("Recount %+v: %v", q, err)
		}
		all.Findings = append(all.Findings, got.Findings...)
		all.Counters, all.Buckets, all.Groups = all.Counters+got.Counters, all.Buckets+got.Buckets, all.Groups+got.Groups
		all.Entries, all.Opened = all.Entries+got.Entries, all.Opened+got.Opened
		for reason, n := range got.Reasons {
			all.Reasons[reason] += n
		}
		if q.Piece = got.Next; q.Piece == "" {
			return all
		}
	}
}

// Fold folds one part as an aggregator does: with its record, groups and series.
func (r *Rig) Fold(id wire.PartID, minute wire.Minute, deltas map[string]int64) error {
	r.T.Helper()
	set := r.Settings()
	at, done := r.JournalMoment(r.Now())
	defer done()
	c := &store.Commit{Rules: set.Version, Archive: r.Limits().Ring.Archive(r.Now()), Markers: []store.Marker{r.marker(id)}}
	part := journal.Part{ID: id, Fingerprint: 1, Minute: minute, Sender: "rig"}
	keeps := make(map[time.Duration]*journal.Record)
	for _, name := range slices.Sorted(maps.Keys(deltas)) {
		if rule := set.Rules.JournalOf(name); rule != nil {
			if keeps[rule.Keep] == nil {
				keeps[rule.Keep] = &journal.Record{Parts: []journal.Part{part}}
			}
			p := &keeps[rule.Keep].Parts[0]
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
func (r *Rig) fold(c *store.Commit) error {
	for range 100 {
		_, err := r.Store.Fold(context.Background(), c)
		if err == nil || errors.Is(err, store.ErrMarkerExists) || errors.Is(err, store.ErrRefused) {
			return err
		}
	}
	return errors.New("no fold succeeds")
}

func (r *Rig) marker(id wire.PartID) store.Marker {
	return store.Marker{ID: id, Fingerprint: 1, Fold: 1, At: r.Now(), ExpireAt: r.Now().Add(9 * 24 * time.Hour)}
}

// sums adds the sums of the deltas and of their groups to a commit.
func (r *Rig) sums(c *store.Commit, set *store.Settings, minute wire.Minute, deltas map[string]int64) {
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

func (r *Rig) grow(c *store.Commit) {
	r.T.Helper()
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
func (r *Rig) NewID() (id wire.PartID) {
	for i := range id {
		id[i] = byte(r.Rand.Uint32())
	}
	id[0] = byte(wire.AnonymousClass)<<4 | id[0]&0xf
	return id
}

// History folds parts for hours; some parts come twice.
func (r *Rig) History(parts int) {
	r.T.Helper()
	for range parts {
		r.Pass(30 * time.Second)
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
				r.T.Fatalf("a part that came again: got %v, want ErrMarkerExists", err)
			}
		}
	}
}

// A State is everything that readers see, and each shard.
type State struct {
	Shards map[string][]int64
	Totals map[string]int64
	Series map[string]map[string]int64
}

// State reads the state in one view.
func (r *Rig) State() State {
	r.T.Helper()
	s := State{make(map[string][]int64), make(map[string]int64), make(map[string]map[string]int64)}
	v := r.View()
	defer v.Close()
	records, err := v.List(context.Background(), "", "", 10_000)
	r.ok(err)
	for i := range records {
		rec := &records[i]
		total := rec.Rest
		for n := range rec.Shards {
			values, err := v.Lookup(context.Background(), []store.Key{{Counter: rec.Counter, Shard: n}})
			r.ok(err)
			s.Shards[rec.Counter] = append(s.Shards[rec.Counter], values[0].Value)
			total += values[0].Value
		}
		s.Totals[rec.Counter] = total
		buckets, err := v.Series(context.Background(), rec.Counter, r.first-store.DayMinutes, r.first+store.DayMinutes)
		r.ok(err)
		of := make(map[string]int64)
		for _, b := range buckets {
			of[fmt.Sprint(b.Minute, b.Quarter)] = b.Sum
		}
		s.Series[rec.Counter] = of
	}
	return s
}

// Damage changes n sums at random, each once, and returns their names.
func (r *Rig) Damage(n int) (damaged []string) {
	r.T.Helper()
	names := slices.Sorted(maps.Keys(r.State().Totals))
	seen := make(map[string]bool)
	for len(damaged) < n {
		name := names[r.Rand.IntN(len(names))]
		minute := r.first + wire.Minute(r.Rand.IntN(int(wire.MinuteOf(r.Now())-r.first)))
		delta := r.Rand.Int64N(100) + 1
		if r.Rand.IntN(2) == 0 {
			delta = -delta
		}
		c := &store.Commit{Correction: true, Rules: r.Settings().Version, Archive: r.Limits().Ring.Archive(r.Now()), Markers: []store.Marker{r.marker(r.NewID())}}
		what := ""
		switch isGroup := countmill.IsGroup(name); {
		case !strings.HasPrefix(name, "billing:") && r.Rand.IntN(2) == 0:
			what = fmt.Sprintf("%s %s %d", recount.WrongBucket, name, minute)
			c.Buckets = []store.BucketDelta{{Minute: minute, Delta: delta}}
			delta = 0
		case isGroup:
			what = fmt.Sprintf("%s %s 0", recount.WrongGroup, name)
		default:
			what = fmt.Sprintf("%s %s 0", recount.WrongTotal, name)
		}
		if seen[what] {
			continue
		}
		seen[what] = true
		c.Adds = []store.ShardDelta{store.NewShardDelta(name, r.Rand.IntN(shards), delta)}
		r.ok(r.fold(c))
		damaged = append(damaged, what)
	}
	slices.Sort(damaged)
	return damaged
}

// Named returns the findings as Damage names them.
func Named(findings []recount.Finding) (names []string) {
	for _, f := range findings {
		names = append(names, fmt.Sprintf("%s %s %d", f.Kind, f.Name, f.Minute))
	}
	slices.Sort(names)
	return names
}

// Nothing wants a recount that compares everything and finds nothing.
func (r *Rig) Nothing(what string) {
	r.T.Helper()
	got := r.Recount(recount.Query{})
	if len(got.Findings) > 0 || got.Counters == 0 || got.Groups == 0 || got.Buckets == 0 || len(got.Reasons) > 0 {
		r.T.Fatalf("%s: %d counters, %d groups and %d buckets compared, not compared: %v; found %+v", what, got.Counters, got.Groups, got.Buckets, got.Reasons, got.Findings)
	}
}

// Repairs tests that a recount finds each of 100 damaged shards, buckets and groups, and corrects exactly these, although the
// process is killed between. With checked the index is checked after the damage, so the rests of groups follow it.
func Repairs(t *testing.T, r *Rig, checked bool) {
	r.History(400)
	r.Nothing("before the damage")
	want := r.State()
	damaged := r.Damage(100)
	if checked {
		r.Check1()
	}
	if diff := gocmp.Diff(damaged, Named(r.Recount(recount.Query{}).Findings)); diff != "" {
		t.Fatalf("found (-damaged +found):\n%s", diff)
	}
	for _, after := range []int{0, 13, 40} {
		dying := &Dying{Store: r.Store, After: after}
		if _, err := r.Recounter(dying, recount.Config{}).Recount(context.Background(), recount.Query{Repair: true}); err == nil {
			t.Fatalf("killed after %d corrections: no error", after)
		}
	}
	left := r.Recount(recount.Query{Repair: true})
	// A commit corrects all damaged minutes of a quarter hour.
	if n := len(left.Findings); n == 0 || n > 100-13-40 {
		t.Errorf("%d were left after 53 corrections", n)
	}
	for _, f := range left.Findings {
		if !f.Fixed {
			t.Errorf("not corrected: %+v", f)
		}
	}
	if checked {
		r.Check1()
	}
	got := r.State()
	if diff := gocmp.Diff(want.Totals, got.Totals); diff != "" {
		t.Errorf("totals (-before the damage +after the repair):\n%s", diff)
	}
	if diff := gocmp.Diff(want.Series, got.Series); diff != "" {
		t.Errorf("series (-before the damage +after the repair):\n%s", diff)
	}
	r.untouched(damaged, &want, &got)
	r.Nothing("after the repair")
	r.History(20)
	r.Nothing("after more increments")
}

// untouched wants every shard of the counters that were not damaged as it was.
func (r *Rig) untouched(damaged []string, want, got *State) {
	r.T.Helper()
	for name := range want.Shards {
		touched := slices.ContainsFunc(damaged, func(d string) bool { return strings.HasSuffix(d, " "+name+" 0") })
		if !touched && !slices.Equal(want.Shards[name], got.Shards[name]) {
			r.T.Errorf("the shards of %s, which was not damaged, are %v, were %v", name, got.Shards[name], want.Shards[name])
		}
	}
}

// A Dying store is that of a process that is killed after some corrections.
type Dying struct {
	store.Store
	After int
}

var errKilled = fmt.Errorf("%w: killed", store.ErrDeployment)

// Fold fails when the process is dead.
func (d *Dying) Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error) {
	if d.After--; d.After < 0 {
		return store.CommitResult{}, errKilled
	}
	return d.Store.Fold(ctx, c)
}
