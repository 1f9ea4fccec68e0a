// Package fakestore is a store in memory for tests. It enforces the production limits of Firestore in
// Datastore mode, which its emulators do not have. It gives each of the store's answers on demand,
// including "maybe applied".
//
// It starts no goroutines and uses no clock but Options.Clock, so it works inside a testing/synctest
// bubble. Hooks are called without locks held: they may block, and they may call the store.
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
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// Options fit the fake to a test. The zero value behaves like Datastore mode.
type Options struct {
	// Entities is the most entities of one commit; a larger one is refused. Default 400.
	Entities int
	// Keys is the most keys of one look-up and the most records of one Grow. Default 1000.
	Keys int
	// Transforms is the most adds of one commit. Default 500.
	Transforms int
	// Commits and Shards are values that Limits returns. Default 4 and 1.
	Commits, Shards int
	// GrowsInFold is a value that Limits returns. If it is false, a fold with growths is a mistake. If
	// it is true, more shards make no counter faster, and commits made with older rules are refused, as in
	// Pebble. Default false, as in Datastore.
	GrowsInFold bool
	// CertainOutcome is what Limits returns.
	CertainOutcome bool
	// Ring is a value that Limits returns. Without one, folds add to the archive, as in Pebble. Default
	// that of Datastore; none with GrowsInFold.
	Ring store.Ring

	// Window is the initial window of the settings. Default countmill.DefaultDedupWindow.
	Window time.Duration

	// ClockOffset is how far the store's clock is ahead of the machine's. Default 0.
	ClockOffset time.Duration
	// Clock is the store's clock, before ClockOffset. Default time.Now.
	Clock func() time.Time
	// Age is how long the process has run. If it is set the store uses the machine's clock, as Pebble
	// does: ForgetBefore advances with Age (Settings.Advance), Check returns no time, and Forget uses
	// ForgetBefore. Default nil, as in Datastore.
	Age func() time.Duration
	// Latency is how long every call takes. Default 0.
	Latency time.Duration

	// Defer reports whether look-up n, from 1, defers a key. Default never. See DeferSome.
	Defer func(n int, key store.Key) bool
	// Unpinned is a defect: every call of a view reads the newest state. A test of pinned reads must
	// fail with it. Default false.
	Unpinned bool
	// History keeps every version of all data, for ViewAt. Default false: versions that no open view
	// can see are dropped.
	History bool

	// NeedRecords makes a fold a mistake if the counter's record does not name its shard. Default
	// false.
	NeedRecords bool
	// Exclusive makes two open folds with a common shard or marker a mistake. Default false.
	Exclusive bool
	// Errorf gets the mistakes of the calling program: a shard or marker twice in a commit, adds out of
	// order, a wrong hash. Tests pass t.Errorf. The store refuses such a call in any case. Default nil:
	// mistakes are not reported.
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
	if o.Ring == (store.Ring{}) && !o.GrowsInFold {
		o.Ring = store.Ring{Buckets: store.SeriesBuckets, Window: store.SeriesRing, Minutes: store.SeriesMinutes}
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

// A Store keeps all data in memory. All methods are safe for concurrent use.
type Store struct {
	opts Options

	mu         sync.Mutex
	closed     bool
	last       time.Time // the latest commit or read time so far
	settings   store.Settings
	oldest     int64         // the highest Rules.Oldest since New
	moved      time.Duration // Options.Age when ForgetBefore last advanced
	cacheKey   [32]byte
	shards     map[shardKey]history[int128.Int]
	shardStats map[shardKey]store.ShardStats
	bucketed   map[shardKey]history[int128.Int]
	grouped    map[shardKey]map[int64]int128.Int // by index; newest
	ranges     map[rangeKey]store.IndexRange
	remainders map[rangeKey]map[string]int128.Int
	series     map[string]map[bucketKey]history[int128.Int] // the archive
	ring       map[string]map[ringKey]history[cell]
	changed    map[shardKey]time.Time // when a shard with a series was changed last
	records    map[string]history[record]
	markers    map[wire.PartID]store.Marker
	resets     map[wire.PartID]store.ResetResult // the content of reset markers
	sequences  map[string]store.SequenceState
	given      map[wire.PartID]store.Given // the content of the markers of sequences
	dead       map[string]store.DeadLetter
	refs       map[wire.PartID]map[string]store.DeadLetterRef // by letter
	workers    map[string]store.Worker
	journal    journal
	views      map[*View]struct{}
	counts     Counts
	changes    uint64 // of sums
	calls      map[Op]int
	hooks      map[Op]func(n int) Answer
	onFold     func(n int, c *store.Commit) Answer
	open       map[any]struct{} // shards and markers of running folds, for Exclusive
}

// New returns an empty store.
func New(opts Options) *Store {
	opts = opts.withDefaults()
	settings := store.NewSettings(opts.Window, opts.now())
	settings.ForgetBefore = opts.now().Add(-opts.Window) // also in a bubble, whose time begins in 2000
	s := &Store{
		opts:       opts,
		settings:   settings,
		shards:     make(map[shardKey]history[int128.Int]),
		shardStats: make(map[shardKey]store.ShardStats),
		bucketed:   make(map[shardKey]history[int128.Int]),
		series:     make(map[string]map[bucketKey]history[int128.Int]),
		ring:       make(map[string]map[ringKey]history[cell]),
		changed:    make(map[shardKey]time.Time),
		records:    make(map[string]history[record]),
		markers:    make(map[wire.PartID]store.Marker),
		resets:     make(map[wire.PartID]store.ResetResult),
		sequences:  make(map[string]store.SequenceState),
		given:      make(map[wire.PartID]store.Given),
		dead:       make(map[string]store.DeadLetter),
		refs:       make(map[wire.PartID]map[string]store.DeadLetterRef),
		grouped:    make(map[shardKey]map[int64]int128.Int),
		ranges:     make(map[rangeKey]store.IndexRange),
		remainders: make(map[rangeKey]map[string]int128.Int),
		workers:    make(map[string]store.Worker),
		journal:    newJournal(),
		views:      make(map[*View]struct{}),
		calls:      make(map[Op]int),
		hooks:      make(map[Op]func(int) Answer),
		open:       make(map[any]struct{}),
	}
	_, _ = crand.Read(s.cacheKey[:])
	return s
}

// CacheIdentity returns a random identity that New draws.
func (s *Store) CacheIdentity() (prefix string, key [32]byte) {
	return "cm:" + hex.EncodeToString(s.cacheKey[:8]) + ":", s.cacheKey
}

// Limits returns the limits of the options.
func (s *Store) Limits() store.Limits {
	limits := store.Limits{
		Entities: s.opts.Entities, Keys: s.opts.Keys, Commits: s.opts.Commits, Shards: s.opts.Shards,
		GrowsInFold: s.opts.GrowsInFold, CertainOutcome: s.opts.CertainOutcome, ShardRate: 1,
		RefusesOldRules: s.opts.GrowsInFold, Remainders: maxRemainders,
		Ring: s.opts.Ring,
	}
	if s.opts.GrowsInFold {
		limits.ShardRate = 0
	}
	return limits
}

// Keys returns Options.Keys.
func (s *Store) Keys() int { return s.opts.Keys }

// Close makes every later call fail. A second Close does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

var errClosed = errors.New("fakestore: closed")

// mistake refuses a call that no correct program makes, and reports it to the test.
func (s *Store) mistake(format string, args ...any) error {
	err := fmt.Errorf("%w: mistake in the caller: %s", store.ErrRefused, fmt.Sprintf(format, args...))
	s.mu.Lock()
	s.counts.Mistakes++
	s.mu.Unlock()
	s.opts.Errorf("fakestore: %v", err)
	return err
}

// overLimit refuses a call as Datastore does: InvalidArgument.
func (s *Store) overLimit(what string, got, limit int) error {
	s.mu.Lock()
	s.counts.OverLimit++
	s.mu.Unlock()
	return fmt.Errorf("%w: %d %s, at most %d", store.ErrRefused, got, what, limit)
}

func (o *Options) now() time.Time { return o.Clock().Add(o.ClockOffset).Truncate(time.Microsecond) }

// commitTimeLocked returns a time later than all before, as Datastore does.
func (s *Store) commitTimeLocked() time.Time {
	now := s.opts.now()
	if !now.After(s.last) {
		now = s.last.Add(time.Microsecond)
	}
	s.last = now
	return now
}

// readTimeLocked returns a time that is not before any commit so far, and before every later one.
func (s *Store) readTimeLocked() time.Time {
	now := s.opts.now()
	if now.After(s.last) {
		s.last = now
	}
	return s.last
}

// wait takes as long as a call.
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
