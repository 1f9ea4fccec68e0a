package reader

import "sync/atomic"

// Stats are counts since the reader was made.
type Stats struct {
	// FromCache and FromStore are served totals, by their source.
	FromCache, FromStore int64
	// Lookups are look-ups in the store, and Keys the keys in them; each key is an entity read.
	Lookups, Keys int64
	// Lists are pages of counters read from the store.
	Lists int64
	// StoreErrors are failed calls to the store.
	StoreErrors int64
	// CacheHits and CacheMisses are counters looked up in the cache. A total that is too old or
	// has another name is a miss.
	CacheHits, CacheMisses int64
	// CacheErrors are failed calls to the cache. CacheSkipped are calls that the reader did not
	// make because the cache had failed repeatedly.
	CacheErrors, CacheSkipped int64
	// Shared are calls that used the read of another call.
	Shared int64
	// Refreshes are reads before a cached total was too old. LockWaits are reads that waited for
	// another process.
	Refreshes, LockWaits int64
	// Awaited are calls of TotalsAfter. CompletionLookups are their look-ups of completions, and Completions the markers
	// in them; each is an entity read.
	Awaited, CompletionLookups, Completions int64
	// Overflows are totals that did not fit 64 bits.
	Overflows int64
	// Scans are looks at all sums of an index, for boards, and Scanned the entities that they read.
	Scans, Scanned int64
	// Reading is the number of reads under way.
	Reading int64
}

// counts has the counters behind Stats.
type counts struct {
	fromCache, fromStore           atomic.Int64
	lookups, keys, lists           atomic.Int64
	storeErrors                    atomic.Int64
	cacheHits, cacheMisses         atomic.Int64
	cacheErrors, cacheSkipped      atomic.Int64
	shared                         atomic.Int64
	refreshes, lockWaits           atomic.Int64
	overflows                      atomic.Int64
	awaited                        atomic.Int64
	completionLookups, completions atomic.Int64
	scans, scanned                 atomic.Int64
}

// Stats returns the counts so far. Its numbers are not of one instant. It may be called at any
// time.
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
		Scans:     c.scans.Load(), Scanned: c.scanned.Load(),
		Awaited: c.awaited.Load(), CompletionLookups: c.completionLookups.Load(), Completions: c.completions.Load(),
		Reading: int64(r.flights.len() + r.workers.flights.len() + r.refreshing.len() + r.workers.fetching.len()),
	}
}
