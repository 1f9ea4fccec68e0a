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
	// From and To ask for what was counted in the minutes from From on and before To, in place of
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
	// Most is the largest sum of the minutes from any minute on. A window that slides can reach it
	// without another increment. It is at least 0 and at least Sum. Of a total it is Sum.
	Most int64
	// Overflow means that the counter has no sum: it does not fit int64.
	Overflow bool
	// Hidden means that readers do not see the sum of the minutes now: the counter was deleted, and has
	// counted nothing since. One increment shows all of it again.
	Hidden bool
}

// Sums is the result of a look at all sums.
type Sums struct {
	// At is the moment of all sums, by the store's clock.
	At time.Time
	// Mark is a place before that moment.
	Mark RiseMark
	// Read is the number of entities that were read.
	Read int64
}

// A RiseMark is a place among the changes that a store has made since it was opened.
type RiseMark struct {
	Hi      int64
	Lo      uint64
	Changes uint64
}

// A Rise bounds how far sums have risen.
type Rise struct {
	// Known is false if other processes may have changed sums too. Most is then 0.
	Known bool
	// Most is at least as much as any one sum has risen. At the largest int64 it bounds nothing.
	Most int64
	// Changed is false if no sum has changed.
	Changed bool
}

// Boards has the sums of all counters of an index, for leaderboards. Concurrent calls are allowed.
type Boards interface {
	// Sums visits the counters of the query at one moment, in any order, each once. It leaves out
	// counters that were never incremented, deleted counters with a total of 0, and counters without
	// a bucket in the minutes. An error of visit ends it.
	Sums(ctx context.Context, q *SumsQuery, visit func(*CounterSum) error) (Sums, error)

	// Risen bounds how far the sums of the query have risen between a moment of Sums and any view that was
	// pinned before this call. Whatever raises a sum is in it: increments, the end of a
	// negative total by a reset, and what a group gets from a piece.
	Risen(q *SumsQuery, since RiseMark) Rise
}
