package reader_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

var errAway = errors.New("store is unavailable")

// A fakeStore is a Store in memory. Its views keep their moment, as the contract says.
type fakeStore struct {
	store.Boards // nil: boards are tested with protocoltest

	skew time.Duration // its clock minus ours
	own  bool          // Check says that its clock is the machine's

	// called runs at the beginning of each call but Series, without a lock.
	called func(ctx context.Context, call string)
	// before runs before the n-th look-up (from 1) of all views, without a lock; its error is the
	// look-up's. It may change the store, but views that were used before do not see the change.
	before func(ctx context.Context, n int) error

	mu          sync.Mutex
	counters    map[string][]store.Value // by shard; its length is the record
	resets      map[string]store.ResetState
	lookups     [][]store.Key
	open        int // views
	workers     []store.Worker
	asked       int // calls of Workers
	broken      error
	checks      int
	foreign     error
	expired     time.Time // Settings.ForgetBefore
	markers     map[wire.PartID]store.Marker
	refs        map[wire.PartID][]store.DeadLetterRef
	completions []int // keys of each call of Applied
}

// put sets a counter's shards.
func (s *fakeStore) put(counter string, shards ...int64) {
	values := make([]store.Value, len(shards))
	for i, v := range shards {
		values[i] = store.Value{Exists: true, Count: int128.Of(v)}
	}
	s.putValues(counter, values...)
}

func (s *fakeStore) putValues(counter string, values ...store.Value) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counters == nil {
		s.counters = make(map[string][]store.Value)
	}
	s.counters[counter] = values
}

func clone(counters map[string][]store.Value) map[string][]store.Value {
	c := maps.Clone(counters)
	for name, values := range c {
		c[name] = slices.Clone(values)
	}
	return c
}

func (s *fakeStore) breakWith(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = err
}

func (s *fakeStore) lookupSizes() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sizes []int
	for _, keys := range s.lookups {
		sizes = append(sizes, len(keys))
	}
	return sizes
}

func (s *fakeStore) View() store.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open++
	return &fakeView{store: s}
}

func (s *fakeStore) enter(ctx context.Context, call string) {
	if s.called != nil {
		s.called(ctx, call)
	}
}

func (s *fakeStore) Workers(ctx context.Context) ([]store.Worker, error) {
	s.enter(ctx, "workers")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return slices.Clone(s.workers), s.broken
}

func (s *fakeStore) Applied(ctx context.Context, ids []wire.PartID) (found []store.Marker, err error) {
	s.enter(ctx, "applied")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.completions = append(s.completions, len(ids))
	for _, id := range ids {
		if m, ok := s.markers[id]; ok {
			found = append(found, m)
		}
	}
	return found, s.broken
}

func (s *fakeStore) DeadLetterRefs(ctx context.Context, completions []wire.PartID) (found []store.DeadLetterRef, err error) {
	s.enter(ctx, "refs")
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, completion := range completions {
		found = append(found, s.refs[completion]...)
	}
	return found, s.broken
}

// mark inserts a marker.
func (s *fakeStore) mark(id wire.PartID, f wire.Fingerprint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.markers == nil {
		s.markers = make(map[wire.PartID]store.Marker)
	}
	s.markers[id] = store.Marker{ID: id, Fingerprint: f}
}

func (s *fakeStore) Check(ctx context.Context) (store.Checked, error) {
	s.enter(ctx, "check")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checks++
	if s.own {
		return store.Checked{}, errors.Join(s.foreign, ctx.Err())
	}
	return store.Checked{At: time.Now().Add(s.skew), Settings: store.Settings{ForgetBefore: s.expired}}, errors.Join(s.foreign, ctx.Err())
}

type fakeView struct {
	store  *fakeStore
	at     time.Time
	state  map[string][]store.Value
	closed bool
}

// pin fixes the view's moment.
func (v *fakeView) pin() {
	if v.at.IsZero() {
		v.at = time.Now().Add(v.store.skew)
		v.state = clone(v.store.counters)
	}
}

func (v *fakeView) Lookup(ctx context.Context, keys []store.Key) ([]store.Value, error) {
	s := v.store
	s.enter(ctx, "lookup")
	s.mu.Lock()
	s.lookups = append(s.lookups, slices.Clone(keys))
	n := len(s.lookups)
	s.mu.Unlock()
	if s.before != nil {
		if err := s.before(ctx, n); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(s.broken, ctx.Err()); err != nil {
		return nil, err
	}
	if len(keys) > store.LookupKeys {
		return nil, errors.New("too many keys")
	}
	v.pin()
	values := make([]store.Value, len(keys))
	for i, key := range keys {
		values[i] = v.value(key)
	}
	return values, nil
}

func (v *fakeView) value(key store.Key) store.Value {
	shards, ok := v.state[key.Counter]
	switch {
	case key.Shard == store.RecordKey:
		return store.Value{Exists: ok, Shards: len(shards), Reset: v.store.resets[key.Counter]}
	case key.Shard < len(shards):
		return shards[key.Shard]
	}
	return store.Value{}
}

func (v *fakeView) List(ctx context.Context, prefix, after string, limit int) ([]store.Record, error) {
	v.store.enter(ctx, "list")
	v.store.mu.Lock()
	defer v.store.mu.Unlock()
	if err := errors.Join(v.store.broken, ctx.Err()); err != nil {
		return nil, err
	}
	v.pin()
	var records []store.Record
	for _, name := range slices.Sorted(maps.Keys(v.state)) {
		if strings.HasPrefix(name, prefix) && name > after && len(records) < limit {
			records = append(records, store.Record{Counter: name, Shards: len(v.state[name]), Reset: v.store.resets[name]})
		}
	}
	return records, nil
}

func (v *fakeView) Series(_ context.Context, of []store.Record, _, _ wire.Minute) ([][]store.Bucket, error) {
	return make([][]store.Bucket, len(of)), nil
}

func (v *fakeView) ReadTime() time.Time { return v.at }

func (v *fakeView) Close() {
	v.store.mu.Lock()
	defer v.store.mu.Unlock()
	if !v.closed {
		v.closed = true
		v.store.open--
	}
}

// A fakeCache is a Cache in memory that several readers can share.
type fakeCache struct {
	mu     sync.Mutex
	totals map[string]store.CachedTotal
	locks  map[string]time.Time
	err    error // of every call
	hang   bool  // every call waits for its context
	calls  map[string]int
	called func(ctx context.Context, call string) // runs at the beginning of each call
}

func (c *fakeCache) enter(ctx context.Context, call string) error {
	c.mu.Lock()
	if c.calls == nil {
		c.calls, c.totals, c.locks = map[string]int{}, map[string]store.CachedTotal{}, map[string]time.Time{}
	}
	c.calls[call]++
	hang, err := c.hang, c.err
	c.mu.Unlock()
	if c.called != nil {
		c.called(ctx, call)
	}
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (c *fakeCache) Get(ctx context.Context, counters []string) ([]store.CachedTotal, error) {
	if err := c.enter(ctx, "get"); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []store.CachedTotal
	for _, name := range slices.Backward(counters) {
		if t, ok := c.totals[name]; ok {
			found = append(found, t)
		}
	}
	return found, nil
}

func (c *fakeCache) Set(ctx context.Context, totals []store.CachedTotal, _ time.Duration) error {
	if err := c.enter(ctx, "set"); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range totals {
		c.totals[t.Counter] = t
	}
	return nil
}

func (c *fakeCache) Lock(ctx context.Context, counter string, ttl time.Duration) (bool, error) {
	if err := c.enter(ctx, "lock"); err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.locks[counter]) {
		return false, nil
	}
	c.locks[counter] = time.Now().Add(ttl)
	return true, nil
}

func (c *fakeCache) Unlock(ctx context.Context, counter string) error {
	if err := c.enter(ctx, "unlock"); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.locks, counter)
	return nil
}

// putAs keeps a total under a name that need not be its own.
func (c *fakeCache) putAs(name string, t store.CachedTotal) {
	_ = c.enter(context.Background(), "put")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.totals[name] = t
}

func newReader(tb testing.TB, st reader.Store, cache store.Cache, cfg reader.Config) *reader.Reader {
	tb.Helper()
	r, err := reader.New(st, cache, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// one reads one total that must be there.
func one(tb testing.TB, r *reader.Reader, counter string, maxStaleness time.Duration) reader.Total {
	tb.Helper()
	totals, err := r.Totals(tb.Context(), []string{counter}, maxStaleness)
	if err != nil {
		tb.Fatalf("Totals(%q): %v", counter, err)
	}
	if len(totals) != 1 || totals[0].Counter != counter {
		tb.Fatalf("Totals(%q) = %+v, want one total of it", counter, totals)
	}
	return totals[0]
}
