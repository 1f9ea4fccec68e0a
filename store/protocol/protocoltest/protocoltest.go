// Package protocoltest opens package protocol's store over package memory's database, for tests of roles. Each call of the database
// gets an answer on demand, including "maybe applied", and mistakes of the caller are reported.
//
// Hooks are called without locks held: they may block, and they may call the store.
package protocoltest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/memory"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/store/protocol"
)

// Options fit the store to a test. The zero value behaves like Datastore mode.
type Options struct {
	// Entities is the most entities of one commit. Default 400; no limit with GrowsInFold.
	Entities int
	// Keys is the most keys of one look-up. Default 1000.
	Keys int
	// Commits and Shards are values that Limits returns. Default 4 and 1.
	Commits, Shards int
	// GrowsInFold makes a store with the limits of PostgreSQL, or with CertainOutcome of Pebble: more shards make no
	// counter faster, commits by older rules are refused, and there is no ring.
	GrowsInFold bool
	// CertainOutcome is a value that Limits returns.
	CertainOutcome bool

	// Window is the initial window of the settings. Default countmill.DefaultDedupWindow.
	Window time.Duration
	// Clock is the machine's clock. Default time.Now. ClockOffset is how far the store's clock is ahead of it.
	Clock       func() time.Time
	ClockOffset time.Duration
	// MachineClock makes the store use the machine's clock, as Pebble does. Age is how long the process has run. Default
	// how far Clock has moved since New.
	MachineClock bool
	Age          func() time.Duration
	// Latency is how long every call of the database takes, but the end of a transaction. Default 0.
	Latency time.Duration

	// NeedRecords makes a fold a mistake if the counter's record does not name its shard.
	NeedRecords bool
	// Exclusive makes two open folds with a common shard or marker a mistake.
	Exclusive bool
	// Errorf gets the mistakes of the calling program, such as adds out of order. Tests pass t.Errorf. The store
	// refuses such a call in any case. Default nil: mistakes are not reported.
	Errorf func(format string, args ...any)
}

// engine returns the limits of the database.
func (o *Options) engine() engine.Limits {
	l := engine.Limits{ByName: true, Keys: cmp.Or(o.Keys, 1000), Commits: cmp.Or(o.Commits, 4), RowBytes: 900 << 10, CertainOutcome: o.CertainOutcome}
	if l.Clock, l.Exclusive = !o.MachineClock, o.MachineClock || o.GrowsInFold && o.CertainOutcome; o.GrowsInFold {
		l.Conditions, l.FreeUpserts = true, true
		return l
	}
	l.RowsCost, l.Spread, l.Returns, l.MaxThenAdd, l.RowRate = true, true, true, true, 1
	l.Expires, l.Rows, l.Fields, l.Bytes = l.Clock, cmp.Or(o.Entities, 400), 500, 9<<20
	return l
}

// A Store keeps all data in memory. All methods are safe for concurrent use.
type Store struct {
	*protocol.Store
	DB   *memory.Database // for faults of the database
	opts Options

	mu     sync.Mutex
	counts Counts
	calls  map[string]int
	hooks  map[string]func(n int) Answer
	onFold func(n int, c *store.Commit) Answer
	ends   sync.Map     // the answers of transactions that have begun, by their contexts
	open   map[any]bool // shards and markers of open folds, for Exclusive
}

// New returns an empty store. In a bubble, whose time begins in 2000, it waits until all times in a window are possible ones.
func New(opts Options) *Store {
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if time.Now().Before(clock.Earliest) {
		<-time.After(time.Until(clock.Earliest.Add(store.MaxWindow)))
	}
	if began := opts.Clock(); opts.Age == nil {
		opts.Age = func() time.Duration { return opts.Clock().Sub(began) }
	}
	if opts.Errorf == nil {
		opts.Errorf = func(string, ...any) {}
	}
	s := &Store{opts: opts, calls: make(map[string]int), hooks: make(map[string]func(int) Answer), open: make(map[any]bool)}
	s.counts.Wrote, s.counts.TxWrote, s.counts.Read = make(map[string]int), make(map[string]int), make(map[string]int)
	s.DB = memory.New(protocol.Kinds, memory.Options{Limits: opts.engine(), Clock: s.Now, Errorf: opts.Errorf})
	var err error
	s.Store, err = protocol.Open(context.Background(), s.DB.Open(), protocol.Config{Window: opts.Window, Shards: opts.Shards, Clock: opts.Clock, Age: opts.Age, Create: true})
	if err != nil {
		panic(err) // a database in memory opens
	}
	s.DB.Around(s.around)
	return s
}

// Now is the time of the database's clock.
func (s *Store) Now() time.Time {
	return s.opts.Clock().Add(s.opts.ClockOffset).Truncate(time.Microsecond)
}

// Fold refuses mistakes of the caller, and names the commit to the hook of OnFold.
func (s *Store) Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error) {
	if err := cmp.Or(s.check(c), s.claim(c, true)); err != nil {
		s.opts.Errorf("protocoltest: %v", err)
		return store.CommitResult{}, fmt.Errorf("%w: mistake of the caller: %w", store.ErrRefused, err)
	}
	defer func() { _ = s.claim(c, false) }()
	return s.Store.Fold(context.WithValue(ctx, commitKey{}, c), c)
}

// check refuses commits that no aggregator should send, as far as the database does not.
func (s *Store) check(c *store.Commit) error {
	switch {
	case c.Entities() == 0 && !s.opts.GrowsInFold:
		return fmt.Errorf("an empty commit")
	case len(c.Growths) > 0 && !s.opts.GrowsInFold:
		return fmt.Errorf("%d growths", len(c.Growths))
	case c.KnownShards != nil && len(c.KnownShards) != len(c.Adds):
		return fmt.Errorf("%d known numbers of shards for %d adds", len(c.KnownShards), len(c.Adds))
	case !slices.IsSortedFunc(c.Buckets, func(a, b store.BucketDelta) int {
		return cmp.Or(cmp.Compare(a.Add, b.Add), cmp.Compare(a.Minute, b.Minute), -1)
	}):
		return fmt.Errorf("buckets out of order")
	}
	for i := range c.Markers {
		if m := &c.Markers[i]; m.At.IsZero() || m.ExpireAt.IsZero() {
			return fmt.Errorf("the marker %s of %s expires at %s", m.ID, m.At, m.ExpireAt)
		}
	}
	sums, has := make(map[int]int128.Int), make(map[string]int)
	for _, b := range c.Buckets {
		sums[b.Add] = sums[b.Add].Add(b.Sum())
	}
	for _, g := range c.Growths {
		has[g.Counter] = g.Shards
	}
	for i, a := range c.Adds {
		sum, bucketed := sums[i]
		placed := store.NewShardDelta(a.Counter, a.Shard, a.Delta)
		switch err := countmill.CheckName(a.Counter); {
		case err != nil:
			return err
		case a.Order != placed.Order || a.Hash != placed.Hash || a.Shard < 0 || a.Shard >= countmill.MaxShards:
			return fmt.Errorf("add %d has another place than shard %d of %q", i, a.Shard, a.Counter)
		case i > 0 && cmp.Or(cmp.Compare(c.Adds[i-1].Order, a.Order), cmp.Compare(c.Adds[i-1].Counter, a.Counter), cmp.Compare(c.Adds[i-1].Shard, a.Shard)) >= 0:
			return fmt.Errorf("add %d is out of order", i)
		case !c.Correction && bucketed && sum != a.Sum(), !bucketed && a.Sum() == int128.Int{}:
			return fmt.Errorf("add %d of %d has buckets of %d", i, a.Sum(), sum)
		case s.opts.NeedRecords && a.Shard >= max(has[a.Counter], s.Record(a.Counter).Shards):
			return fmt.Errorf("no record names shard %d of %q", a.Shard, a.Counter)
		}
	}
	return nil
}

// claim notes the shards and markers of a fold that begins or ends.
func (s *Store) claim(c *store.Commit, begins bool) error {
	if !s.opts.Exclusive {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []any
	for i := range c.Markers {
		keys = append(keys, c.Markers[i].ID)
	}
	for i := range c.Adds {
		keys = append(keys, store.Key{Counter: c.Adds[i].Counter, Shard: c.Adds[i].Shard})
	}
	for _, key := range keys {
		if begins && s.open[key] {
			return fmt.Errorf("%v is in two open folds", key)
		}
	}
	for _, key := range keys {
		s.open[key] = begins
	}
	return nil
}
