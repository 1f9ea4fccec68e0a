package aggregator

import (
	"context"
	"errors"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// What a store answers decides what happens to the parts of a commit (doc.go has the
// table). A store wraps one of these; an error that matches none of them means that
// the commit was maybe applied.
var (
	// ErrMarkerExists: at least one marker was there already. Nothing was applied.
	ErrMarkerExists = errors.New("marker exists")

	// ErrRefused: the store refuses the content for good (InvalidArgument,
	// OutOfRange). Nothing was applied.
	ErrRefused = errors.New("refused by the store")

	// ErrDeployment: permissions, credentials, a database that is not there. Nothing
	// was applied, and a person has to act.
	ErrDeployment = errors.New("deployment")

	// ErrNotCounted: the store answered OK and did not add. Folding must stop.
	ErrNotCounted = errors.New("the store answers OK but does not add")

	// ErrNotApplied: the store gave the commit up before it began, for instance because the
	// context ended while it waited for its turn. Nothing was applied, nor will be. A store
	// answers this only where it is certain of both.
	ErrNotApplied = errors.New("not applied")

	// ErrContended: the commit stood in the way of others that wrote what it writes. It
	// was maybe applied, as after any error that is not listed above; that more shards
	// would help is all it says besides.
	ErrContended = errors.New("contention")
)

// A Marker is the record that a part has been applied.
type Marker struct {
	ID          wire.PartID
	Fingerprint wire.Fingerprint
	// Whole says of a head that all rests of its request were applied with it: they have no markers.
	// It is false for other parts.
	Whole bool
	// Fold names the try to apply the part. It stays the same when a commit with an
	// unknown outcome is repeated, so that our own marker is not taken for a duplicate.
	Fold uint64
	// At is the time of the part, or of the fold where that is later. The marker stays until
	// store.Settings.ForgetBefore has passed At by store.MarkerSlack.
	At time.Time
	// ExpireAt is when a store whose technology removes by time may forget the marker:
	// store.Settings.Expiry. A store may keep one of the two times, At or ExpireAt;
	// the other is then zero in what Applied returns.
	ExpireAt time.Time
}

// An Add adds Delta to one shard.
type Add struct {
	Counter string
	Order   uint64 // wire.Order(Counter)
	Hash    uint64 // wire.ShardHash(Counter, Shard)
	Shard   int
	Delta   int64 // never 0
}

// NewAdd is an add with its Order and Hash.
func NewAdd(counter string, shard int, delta int64) Add {
	order, hash := wire.Hashes(counter)
	return Add{Counter: counter, Order: order, Hash: wire.SpreadHash(hash, shard), Shard: shard, Delta: delta}
}

// A Commit is applied whole or not at all.
type Commit struct {
	// Markers are inserted: one that is there already refuses the commit. No id twice.
	Markers []Marker
	// Adds are sorted by Order, Counter, Shard. No shard twice.
	Adds []Add
	// Known is how many shards the counter of each add has as far as its aggregator knows,
	// which its record names. nil says nothing.
	Known []int
	// Tally is what the tally of a shard is at least, before the fold adds 1 to it.
	Tally int64
	// Raises are what Recorder.Raise takes, to be applied with the rest. Sorted by
	// Counter, none twice. Empty unless Limits.RaisesInFold.
	Raises []Raise
}

// Entities is how many entities the commit writes.
func (c *Commit) Entities() int { return len(c.Markers) + len(c.Adds) + len(c.Raises) }

// A Folded is what a store says of a commit that it has applied.
type Folded struct {
	// At is the store's time of the commit; zero where that is the machine's own.
	At time.Time
	// Shards is what each add's shard tells, in the order of Adds; nil where
	// Limits.ShardRate is 0.
	Shards []Told
}

// Told is what a shard tells whoever has just added to it. It is written with the sum, and
// costs no entity. A number that is too small is harmless: versions that know nothing of it
// leave it as it is, or wipe it.
type Told struct {
	// Tally is what the fold made of the shard's: max(Tally, Commit.Tally) + 1.
	Tally int64
	// Known is the largest Commit.Known of the folds that the shard has taken.
	Known int
}

// Limits are what a store takes. They do not change while it is open.
type Limits struct {
	// Entities is the most entities of one commit; 0 for no limit.
	Entities int
	// Keys is the most keys of one look-up, and the most records of one Raise; never 0.
	Keys int
	// Commits is how many commits at once the store gains from; at least 1.
	Commits int
	// Shards is what a counter that nobody has seen starts with.
	Shards int
	// ShardRate is how many commits a second one shard sustains; 0 where commits to one
	// shard do not wait for each other, and more shards would win nothing.
	ShardRate float64
	// RaisesInFold says that Fold takes Commit.Raises, and that a raise there costs the
	// store less than to find out whether it is needed. The aggregator then looks no
	// records up, and uses only the shards that a new counter starts with. Needs
	// Entities 0.
	RaisesInFold bool
}

// A Folder applies commits.
type Folder interface {
	Limits() Limits

	// Fold applies the commit atomically and durably: after nil it survives a crash.
	// It never repeats a commit by itself, not even on a lost connection. It does not
	// keep c. Concurrent calls are allowed.
	Fold(ctx context.Context, c *Commit) (Folded, error)

	// Applied looks markers up, at most Limits.Keys, in any order; absent ones are left
	// out. What is found was applied; what is not found may still be.
	Applied(ctx context.Context, ids []wire.PartID) ([]Marker, error)
}

// Recorder keeps the records of counters.
type Recorder interface {
	// Shards returns the number of shards in each counter's record, 0 where there is
	// no record or a deleted one. At most Limits.Keys counters.
	Shards(ctx context.Context, counters []string) ([]int, error)

	// Raise makes sure that each counter has a record that names at least its number
	// of shards; it never lowers one, and makes a deleted one a counter again, as
	// Commit.Raises do. After nil, no fold that was called later can
	// survive a crash that the raise does not survive. At most Limits.Keys records. It
	// may be repeated.
	Raise(ctx context.Context, raises []Raise) error
}

// A Raise asks for at least Shards shards.
type Raise struct {
	Counter string
	Shards  int
}

// A Dead is a dead letter: a part or message that can never be counted.
type Dead struct {
	// Key is a hash of the source, what it holds and the reason, so that writing it
	// again is harmless.
	Key string
	// Payload is the message as it came, or a batch that holds only the parts.
	Payload []byte
	// Source is the part's id in hex or the broker's message id.
	Source string
	// Time is what the deduplication window is judged by.
	Time time.Time
	// Reason is a sentence for the person who decides about it.
	Reason string
	// Maybe is true where an earlier attempt may have been applied.
	Maybe bool
	// At is when it was set aside.
	At time.Time
}

// Morgue keeps dead letters until a person replays or discards them, or an aggregator
// that can read them counts them.
type Morgue interface {
	// Bury writes dead letters durably. It may be repeated: the key decides.
	Bury(ctx context.Context, letters []Dead) error

	// Dead returns up to limit dead letters whose keys come after after, in the order
	// of their keys as bytes.
	Dead(ctx context.Context, after string, limit int) ([]Dead, error)

	// Discard removes the letters with these keys. Those that are not there are no
	// error. It may be repeated, and need not survive a crash: a letter that comes back
	// is read again.
	Discard(ctx context.Context, keys []string) error
}

// A Worker is what an aggregator says of itself every few seconds.
type Worker struct {
	ID string
	// Lag is the age of the oldest increment that it holds uncommitted.
	Lag time.Duration
	// Stalled: it takes no messages, so Lag does not cover the bus.
	Stalled bool
	// LastCommit is when it last folded something; zero for never.
	LastCommit time.Time
	// Expires is when the record stops meaning anything.
	Expires time.Time
	// Entries folded and Commits made since the worker started.
	Entries, Commits int64
	// Settings is the version of the settings that it goes by; 0 before the first check.
	Settings int64
}

// Announcer shows readers how far the aggregators are.
type Announcer interface {
	// Announce replaces the worker's record. It need not survive a crash.
	Announce(ctx context.Context, w Worker) error

	// Check reports whether this is still the database that was opened, and whether it
	// can be written. Folding stops while it fails. It returns the store's time, or a zero
	// time where that is the machine's own, and the settings that are in effect.
	Check(ctx context.Context) (store.Checked, error)

	// SetWindow sets for how long parts are recognised (store.Settings.Changed), in one
	// transaction on the meta record, and returns the settings then. A window that is in effect
	// already changes nothing, so it may be repeated, and must be where its outcome is not
	// known: after an error it was maybe set.
	SetWindow(ctx context.Context, window time.Duration) (store.Settings, error)
}

// A Store is everything that an aggregator needs.
type Store interface {
	Folder
	Recorder
	Morgue
	Announcer
}
