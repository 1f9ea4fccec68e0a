package reader

import "sync/atomic"

// Stats counts what a reader did since it was made.
type Stats struct {
	// FromCache and FromStore are totals served.
	FromCache, FromStore int64
	// Lookups of the store and Keys in them; a key is an entity read.
	Lookups, Keys int64
	// Lists are pages of counters read.
	Lists int64
	// StoreErrors are calls of the store that failed.
	StoreErrors int64
	// CacheHits and CacheMisses are counters looked for in the cache; one too old or
	// not the one asked for is a miss.
	CacheHits, CacheMisses int64
	// CacheErrors are calls of the cache that failed, CacheSkipped those not made
	// because it had failed a moment ago.
	CacheErrors, CacheSkipped int64
	// Shared are calls that were answered by another call's read.
	Shared int64
	// Refreshes are reads ahead of expiry, LockWaits reads that waited for another
	// process's.
	Refreshes, LockWaits int64
	// Overflows are totals that could not be given.
	Overflows int64
	// Reading is how many reads are under way that other calls may share, or leave alone.
	Reading int64
}

// counts is Stats while they grow.
type counts struct {
	fromCache, fromStore      atomic.Int64
	lookups, keys, lists      atomic.Int64
	storeErrors               atomic.Int64
	cacheHits, cacheMisses    atomic.Int64
	cacheErrors, cacheSkipped atomic.Int64
	shared                    atomic.Int64
	refreshes, lockWaits      atomic.Int64
	overflows                 atomic.Int64
}

// Stats returns what the reader did so far. Its numbers are not of one instant.
func (r *Reader) Stats() Stats {
	c := &r.stats
	return Stats{
		FromCache: c.fromCache.Load(), FromStore: c.fromStore.Load(),
		Lookups: c.lookups.Load(), Keys: c.keys.Load(), Lists: c.lists.Load(),
		StoreErrors: c.storeErrors.Load(),
		CacheHits:   c.cacheHits.Load(), CacheMisses: c.cacheMisses.Load(),
		CacheErrors: c.cacheErrors.Load(), CacheSkipped: c.cacheSkipped.Load(),
		Shared:    c.shared.Load(),
		Refreshes: c.refreshes.Load(), LockWaits: c.lockWaits.Load(),
		Overflows: c.overflows.Load(),
		Reading:   int64(r.flights.len() + r.workers.flights.len() + r.refreshing.len() + r.workers.fetching.len()),
	}
}
