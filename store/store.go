package store

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

	// Close releases everything. Calls after it return errors.
	Close() error
}
