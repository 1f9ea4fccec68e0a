package reader

import (
	"context"
	"slices"
	"time"

	"github.com/countmill/countmill/store"
)

const (
	// lockWait is how long a reader waits for what another process is reading, and
	// lockPoll how often it looks.
	lockWait = 50 * time.Millisecond
	lockPoll = 10 * time.Millisecond

	// A total is refreshed once refreshPart of its permitted age is used. A guess: it
	// leaves a fifth of the age for one read of the store.
	refreshPart = 0.8
)

// fromCache returns what the cache has of the counters and may be served, each total in
// its counter's place, and how many they are.
func (r *Reader) fromCache(ctx context.Context, counters []string, maxStaleness time.Duration) (totals []Total, n int) {
	if r.cache == nil {
		return make([]Total, len(counters)), 0
	}
	totals, n = r.lookInCache(ctx, counters, maxStaleness)
	r.stats.cacheHits.Add(int64(n))
	r.stats.cacheMisses.Add(int64(len(counters) - n))
	return totals, n
}

// lookInCache is fromCache without the count: a reader that waits looks several times.
func (r *Reader) lookInCache(ctx context.Context, counters []string, maxStaleness time.Duration) (totals []Total, n int) {
	cached, _ := r.cache.get(ctx, counters) // an error is a miss of what is not there
	totals = make([]Total, len(counters))
	if r.checked.other.Load() {
		return totals, 0
	}
	for _, c := range cached {
		// The name is checked: a cache can mix answers up, and a name asked for is
		// what its key, a hash, cannot tell.
		at, asked := slices.BinarySearch(counters, c.Counter)
		if !asked || !r.young(c.AsOf, maxStaleness) {
			continue
		}
		if !totals[at].known() {
			n++
		}
		totals[at] = Total{Counter: c.Counter, Total: c.Total, AsOf: c.AsOf,
			Source: SourceCache, Shards: c.Shards, Exists: c.Exists}
	}
	return totals, n
}

// young reports whether a total of that moment may be served. One from the future is
// as suspect as an old one: where a clock was set back it would stay young for long. What
// the store's time is has to be known: the machine's own may be off by more than that.
func (r *Reader) young(asOf time.Time, maxStaleness time.Duration) bool {
	return r.clock.Known() && r.clock.Now().Sub(asOf).Abs() <= maxStaleness
}

// fill reads the counters from the store and puts them into the cache, unless another
// process does that just now and the cache has them soon.
//
//	A  misses the cache
//	B  misses it too, locks, reads the store, sets, unlocks
//	A  locks: it must look into the cache again, or it reads what B has just read
func (r *Reader) fill(ctx context.Context, counters []string, maxStaleness time.Duration) ([]Total, error) {
	if r.cache == nil {
		return r.readTotals(ctx, counters)
	}
	// One lock for the set, that of its first counter: the others that want the same
	// set meet there, and those that do not lose 50 ms at most.
	won, err := r.cache.lock(ctx, counters[0], r.cfg.Timeout)
	if err != nil {
		return r.readTotals(ctx, counters) // a cache that fails is asked no more in this read
	}
	if won {
		defer r.unlock(ctx, counters[0])
		if totals, n := r.lookInCache(ctx, counters, maxStaleness); n == len(counters) {
			return totals, nil
		}
	} else if totals := r.awaitCache(ctx, counters, maxStaleness); totals != nil {
		return totals, nil
	}
	return r.readAndKeep(ctx, counters)
}

// awaitCache waits until the cache has all of the counters, or returns nil after
// lockWait. It takes all or none: the rest would be of another moment.
func (r *Reader) awaitCache(ctx context.Context, counters []string, maxStaleness time.Duration) []Total {
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
		if totals, n := r.lookInCache(ctx, counters, maxStaleness); n == len(counters) {
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
	keep := make([]store.CachedTotal, len(totals))
	for i, t := range totals {
		keep[i] = store.CachedTotal{Counter: t.Counter, Total: t.Total, Shards: t.Shards, Exists: t.Exists, AsOf: t.AsOf}
	}
	_ = r.cache.set(ctx, keep, r.cfg.TTL) // counted and logged there; the totals are good
	return totals, nil
}

// unlock gives the lock back even where the read was given up, or the others would wait
// for nothing until it expires.
func (r *Reader) unlock(ctx context.Context, counter string) {
	_ = r.cache.unlock(context.WithoutCancel(ctx), counter)
}

// refresh reads again what the cache gave and will soon be too old, in the time that is
// left for it. Of all callers in all processes one does it, the others are served what
// was found. So is that one where the read fails: what it has is still young enough.
func (r *Reader) refresh(ctx context.Context, counters []string, found []Total, maxStaleness time.Duration) []Total {
	due, left := r.dueSoon(counters, found, maxStaleness)
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

// dueSoon returns which totals have used up most of their permitted age, sorted, and
// how long the oldest of them may still be served.
func (r *Reader) dueSoon(counters []string, found []Total, maxStaleness time.Duration) (due []string, left time.Duration) {
	now, left := r.clock.Now(), maxStaleness
	for i, c := range counters {
		age := now.Sub(found[i].AsOf)
		if float64(age) >= refreshPart*float64(maxStaleness) {
			due = append(due, c)
			left = min(left, maxStaleness-age)
		}
	}
	return due, left
}
