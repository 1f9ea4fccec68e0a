package engine

import (
	"context"
	"time"
)

// An Engine is an open database. Concurrent calls are allowed. Calls after Close return errors.
type Engine interface {
	Limits() Limits

	// Commit applies c in one trip, without reads. It never repeats itself, also not after a lost connection.
	Commit(ctx context.Context, c *Commit) (Result, error)

	// Transact runs do at most once, and applies the changes that do has made. If a row that do asked for has changed
	// meanwhile, it answers ErrConflict. If do returns an error, Transact applies nothing and returns that error.
	Transact(ctx context.Context, soft bool, do func(Tx) error) (Result, error)

	// View opens a view. It costs nothing until the first call, which fixes its moment.
	View() View

	// Due lists up to limit keys of rows whose Kind.Due is at most before, in any order. The caller reads each row
	// again in a Transact. after is empty, or the next of the page before; an empty next is the end. Callers ask for
	// all pages, so each should go on where the one before ended, without a look at earlier rows.
	Due(ctx context.Context, kind KindID, before int64, after string, limit int) (keys []Key, next string, err error)

	// Expire removes the rows of a kind with Kind.Expires whose Due is below before. It may leave rows for up to eight days
	// more. With Limits.Expires it does nothing. It is Soft: call it now and then.
	Expire(ctx context.Context, kind KindID, before int64) error

	// Moment returns a new moment, without a read; zero without Limits.Exclusive. Moments have microseconds.
	Moment() time.Time

	// Resume makes all later moments come after at.
	Resume(at time.Time)

	// Check reports whether this is the database that was opened, whether it has everything that it acknowledged, and
	// whether it can be written now (ErrReadOnly, beside an answer). It reads rows in the same trip.
	Check(ctx context.Context, with []Key) (Checked, error)

	Close() error
}

// A Result is the answer to changes that were applied.
type Result struct {
	// At is the database's time of the commit; zero without Limits.Clock.
	At time.Time
	// Got are the numbers that the changes want, in their order; nil without Limits.Returns.
	Got []int64
}

// A Checked is the answer of a successful Check.
type Checked struct {
	At time.Time // zero without Limits.Clock
	// Restores is how often the database may have lost its end: by a backup that was restored, or by a standby that
	// was promoted.
	Restores int64
	// Rows are the rows of the keys in their order, with All.
	Rows []Row
}

// A Tx is a transaction. It is valid in its function only, and used by one goroutine at a time.
type Tx interface {
	// Get returns rows in the order of keys, which are at most Limits.Keys. No call shows changes of the Tx itself. A
	// change of any field of these rows may count as a change of the row.
	Get(ctx context.Context, keys []Key, fields ...FieldID) ([]Row, error)

	// Now is the time of the first Get, by the clock of the database or, without Limits.Clock, of the machine; zero before
	// it.
	Now() time.Time

	// Restores is Checked.Restores of a check after which the transaction began, on the same server. If the server has lost its end
	// since, the transaction is not applied.
	Restores() int64

	// Change adds a change. It copies c. Changes come in any order, no key twice.
	Change(c *Change)
}

// A View is the database as it was at one moment. After its first call has answered, concurrent calls are allowed.
type View interface {
	// Get returns rows in the order of keys, which are at most Limits.Keys, and one of them perhaps twice. Without fields a row
	// only Exists. A call without keys fixes the moment.
	Get(ctx context.Context, keys []Key, fields ...FieldID) ([]Row, error)

	// Scan reads a range. Its first Next is a call of the view, and Scan itself is none. Without fields it returns keys
	// alone. Several scans may be open at once.
	Scan(ctx context.Context, r Range, fields ...FieldID) Rows

	// At is the moment; zero before the first call has answered.
	At() time.Time

	// Close releases the view. It may be called twice.
	Close()
}

// Rows are the rows of a scan.
type Rows interface {
	// Next returns the next row, or nil at the end and after an error. The row is valid until the next call.
	Next() *Row
	Err() error
	// Close releases the scan. It may be called twice, and after the view was closed.
	Close()
}
