package store

import (
	"context"
	"time"
)

// A Worker is the record in which an aggregator reports its progress every few seconds.
type Worker struct {
	ID string
	// Lag is the age of the oldest increment that the aggregator holds uncommitted.
	Lag time.Duration
	// Stalled means that the aggregator takes no messages, so Lag does not cover the bus.
	Stalled bool
	// Skew is the difference between the machine's clock and the store's, without a sign.
	Skew time.Duration
	// LastCommit is the time of the last commit; zero if there was none.
	LastCommit time.Time
	// Expires is when readers begin to ignore the record.
	Expires time.Time
	// Increments, Entries, Commits and Entities count, since the aggregator started, the
	// increments that it folded, the entries that they were coalesced to, the commits that it
	// tried, and the entities that those wrote.
	Increments, Entries, Commits, Entities int64
	// Duplicates counts the parts that were not applied because they had been before, and
	// DeadLetters the dead letters written, since the aggregator started.
	Duplicates, DeadLetters int64
	// LastDeadLetter is when the aggregator last wrote a dead letter; zero if it has not since its start.
	LastDeadLetter time.Time
	// AtLimit are counters that need more shards and may not get them, at most MaxAtLimit.
	AtLimit []string
	// Setup are settings by their names that all aggregators of a database should share, for people.
	Setup map[string]string
	// Busiest are the counters that moved most lately, at most MaxBusiest, the busiest first.
	Busiest []Busy
	// Settings is the version of the settings that the aggregator uses; 0 before the first
	// check.
	Settings int64
}

// WorkerLate is how long a record that has expired is of an aggregator that is late: it has died, or its heartbeats do not
// arrive. An aggregator that stops by order leaves a record that expired longer ago.
const WorkerLate = 10 * time.Minute

// MaxBusiest bounds Worker.Busiest. With names of 500 bytes that is a record of 60 KB.
const MaxBusiest = 100

// MaxAtLimit bounds Worker.AtLimit.
const MaxAtLimit = 20

// A Busy is a counter, and the sum of the absolute deltas that it got in a second lately. Both are
// estimates: a counter with a small part of all movement may be missing, and its rate is low while
// the movement is young.
type Busy struct {
	Counter string  `json:"counter"`
	Rate    float64 `json:"rate"`
}

// Heartbeat keeps the records of aggregators. Concurrent calls are allowed.
type Heartbeat interface {
	// Beat replaces the worker's record. The record need not survive a crash.
	Beat(ctx context.Context, w Worker) error

	// Workers returns the records of all aggregators, expired ones too.
	Workers(ctx context.Context) ([]Worker, error)
}

// Meta is the meta record: the identity of the database and its settings. Concurrent calls
// are allowed.
type Meta interface {
	// Check reports whether this is still the database that was opened, and whether it can
	// be written. It answers ErrOtherDatabase if it certainly is another one, and may
	// answer ErrReadOnly. Folding stops while Check fails. The answer has the store's time, or a zero time if the store uses
	// the machine's clock, and the settings in effect.
	Check(ctx context.Context) (Checked, error)

	// SetWindow sets the deduplication window (Settings.Changed) in one transaction on the
	// meta record, and returns the new settings. A window that is in effect already changes
	// nothing. After an error the window was maybe set: repeat the call.
	SetWindow(ctx context.Context, window time.Duration) (Settings, error)

	// ChangeRules adds or removes a rule (Settings.ChangeRules) in one transaction on the meta
	// record, and returns the new settings. A change that is in effect already changes nothing.
	// An error that matches ErrNoRule or countmill.ErrInvalid means that nothing
	// was changed. After any other error the rule was maybe changed: repeat the call.
	ChangeRules(ctx context.Context, change RuleChange) (Settings, error)
}
