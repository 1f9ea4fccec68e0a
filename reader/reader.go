package reader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/store"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/storetime"
)

// A Reader serves totals. It is safe for concurrent use and has nothing to close: no
// read outlives the calls that wait for it, so when its calls have returned its store
// may be closed.
type Reader struct {
	store Store
	cache *breaker // nil for none
	cfg   Config

	shards     *lru.Cache[string, int] // how many shards a counter was last seen to have
	flights    flights[[]Total]
	refreshing busy
	clock      storetime.Clock
	checked    checker
	workers    roster
	stats      counts
}

// New returns a reader of the store. cache may be nil for none. The error reports all
// that is wrong with the config.
func New(st Store, cache store.Cache, cfg Config) (*Reader, error) {
	if st == nil {
		return nil, errors.New("reader: store is nil")
	}
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("reader: %w", err)
	}
	r := &Reader{store: st, cfg: cfg.withDefaults()}
	r.workers.every = r.cfg.LagEvery
	r.clock.Env, r.workers.clock.Env = r.cfg.Env, r.cfg.Env
	r.flights.env, r.workers.flights.env = r.cfg.Env, r.cfg.Env
	shards, err := lru.New[string, int](r.cfg.Remember)
	if err != nil {
		return nil, fmt.Errorf("reader: %w", err)
	}
	r.shards = shards
	if cache != nil {
		r.cache = &breaker{cache: cache, timeout: r.cfg.CacheTimeout, log: r.cfg.Logger, stats: &r.stats}
	}
	return r, nil
}

// Totals returns the totals of the counters in the order asked; a counter may be asked
// for twice. Those read from the store are of one moment, which is not before the call
// where maxStaleness is 0. Above 0, totals of the cache or of a read that others wait
// for are taken too, at most maxStaleness old; below 0 it is Config.DefaultStaleness.
//
// Errors match countmill.ErrInvalid for a name that cannot be a counter's,
// countmill.ErrUnavailable where the store cannot be read, and countmill.ErrOverflow,
// as an *OverflowError, where a counter has no total; one such counter fails the call.
func (r *Reader) Totals(ctx context.Context, counters []string, maxStaleness time.Duration) ([]Total, error) {
	for i, c := range counters {
		if err := countmill.CheckCounter(c); err != nil {
			return nil, atIndex(err, i, len(counters))
		}
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
	found, err := r.find(ctx, distinct, maxStaleness)
	if err != nil {
		return nil, err
	}
	return r.serve(counters, distinct, found), nil
}

// atIndex says which of several names is wrong.
func atIndex(err error, i, of int) error {
	var field *countmill.FieldError
	if of < 2 || !errors.As(err, &field) {
		return err
	}
	at := *field
	at.Index = &i
	return &at
}

// find returns the totals of counters, which are sorted and distinct, in their order.
func (r *Reader) find(ctx context.Context, counters []string, maxStaleness time.Duration) ([]Total, error) {
	if maxStaleness == 0 || r.checked.other.Load() {
		// A read of its own: any other may have begun before this call, or before a check found
		// another database.
		return r.readTotals(ctx, counters)
	}
	if r.cache != nil && !r.clock.Known() {
		_ = r.checkStore(ctx) // without the store's time nothing of the cache can be served
	}
	found, n := r.fromCache(ctx, counters, maxStaleness)
	if n == len(counters) {
		place(found, counters, r.refresh(ctx, counters, found, maxStaleness))
		if r.checked.other.Load() { // the refresh found out
			return r.readTotals(ctx, counters)
		}
		return found, nil
	}
	// Into places of our own: others who shared the read have the same totals.
	totals, err := r.share(ctx, missing(found, counters), maxStaleness)
	place(found, counters, totals)
	return found, err
}

// known reports whether there is a total: where one is missing its place is empty.
func (t *Total) known() bool { return t.Source != "" }

// missing are the counters whose places are empty.
func missing(totals []Total, counters []string) []string {
	var names []string
	for i, c := range counters {
		if !totals[i].known() {
			names = append(names, c)
		}
	}
	return names
}

// place puts some totals into the places of their counters, which are sorted and distinct.
func place(totals []Total, counters []string, some []Total) {
	for _, t := range some {
		if i, ok := slices.BinarySearch(counters, t.Counter); ok {
			totals[i] = t
		}
	}
}

// share reads the counters together with all callers that want the same ones at the
// same age. Only the same set can share: of a read for {a, b} that took a from one for
// {a}, the two totals would be of two moments. And only the same age: fill may find in
// the cache what is young enough for the first caller alone.
func (r *Reader) share(ctx context.Context, counters []string, maxStaleness time.Duration) ([]Total, error) {
	oldest := time.Now().Add(-maxStaleness)
	key := maxStaleness.String() + "\x00" + strings.Join(counters, "\x00") // no name has a control character
	totals, shared, err := r.flights.do(ctx, key, oldest, func(ctx context.Context) ([]Total, error) {
		return r.fill(ctx, counters, maxStaleness)
	})
	if shared {
		r.stats.shared.Add(1)
		// Whoever shares waits for a read that began before: the machine may have been
		// suspended in the middle of it.
		if err == nil && slices.ContainsFunc(totals, func(t Total) bool { return !r.young(t.AsOf, maxStaleness) }) {
			return r.readTotals(ctx, counters)
		}
	}
	if err != nil && ctx.Err() != nil && !errors.Is(err, countmill.ErrUnavailable) {
		err = r.callerGone(ctx)
	}
	return totals, err
}

// callerGone is the error of a caller whose context ended while others' read went on.
func (r *Reader) callerGone(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: reading totals: %w", countmill.ErrUnavailable, ctx.Err())
	}
	return fmt.Errorf("reading totals: %w", ctx.Err())
}

// serve puts the totals of distinct in the order asked and accounts for them.
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
		r.account(&totals[i], now)
	}
	return totals
}

func (r *Reader) account(t *Total, now time.Time) {
	if t.Source == SourceCache {
		r.stats.fromCache.Add(1)
	} else {
		r.stats.fromStore.Add(1)
	}
	r.cfg.OnServe(max(0, now.Sub(t.AsOf)), t.Source)
}
