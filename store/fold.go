package store

import (
	"context"
	"math"
	"time"

	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// A Marker records that a part was applied.
type Marker struct {
	ID          wire.PartID
	Fingerprint wire.Fingerprint
	// Fold identifies the attempt to apply the part. It stays the same when a commit with an
	// unknown outcome is repeated, so that the aggregator recognises its own marker.
	Fold uint64
	// At is the time of the part, or of the fold if that is later. The marker stays until
	// Settings.ForgetBefore is MarkerSlack past At.
	At time.Time
	// ExpireAt is when a store that removes markers by time may remove this one
	// (Settings.Expiry). A store may keep only one of At and ExpireAt; the other is then zero
	// in the answers of Applied.
	ExpireAt time.Time
}

// A ShardDelta adds Delta plus Upper times 2^64 to one shard.
type ShardDelta struct {
	Counter string
	Order   uint64 // wire.Order(Counter)
	Hash    uint64 // wire.ShardHash(Counter, Shard)
	Shard   int
	Delta   int64
	Upper   int64 // 0 for a sum that fits Delta
}

// Sum is the number that is added to the shard. It is 0 only if Commit.Buckets has a bucket of the add.
func (d *ShardDelta) Sum() int128.Int { return int128.OfHalves(d.Delta, d.Upper) }

// NewShardDelta returns a ShardDelta with its Order and Hash.
func NewShardDelta(counter string, shard int, delta int64) ShardDelta {
	order, hash := wire.Hashes(counter)
	return ShardDelta{Counter: counter, Order: order, Hash: wire.SpreadHash(hash, shard), Shard: shard, Delta: delta}
}

// A Commit is applied whole or not at all.
type Commit struct {
	// Markers are inserted. If one exists already, the commit is refused. No id is in it twice.
	Markers []Marker
	// Adds are sorted by Order, Counter, Shard. No shard is in it twice.
	Adds []ShardDelta
	// KnownShards is the number of shards that the aggregator knows of for the counter of
	// each add. nil if the store does not report ShardStats.
	KnownShards []int
	// Buckets are added to series, with the rest of the commit. They are sorted by Add and
	// Minute; no bucket is in it twice. The buckets of an add sum to its Sum, unless Correction
	// is true. Empty unless a rule has the counter.
	Buckets []BucketDelta
	// Correction is true for a commit of a recount. Its buckets need not sum to the Delta of their add,
	// and an add with buckets may have the Sum 0.
	Correction bool
	// Grouped are the adds whose Sum is in the adds of groups too, sorted by Add. Empty unless an
	// index has the counter.
	Grouped []Grouping
	// Archive is the minute before which buckets are added to the archive, in a store with a ring
	// (Limits.Ring). Either place is right at any time, but an entity of the archive is one more
	// in the commit. Without a ring all are added to the archive, and Archive says which of them Entities counts.
	Archive wire.Minute
	// Tally is a lower bound for the tally of each shard. The fold stores max(old, Tally)+1.
	Tally int64
	// Rules is the version of the settings by which the commit was made, or AnyRules. A store with
	// Limits.RefusesOldRules answers ErrOutdated if it is older than the highest Rules.Oldest since the
	// store was opened, or if the settings were being changed. It refuses a commit without Adds too, also an empty one: increments that cancel
	// each other belong in the journal.
	Rules int64
	// Restores is that of the settings by which the commit was made. A store that was restored since answers ErrOutdated, unless
	// Rules is AnyRules: a record that the aggregator remembers may be gone.
	Restores int64
	// Growths are applied with the rest, as Records.Grow applies them. They are sorted by
	// Counter, each counter once. Empty unless Limits.GrowsInFold.
	Growths []Growth
	// Records are written with the rest, and Rows are entries of them, in the order of Records. No key
	// is in it twice.
	Records []JournalRecord
	Rows    []JournalRow
	// Taken are increments that a store with Adder lists, by their ids. The commit removes them, with the rest. If one is gone, the
	// commit is refused like one whose marker exists. Their increments are in Adds.
	Taken []int64
}

// An Adder is a store in which other programs add increments, each within a transaction of its own.
type Adder interface {
	// Added returns up to limit of them, the oldest first. They stay until a Fold takes them (Commit.Taken).
	Added(ctx context.Context, limit int) ([]Added, error)
}

// An Added is an increment that another program has added.
type Added struct {
	ID      int64
	Counter string
	Delta   int64 // that of an Increment
	At      time.Time
}

// AnyRules is Commit.Rules of a commit that no rule concerns: it records the decision of a dead letter, and
// counts nothing.
const AnyRules = math.MaxInt64

// A Grouping says by which indexes an add is in groups too: the shard's grouped part of each index gets
// the Sum.
type Grouping struct {
	Add     int     // the position in Commit.Adds
	Indexes []int64 // their numbers, which rise; at most MaxGroups
}

// Entities is the number of entities that the commit writes.
func (c *Commit) Entities() int {
	return len(c.Markers) + len(c.Adds) + len(c.Growths) + len(c.Records) + len(c.Rows) + c.archived()
}

// archived is the number of days of counters that the commit adds to the archive.
func (c *Commit) archived() (n int) {
	type day struct {
		add    int
		number wire.Minute
	}
	last := day{add: -1}
	for _, b := range c.Buckets {
		if b.Minute >= c.Archive {
			continue
		}
		if d := (day{b.Add, b.Minute / DayMinutes}); d != last {
			last, n = d, n+1
		}
	}
	return n
}

// A CommitResult is the store's answer to a commit that it has applied.
type CommitResult struct {
	// At is the store's time of the commit; zero if the store uses the machine's clock.
	At time.Time
	// Shards has the stats of each add's shard, in the order of Adds; nil if
	// Limits.ShardRate is 0.
	Shards []ShardStats
}

// ShardStats are two numbers that a shard keeps beside its sum, at no cost of another entity. A
// number that is too small is harmless.
type ShardStats struct {
	// Tally is the shard's tally after the fold: max(old, Commit.Tally)+1.
	Tally int64
	// KnownShards is the largest Commit.KnownShards of all folds into the shard.
	KnownShards int
}

// Limits are the limits of a store. They do not change while it is open.
type Limits struct {
	// Entities is the most entities of one commit; 0 for no limit.
	Entities int
	// Keys is how many keys the aggregator asks for at once, and how many records it makes at once: each call has a time-out of
	// its own. Never 0.
	Keys int
	// Commits is the number of concurrent commits beyond which the store gets no faster; at
	// least 1.
	Commits int
	// Shards is the number of shards of a new counter.
	Shards int
	// ShardRate is the number of commits a second that one shard sustains. It is 0 if commits
	// to one shard do not wait for each other, so that more shards gain nothing.
	ShardRate float64
	// CertainOutcome is true if the outcome of every Fold is certain, or the store is broken and
	// the process must end. A part without an id, from a bus that delivers once, then needs no
	// marker.
	CertainOutcome bool
	// GrowsInFold is true if Fold takes Commit.Growths, and if a growth costs less there than
	// a look-up of the record. The aggregator then looks up no records, and uses only the
	// shards of a new counter. It needs Entities 0.
	GrowsInFold bool
	// Ring is zero if the store has no ring.
	Ring Ring
	// RefusesOldRules is true if Fold answers ErrOutdated. An index and a journal are then complete from
	// their creation on.
	RefusesOldRules bool
	// Remainders is the most remainders of one SetRemainders; 0 if the store has no indexes.
	Remainders int
}

// A Folder applies commits. Concurrent calls are allowed.
type Folder interface {
	Limits() Limits

	// Fold applies the commit atomically and durably: after nil it survives a crash. It never
	// repeats a commit by itself, not even after a lost connection. It does not keep c.
	Fold(ctx context.Context, c *Commit) (CommitResult, error)

	// Applied looks up markers in any order, and leaves out absent ones. A part whose marker is found was applied; another part may still be.
	Applied(ctx context.Context, ids []wire.PartID) ([]Marker, error)
}
