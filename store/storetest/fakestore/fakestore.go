// Package fakestore is a store in memory for tests. It enforces the limits that
// Firestore in Datastore mode has in production and its emulators have not, and gives
// each of the store's answers on demand, "maybe applied" included.
//
// It starts no goroutines and knows no time but its Clock, so it can be used inside a
// testing/synctest bubble. Hooks are called without locks held: they may block, and
// they may call the store.
package fakestore

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// Options fit the fake to a test. The zero value is Datastore mode as it is.
type Options struct {
	// Entities is the most entities of one commit; a larger one is refused.
	// Default 400.
	Entities int
	// Keys is the most keys of one look-up and the most records of one Raise.
	// Default 1000.
	Keys int
	// Transforms is the most adds of one commit. Default 500.
	Transforms int
	// Commits and Shards are what Limits returns. Default 4 and 1.
	Commits, Shards int
	// RaisesInFold is what Limits returns. Without it a fold with raises is a mistake, and
	// with it nobody gains from more shards, as in Pebble. Default off, as in Datastore.
	GrowsInFold bool
	// CertainOutcome is what Limits returns.
	CertainOutcome bool

	// Window is that of the settings at first. Default countmill.DefaultDedupWindow.
	Window time.Duration

	// ClockOffset is how far the store's clock is ahead of the machine's. Default 0.
	ClockOffset time.Duration
	// Clock is the store's clock, before ClockOffset. Default time.Now.
	Clock func() time.Time
	// Age is how long the process has run. With it the store goes by the machine's clock, as
	// Pebble does: ForgetBefore moves by the time that has run (Settings.Advance), Check returns no time,
	// and Forget goes by ForgetBefore. Default nil, as in Datastore.
	Age func() time.Duration
	// Latency is how long every call takes. Default 0.
	Latency time.Duration

	// Defer says whether look-up n, from 1, defers a key. Default never. See DeferSome.
	Defer func(n int, key store.Key) bool
	// Unpinned is a defect: every call of a view reads the newest state. A test of
	// pinned reads must fail with it. Default off.
	Unpinned bool
	// History keeps every version of everything, for ViewAt. Default off: what no open
	// view can see is dropped.
	History bool

	// NeedRecords takes a fold to a shard that the counter's record does not name for a
	// mistake. Default off.
	NeedRecords bool
	// Exclusive takes two open folds with a shard or a marker in common for a mistake.
	// Default off.
	Exclusive bool
	// Errorf is told of mistakes in the calling program: a shard or marker twice in a
	// commit, adds out of order, a wrong hash. Tests give t.Errorf. Such a call is
	// refused in any case. Default nobody is told.
	Errorf func(format string, args ...any)
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		field *int
		value int
	}{{&o.Entities, 400}, {&o.Keys, 1000}, {&o.Transforms, 500}, {&o.Commits, 4}, {&o.Shards, 1}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	o.Window = cmp.Or(o.Window, countmill.DefaultDedupWindow)
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Errorf == nil {
		o.Errorf = func(string, ...any) {}
	}
	return o
}

// DeferSome returns a Defer that defers about share of all keys, at random.
func DeferSome(share float64, seed uint64) func(int, store.Key) bool {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, seed))
	return func(int, store.Key) bool {
		mu.Lock()
		defer mu.Unlock()
		return random.Float64() < share
	}
}

type shardKey struct {
	counter string
	shard   int
}

// A Store keeps everything in memory. All methods may be called at once.
type Store struct {
	opts Options

	mu       sync.Mutex
	closed   bool
	last     time.Time // the newest commit or read time given out
	settings store.Settings
	moved    time.Duration // Options.Age when ForgetBefore was moved
	cacheKey [32]byte
	shards   map[shardKey]history[int64]
	told     map[shardKey]store.ShardStats
	records  map[string]history[record]
	markers  map[wire.PartID]store.Marker
	resets   map[wire.PartID]store.ResetResult // what those of resets say
	dead     map[string]store.DeadLetter
	workers  map[string]store.Worker
	views    map[*View]struct{}
	counts   Counts
	calls    map[Op]int
	hooks    map[Op]func(n int) Answer
	onFold   func(n int, c *store.Commit) Answer
	open     map[any]struct{} // shards and markers of folds under way, for Exclusive
}

// New returns an empty store.
func New(opts Options) *Store {
	opts = opts.withDefaults()
	settings := store.NewSettings(opts.Window, opts.now())
	settings.ForgetBefore = opts.now().Add(-opts.Window) // also in a bubble, whose time begins in 2000
	s := &Store{
		opts:     opts,
		settings: settings,
		shards:   make(map[shardKey]history[int64]),
		told:     make(map[shardKey]store.ShardStats),
		records:  make(map[string]history[record]),
		markers:  make(map[wire.PartID]store.Marker),
		resets:   make(map[wire.PartID]store.ResetResult),
		dead:     make(map[string]store.DeadLetter),
		workers:  make(map[string]store.Worker),
		views:    make(map[*View]struct{}),
		calls:    make(map[Op]int),
		hooks:    make(map[Op]func(int) Answer),
		open:     make(map[any]struct{}),
	}
	_, _ = crand.Read(s.cacheKey[:])
	return s
}

// CacheIdentity is drawn by New.
func (s *Store) CacheIdentity() (prefix string, key [32]byte) {
	return "cm:" + hex.EncodeToString(s.cacheKey[:8]) + ":", s.cacheKey
}

// Limits returns what the options say.
func (s *Store) Limits() store.Limits {
	limits := store.Limits{
		Entities: s.opts.Entities, Keys: s.opts.Keys, Commits: s.opts.Commits, Shards: s.opts.Shards,
		GrowsInFold: s.opts.GrowsInFold, CertainOutcome: s.opts.CertainOutcome, ShardRate: 1,
	}
	if s.opts.GrowsInFold {
		limits.ShardRate = 0
	}
	return limits
}

// Keys returns what the options say.
func (s *Store) Keys() int { return s.opts.Keys }

// Close makes every later call fail. It may be called twice.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

var errClosed = errors.New("fakestore: closed")

// mistake refuses a call that no correct program makes, and tells the test.
func (s *Store) mistake(format string, args ...any) error {
	err := fmt.Errorf("%w: mistake in the caller: %s", store.ErrRefused, fmt.Sprintf(format, args...))
	s.mu.Lock()
	s.counts.Mistakes++
	s.mu.Unlock()
	s.opts.Errorf("fakestore: %v", err)
	return err
}

// overLimit refuses as Datastore does: InvalidArgument.
func (s *Store) overLimit(what string, got, limit int) error {
	s.mu.Lock()
	s.counts.OverLimit++
	s.mu.Unlock()
	return fmt.Errorf("%w: %d %s, at most %d", store.ErrRefused, got, what, limit)
}

func (o *Options) now() time.Time { return o.Clock().Add(o.ClockOffset).Truncate(time.Microsecond) }

// commitTimeLocked is later than every time given out before, as Datastore's is.
func (s *Store) commitTimeLocked() time.Time {
	now := s.opts.now()
	if !now.After(s.last) {
		now = s.last.Add(time.Microsecond)
	}
	s.last = now
	return now
}

// readTimeLocked is not earlier than any commit made so far; every later commit is
// later than it.
func (s *Store) readTimeLocked() time.Time {
	now := s.opts.now()
	if now.After(s.last) {
		s.last = now
	}
	return s.last
}

// wait takes the time that a call takes.
func (s *Store) wait(ctx context.Context) error {
	if s.opts.Latency > 0 {
		timer := time.NewTimer(s.opts.Latency)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("fakestore: %w", err)
	}
	return nil
}
