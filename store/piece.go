package store

import (
	"context"
	"time"
)

// A Piece is the part of an index's work that one worker does at a time. Every shard has a place, a
// hash by which the store keeps it: wire.Order of the counter, or the upper half of wire.ShardHash. A piece
// has the shards of a range of places. The pieces of an index together have every place exactly once, but for retired
// ones, which have none.
type Piece struct {
	// Index is Index.Number, and ID the piece's number within the index, from 1.
	Index int64
	ID    int
	// From and To are the first and the last place.
	From, To uint64
	// Retired is true for a piece that was split. It has no shards, and its rests are taken
	// back. Nobody makes another piece with its ID.
	Retired bool
	// Worker is who works at the piece, and Until when others may take it over.
	Worker string
	Until  time.Time
	// Round is the number of times that the piece was taken. A worker that lost the piece has an
	// older one.
	Round int64
	// Read is the store's time before the piece was read, as it is written now; zero if it never was.
	Read time.Time
	// Shards, Rests and Corrected count, for people: the shards that the last reading looked at, the
	// groups with a rest, and the groups whose rest another reading than the first has changed.
	Shards, Rests, Corrected int64
}

// Same reports whether the pieces have the same content. Stores keep microseconds of their times.
func (p *Piece) Same(q *Piece) bool {
	a, b := *p, *q
	a.Until, a.Read, b.Until, b.Read = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return a == b && sameMicrosecond(p.Until, q.Until) && sameMicrosecond(p.Read, q.Read)
}

func sameMicrosecond(a, b time.Time) bool {
	return a.Truncate(time.Microsecond).Equal(b.Truncate(time.Microsecond))
}

// MaxPieces bounds the pieces of an index.
const MaxPieces = 4096

// A GroupRest is the part of a piece in the total of a group: the sum of (count - grouped) over the
// piece's shards whose counters are in the group.
type GroupRest struct {
	Group string
	// Rest is math.MaxInt64 if the sum does not fit int64. The group then has no total, whatever the
	// rests of other pieces are: Value.Overflow of its record is true.
	Rest int64
}

// An Ungrouped is the part of a shard's count that was folded without an index.
type Ungrouped struct {
	Counter string
	Rest    int64 // not 0, unless Overflow
	// Overflow means that the count or the rest does not fit int64.
	Overflow bool
}

// An UngroupedPage is some shards of a piece.
type UngroupedPage struct {
	// At is a moment of the store at which the shards were read, or an earlier one.
	At time.Time
	// Rests are those of shards whose rest is not 0.
	Rests []Ungrouped
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
	// Pieces returns the pieces of an index, in any order.
	Pieces(ctx context.Context, index int64) ([]Piece, error)

	// SwapPieces replaces old by next, all of one index, in one transaction, or answers ErrChanged if
	// one of old is not stored exactly so, or a piece of next that is not in old exists. An empty next removes.
	// An empty old makes the first pieces: it answers ErrNoIndex if the rules do not have the index any
	// more, in the same transaction. It takes at most 100 pieces.
	SwapPieces(ctx context.Context, old, next []Piece) error

	// Ungrouped returns one page of at most limit shards of the piece whose counters begin with the
	// prefix of the index, in the order of their places. It leaves out groups, and shards that no Lookup
	// finds (Shard.Bad), and reads all of a shard at one moment. A page before the last one may have fewer shards. from is empty, or the Next of the page before.
	Ungrouped(ctx context.Context, x *Index, p *Piece, from string, limit int) (UngroupedPage, error)

	// SetRests makes each rest the piece's part of the group's total, in place of the one that it
	// had, each group in one transaction. It makes the group's record. It answers ErrChanged if the piece is
	// not stored exactly so. Rests of 0 leave nothing. A group is in it once.
	SetRests(ctx context.Context, p *Piece, rests []GroupRest) error

	// RestsOf returns up to limit rests of a piece in the order of groups after after.
	RestsOf(ctx context.Context, p *Piece, after string, limit int) ([]GroupRest, error)

	// DropGrouped removes the grouped part from the shards of one page of the piece, as Ungrouped
	// has it, and returns the start of the next page. Nobody folds by the index any more.
	DropGrouped(ctx context.Context, x *Index, p *Piece, from string, limit int) (next string, err error)

	// DropGroups removes up to limit groups of the index, with their records, shards, series
	// and rests, and returns a number that is 0 only if nothing is left. Nobody folds by the index any more.
	// It answers ErrChanged, and removes nothing, if the rules have the index not any more, or not as one that
	// has ended (Rules.Ended), in the same transaction: another index may have groups of the same names
	// by now.
	DropGroups(ctx context.Context, x *Index, limit int) (dropped int, err error)
}
