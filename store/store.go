package store

import "context"

// A Store is the whole contract of a store. Package storetest has the suite that every
// implementation passes. Roles ask for the narrow interfaces that they need.
type Store interface {
	Folder
	Records
	DeadLetters
	DeadLetterRefs
	Heartbeat
	Meta
	Reads
	Counters
	Survey
	Series
	Indexing
	Boards
	Sequences
	Journal

	// CacheIdentity returns the prefix under which a cache keeps totals of this database and
	// the key of their checksums. Every process that opens this database gets the same two
	// values; no other database has them.
	CacheIdentity() (prefix string, key [32]byte)

	// Sweep removes markers by Settings.ForgetBefore or Marker.ExpireAt, references with them, records and rows of the journal whose ExpireAt is over,
	// and the records of aggregators that ended a day ago. A database that removes rows by its own clock needs no calls;
	// others need one every SweepEvery. After an error some are removed; repeat the call.
	Sweep(ctx context.Context) error

	// Close releases everything. Calls after it return errors.
	Close() error
}
