package store

import (
	"context"
	"time"

	"github.com/countmill/countmill/wire"
)

// A SumsQuery asks for the sums of all counters of an index, or of all its groups.
type SumsQuery struct {
	Index *Index
	// Groups asks for groups in place of counters.
	Groups bool
	// From and To ask for sums of the minutes from From on and before To, in place of
	// totals. A zero To asks for totals.
	From, To wire.Minute
	// Rate is the most entities to read in a second; 0 for no limit.
	Rate float64
}

// Has reports whether the query is about the counter, or the group, of that name.
func (q *SumsQuery) Has(name string) bool {
	if q.Groups {
		return q.Index.HasGroup(name)
	}
	return q.Index.Has(name)
}

// Prefix is the text with which all names that the query is about begin, but for Index.Overflow.
func (q *SumsQuery) Prefix() string {
	if q.Groups {
		return q.Index.GroupPrefix()
	}
	return q.Index.Prefix()
}

// A CounterSum is the sum of one counter.
type CounterSum struct {
	// Counter is valid during the call only.
	Counter []byte
	// Sum is the total, or the sum of the minutes.
	Sum int64
	// Overflow means that the counter has no sum: it does not fit int64.
	Overflow bool
}

// Sums is the result of a look at all sums.
type Sums struct {
	// At is the moment of all sums, by the store's clock.
	At time.Time
	// Changes is the answer of Boards.Changes before that moment.
	Changes uint64
	// Read is the number of entities that were read.
	Read int64
}

// Boards has the sums of all counters of an index, for leaderboards. Concurrent calls are allowed.
type Boards interface {
	// Sums visits the counters of the query at one moment, in any order, each once. It leaves out
	// counters that were never incremented, deleted counters that have counted nothing since, and counters without
	// a bucket in the minutes. An error of visit ends it.
	Sums(ctx context.Context, q *SumsQuery, visit func(*CounterSum) error) (Sums, error)

	// Changes counts calls that may have changed sums. When a call that changes a sum has returned, Changes is more than
	// Sums.Changes of any look that lacks the change. known is false if other processes may change sums too.
	Changes() (n uint64, known bool)
}
