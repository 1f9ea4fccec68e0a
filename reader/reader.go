package reader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countmill/countmill/store"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
)

// A Reader serves totals. It is safe for concurrent use. No read outlives the calls that wait for it,
// but for the scans of Top and Rank: Close ends them, before the store is closed.
type Reader struct {
	store Store
	cache *breaker // nil if there is none
	cfg   Config

	shards     *lru.Cache[string, int] // the last known number of shards of a counter
	semaphore  semaphore               // of all reads
	flights    flights[[]Total]
	refreshing busy
	clock      clock.Store
	checked    checker
	readying   flights[readiness]
	asking     flights[time.Time]             // gives when the call began
	ready      atomic.Pointer[readiness]      // the last answer of readying; nil before
	settings   atomic.Pointer[store.Settings] // of the last good check; nil before
	asked      atomic.Pointer[time.Time]      // a moment at which the store had these settings
	begun      time.Time                      // when the call for these settings began
	keeping    sync.Mutex                     // held while the three change
	workers    roster
	boards     *boards
	stats      counts
}

// New returns a reader of the store. cache may be nil. The error reports every problem of cfg.
func New(st Store, cache store.Cache, cfg Config) (*Reader, error) {
	if st == nil {
		return nil, errors.New("reader: store is nil")
	}
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("reader: %w", err)
	}
	r := &Reader{store: st, cfg: cfg.withDefaults()}
	r.semaphore = semaphore{most: r.cfg.KeysAtOnce, mostWaiting: maxKeysWaiting}
	r.workers.every = r.cfg.LagEvery
	r.clock.Env, r.workers.clock.Env = r.cfg.env, r.cfg.env
	r.clock.NeverEarly = true // a total in the cache must not be older than the caller permits
	r.flights.env, r.workers.flights.env, r.readying.env, r.asking.env = r.cfg.env, r.cfg.env, r.cfg.env, r.cfg.env
	shards, err := lru.New[string, int](r.cfg.Remember)
	if err != nil {
		return nil, fmt.Errorf("reader: %w", err)
	}
	r.shards = shards
	r.boards = newBoards(r)
	if cache != nil {
		r.cache = &breaker{cache: cache, timeout: cacheTimeout, log: r.cfg.Logger, stats: &r.stats}
	}
	return r, nil
}

// Totals returns the totals of the counters in the order asked; a counter may be in the list
// twice. All totals that it reads from the store are of one moment. With maxStaleness 0 that
// moment is not before the call. With a larger maxStaleness a total may come from the cache, or
// from a read under way, if it is at most that old. A negative maxStaleness means
// Config.DefaultStaleness.
//
// An error matches countmill.ErrInvalid if a name is not valid, countmill.ErrUnavailable if the
// store cannot be read, or if too many reads wait for it, and countmill.ErrOverflow, as an
// *OverflowError, if a counter has no total. Only with the last one come totals: those of such counters have Overflow, and all
// others are good.
func (r *Reader) Totals(ctx context.Context, counters []string, maxStaleness time.Duration) ([]Total, error) {
	return r.TotalsSince(ctx, counters, maxStaleness, time.Time{})
}

// TotalsSince is Totals with a second bound: no total is of a moment before minAsOf. A caller that
// passes the AsOf of an earlier total never sees the counter go back, whichever reader and cache
// answers. A moment more than MaxAhead ahead of the store's is refused with countmill.ErrInvalid;
// for a nearer one the call waits. A zero minAsOf bounds nothing.
func (r *Reader) TotalsSince(ctx context.Context, counters []string, maxStaleness time.Duration, minAsOf time.Time) ([]Total, error) {
	for i, c := range counters {
		if err := countmill.CheckName(c); err != nil {
			return nil, atIndex(err, i, len(counters))
		}
	}
	if err := r.checkGroups(ctx, counters); err != nil {
		return nil, err
	}
	if maxStaleness < 0 {
		maxStaleness = r.cfg.DefaultStaleness
	}
	distinct := counters
	if len(counters) > 1 {
		distinct = slices.Compact(slices.Sorted(slices.Values(counters)))
	}
	if len(distinct) == 0 {
		return []Total{}, nil
	}
	found, err := r.find(ctx, distinct, bound{maxStaleness, minAsOf})
	if err != nil {
		return nil, err
	}
	totals := r.serve(counters, distinct, found)
	return totals, overflowOf(totals)
}

// atIndex adds the position of the wrong name to the error, if there are several.
func atIndex(err error, i, of int) error {
	var field *countmill.FieldError
	if of < 2 || !errors.As(err, &field) {
		return err
	}
	at := *field
	at.Index = &i
	return &at
}

// find returns the totals of sorted, distinct counters in their order.
func (r *Reader) find(ctx context.Context, counters []string, b bound) ([]Total, error) {
	// Without the store's time no cached total can be served. Later the check finds another database: calls that read
	// nothing would not.
	if b.age > 0 && r.cache != nil && (!r.clock.Known() || r.checked.old(r.cfg.CheckEvery)) {
		_ = r.checkStore(ctx)
	}
	if b.age == 0 || r.checked.other.Load() {
		// Read separately: another read may have begun before this call, or before a check found
		// another database.
		return r.readSince(ctx, counters, b)
	}
	found, n := r.fromCache(ctx, counters, b)
	if n == len(counters) {
		place(found, counters, r.refresh(ctx, counters, found, b))
		if r.checked.other.Load() { // found by the refresh
			return r.readSince(ctx, counters, b)
		}
		return found, nil
	}
	// found is this call's own slice: other callers share totals.
	totals, err := r.share(ctx, missing(found, counters), b)
	place(found, counters, totals)
	if err == nil && slices.ContainsFunc(found, func(t Total) bool { return !b.meets(t.AsOf) }) {
		return r.readSince(ctx, counters, b) // the caller's moment is ahead of the store's
	}
	return found, err
}

// known reports whether the place has a total.
func (t *Total) known() bool { return t.Source != "" }

// missing returns the counters whose places are empty.
func missing(totals []Total, counters []string) []string {
	var names []string
	for i, c := range counters {
		if !totals[i].known() {
			names = append(names, c)
		}
	}
	return names
}

// place puts some totals into the places of their counters. counters is sorted and distinct.
func place(totals []Total, counters []string, some []Total) {
	for _, t := range some {
		if i, ok := slices.BinarySearch(counters, t.Counter); ok {
			totals[i] = t
		}
	}
}

// share reads the counters once for all callers with the same counters and the same maxStaleness.
// The sets must be equal: if a read of {a, b} took a from a read of {a}, its two totals would be
// of two moments. The staleness must be equal because fill may find totals in the cache that are
// young enough for its first caller only.
func (r *Reader) share(ctx context.Context, counters []string, b bound) ([]Total, error) {
	oldest := time.Now().Add(-b.age)
	key := b.age.String() + "\x00" + strings.Join(counters, "\x00") // names have no control characters
	totals, shared, err := r.flights.do(ctx, key, oldest, func(ctx context.Context) ([]Total, error) {
		return r.fill(ctx, counters, b)
	})
	if shared {
		r.stats.shared.Add(1)
		// A caller that shares waits for a read that began before: the machine may have been
		// suspended in the middle of it.
		if err == nil && slices.ContainsFunc(totals, func(t Total) bool { return !r.young(t.AsOf, b) }) {
			return r.readTotals(ctx, counters)
		}
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, countmill.ErrUnavailable) {
		err = r.callerGone(ctx)
	}
	return totals, err
}

// callerGone is the error of a caller whose context ended while the shared read went on.
func (r *Reader) callerGone(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: reading totals: %w", countmill.ErrUnavailable, ctx.Err())
	}
	return fmt.Errorf("reading totals: %w", ctx.Err())
}

// serve returns the totals in the order asked, and counts them in the stats.
func (r *Reader) serve(counters, distinct []string, found []Total) []Total {
	totals := found
	if len(counters) > 1 {
		totals = make([]Total, len(counters))
		for i, c := range counters {
			at, _ := slices.BinarySearch(distinct, c)
			totals[i] = found[at]
		}
	}
	now := r.clock.Now()
	for i := range totals {
		_, totals[i].Checked = r.servesSince(totals[i].Counter)
		r.account(&totals[i], now)
	}
	return totals
}

func (r *Reader) account(t *Total, now time.Time) {
	if t.Overflow {
		return
	}
	if t.Source == SourceCache {
		r.stats.fromCache.Add(1)
	} else {
		r.stats.fromStore.Add(1)
	}
	r.cfg.OnServe(max(0, now.Sub(t.AsOf)), t.Source)
}
