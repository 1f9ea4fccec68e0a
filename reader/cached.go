package reader

import (
	"context"
	"slices"
	"time"

	"github.com/countmill/countmill/store"
)

const (
	// lockWait is how long a reader waits for the read of another process, and lockPoll is how
	// often it looks into the cache meanwhile.
	lockWait = 50 * time.Millisecond
	lockPoll = 10 * time.Millisecond

	// A total is refreshed when refreshPart of its permitted age has passed. It is a guess that
	// leaves a fifth of the age for one read of the store.
	refreshPart = 0.8
)

// fromCache returns the cached totals that may be served, each in its counter's place, and their
// number. It counts hits and misses.
func (r *Reader) fromCache(ctx context.Context, counters []string, b bound) (totals []Total, n int) {
	if r.cache == nil {
		return make([]Total, len(counters)), 0
	}
	totals, n = r.lookInCache(ctx, counters, b)
	r.stats.cacheHits.Add(int64(n))
	r.stats.cacheMisses.Add(int64(len(counters) - n))
	return totals, n
}

// lookInCache is fromCache without the statistics: a reader that waits looks several times.
func (r *Reader) lookInCache(ctx context.Context, counters []string, b bound) (totals []Total, n int) {
	cached, _ := r.cache.get(ctx, counters) // an error is a miss of every absent total
	totals = make([]Total, len(counters))
	if r.checked.other.Load() {
		return totals, 0
	}
	for _, c := range cached {
		// Compare the name: a cache can mix up answers, and its key is only a hash of the name.
		at, asked := slices.BinarySearch(counters, c.Counter)
		if !asked || !r.young(c.AsOf, b) {
			continue
		}
		if serving, _ := r.servesSince(c.Counter); c.AsOf.Before(serving) {
			continue // it is of an earlier index with groups of the same names
		}
		if !totals[at].known() {
			n++
		}
		totals[at] = Total{Counter: c.Counter, Total: c.Total, AsOf: c.AsOf,
			Source: SourceCache, Shards: c.Shards, Exists: c.Exists}
	}
	return totals, n
}

// A bound says which totals a caller accepts.
type bound struct {
	age   time.Duration // at most so old
	since time.Time     // of this moment or a later one; zero for any
}

// meets reports whether a total of the moment asOf is not before the caller's own moment. This
// compares two moments of the store, so no clock matters.
func (b bound) meets(asOf time.Time) bool { return !asOf.Before(b.since) }

// young reports whether a total of that moment may be served. A total from the future is as
// suspect as an old one: after a clock was set back it would stay young for long. The store's
// time must be known, because the machine's own clock may be off by more than the permitted age.
func (r *Reader) young(asOf time.Time, b bound) bool {
	// An older total than the caller has seen would show its counter going back.
	if !b.meets(asOf) {
		return false
	}
	return r.clock.Known() && r.clock.Now().Sub(asOf).Abs() <= b.age
}

// fill reads the counters from the store and puts them into the cache. If another process does
// that at the moment, fill waits for the cache instead.
//
//	A  misses the cache
//	B  misses it too, locks, reads the store, sets, unlocks
//	A  locks: it must look into the cache again, else it repeats B's read
func (r *Reader) fill(ctx context.Context, counters []string, b bound) ([]Total, error) {
	if r.cache == nil {
		return r.readTotals(ctx, counters)
	}
	// One lock for the set, the lock of its first counter. Processes with the same set meet at
	// it; with another set they lose 50 ms at most.
	won, err := r.cache.lock(ctx, counters[0], r.cfg.Timeout)
	if err != nil {
		return r.readTotals(ctx, counters) // the cache failed: do not ask it again in this read
	}
	if won {
		defer r.unlock(ctx, counters[0])
		if totals, n := r.lookInCache(ctx, counters, b); n == len(counters) {
			return totals, nil
		}
	} else if totals := r.awaitCache(ctx, counters, b); totals != nil {
		return totals, nil
	}
	return r.readAndKeep(ctx, counters)
}

// awaitCache waits until the cache has all of the counters, or returns nil after lockWait. It
// takes all or none, because totals of the cache and of the store would be of two moments.
func (r *Reader) awaitCache(ctx context.Context, counters []string, b bound) []Total {
	r.stats.lockWaits.Add(1)
	ctx, cancel := context.WithTimeout(ctx, lockWait+lockPoll/2)
	defer cancel()
	tick := time.NewTicker(lockPoll)
	defer tick.Stop()
	for range int(lockWait / lockPoll) {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		if ctx.Err() != nil {
			return nil
		}
		if totals, n := r.lookInCache(ctx, counters, b); n == len(counters) {
			return totals
		}
	}
	return nil
}

func (r *Reader) readAndKeep(ctx context.Context, counters []string) ([]Total, error) {
	totals, err := r.readTotals(ctx, counters)
	if err != nil {
		return nil, err
	}
	keep := make([]store.CachedTotal, 0, len(totals))
	for _, t := range totals {
		if !t.Overflow {
			keep = append(keep, store.CachedTotal{Counter: t.Counter, Total: t.Total, Shards: t.Shards, Exists: t.Exists, AsOf: t.AsOf})
		}
	}
	_ = r.cache.set(ctx, keep, cacheTTL) // the breaker counts and logs errors; the totals are good
	return totals, nil
}

// unlock releases the lock even if the read was abandoned. Else others would wait until it
// expires.
func (r *Reader) unlock(ctx context.Context, counter string) {
	_ = r.cache.unlock(context.WithoutCancel(ctx), counter)
}

// refresh reads the cached totals again that will soon be too old, and takes no longer than they
// are still young enough. One caller in all processes does it; the others get the cached totals.
// If the read fails, so does that caller.
func (r *Reader) refresh(ctx context.Context, counters []string, found []Total, b bound) []Total {
	due, left := r.dueSoon(counters, found, b.age)
	if len(due) == 0 || left <= 0 {
		return nil
	}
	if !r.refreshing.begin(due[0]) {
		return nil
	}
	defer r.refreshing.end(due[0])
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	if won, err := r.cache.lock(ctx, due[0], r.cfg.Timeout); err != nil || !won {
		return nil
	}
	defer r.unlock(ctx, due[0])
	r.stats.refreshes.Add(1)
	totals, _ := r.readAndKeep(ctx, due)
	return totals
}

// dueSoon returns the counters, sorted, whose totals have passed refreshPart of their permitted
// age, and how long the oldest of these totals may still be served.
func (r *Reader) dueSoon(counters []string, found []Total, permitted time.Duration) (due []string, left time.Duration) {
	now, left := r.clock.Now(), permitted
	for i, c := range counters {
		age := now.Sub(found[i].AsOf)
		if float64(age) >= refreshPart*float64(permitted) {
			due = append(due, c)
			left = min(left, permitted-age)
		}
	}
	return due, left
}
