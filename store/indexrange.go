package store

import (
	"context"
	"time"

	"github.com/countmill/countmill/store/int128"
)

// An IndexRange is the part of an index's work that one worker does at a time. Every shard has a place, a
// hash by which the store keeps it: wire.Order of the counter, or the upper half of wire.ShardHash. A range has the
// shards at its places. The ranges of an index together have every place exactly once, but for retired ones, which
// have none.
type IndexRange struct {
	// Index is Index.Number, and ID the range's number within the index, from 1.
	Index int64
	ID    int
	// From and To are the first and the last place.
	From, To uint64
	// Retired is true for a range that was split. It has no shards, and its remainders are taken
	// back. Nobody makes another range with its ID.
	Retired bool
	// Worker is who works at the range, and Until when others may take it over.
	Worker string
	Until  time.Time
	// Round is the number of times that the range was taken. A worker that lost the range has an
	// older one.
	Round int64
	// Read is the store's time before the range was read, as it is written now; zero if it never was.
	Read time.Time
	// Shards, Remainders and Corrected count, for people: the shards that the last reading looked at, the
	// groups with a remainder, and the groups whose remainder another reading than the first has changed.
	Shards, Remainders, Corrected int64
}

// MaxRanges bounds the ranges of an index.
const MaxRanges = 4096

// MaxSwapped is the most ranges of each side of SwapRanges.
const MaxSwapped = 100

// A GroupRemainder is the part of a range in the total of a group: the sum of (count - grouped) over the
// range's shards whose counters are in the group.
type GroupRemainder struct {
	Group     string
	Remainder int128.Int
}

// An Ungrouped is the part of a shard's count that was folded without an index.
type Ungrouped struct {
	Counter   string
	Remainder int128.Int // not 0
}

// An UngroupedPage is some shards of a range.
type UngroupedPage struct {
	// At is a moment of the store at which the shards were read, or an earlier one.
	At time.Time
	// Remainders are those of shards whose remainder is not 0.
	Remainders []Ungrouped
	// Shards is the number of shards that were read, and Place that of the last of them.
	Shards int
	Place  uint64
	// Next is where the next page begins, in the store's own format; empty at the end.
	Next string
}

// Indexing has the work of building, checking and deleting indexes. Concurrent calls are allowed. After an
// error that matches ErrChanged or ErrNoIndex nothing was changed; after any other error the call was maybe
// applied, and may be repeated.
type Indexing interface {
	// Ranges returns the ranges of an index, in any order.
	Ranges(ctx context.Context, index int64) ([]IndexRange, error)

	// SwapRanges replaces old by next, all of one index, in one transaction, or answers ErrChanged if
	// one of old is not stored exactly so, or a range of next that is not in old exists. An empty next removes.
	// An empty old makes the first ranges: it answers ErrNoIndex if the rules do not have the index any
	// more, in the same transaction. It takes at most MaxSwapped of each.
	SwapRanges(ctx context.Context, old, next []IndexRange) error

	// Ungrouped returns one page of at most limit shards of the range whose counters begin with the
	// prefix of the index, in the order of their places. It leaves out groups, and shards that no Lookup
	// finds (Shard.Bad), and reads all of a shard at one moment. A page before the last one may have fewer shards. from is empty, or the Next of the page before.
	Ungrouped(ctx context.Context, x *Index, p *IndexRange, from string, limit int) (UngroupedPage, error)

	// SetRemainders makes each remainder the range's part of the group's total, in place of its last
	// remainder, each group in one transaction. It makes the group's record. It answers ErrChanged if the range is
	// not stored exactly so. Remainders of 0 leave nothing. A group is in it once.
	SetRemainders(ctx context.Context, p *IndexRange, remainders []GroupRemainder) error

	// RemaindersOf returns up to limit remainders of a range in the order of groups after after.
	RemaindersOf(ctx context.Context, p *IndexRange, after string, limit int) ([]GroupRemainder, error)

	// DropGrouped removes the grouped part from the shards of one page of the range, as Ungrouped
	// has it, and returns the start of the next page. Nobody folds by the index any more.
	DropGrouped(ctx context.Context, x *Index, p *IndexRange, from string, limit int) (next string, err error)

	// DropGroups removes up to limit groups of the index, with their records, shards, series
	// and remainders, and returns a number that is 0 only if nothing is left. Nobody folds by the index any more.
	// It answers ErrChanged, and removes nothing, if the rules have the index not any more, or not as one that
	// has ended (Rules.Ended), in the same transaction: another index may have groups of the same names
	// by now.
	DropGroups(ctx context.Context, x *Index, limit int) (dropped int, err error)
}
