// Package addtx counts inside a transaction of the caller, in a database that countmill has too (--store postgres://). The increment
// counts if the transaction commits, and once: a rollback, also to a savepoint, counts nothing.
//
// A transaction only appends a row. It updates no sum, so it waits for no other one, and transactions that count in different orders
// never deadlock. An aggregator counts the row and removes it in one commit, within a second. Ordinary SQL does the same:
//
//	select countmill.add('comments:post-17', 1)
//
// The role of the caller needs usage on the schema countmill, execute on its functions, and no right to any table. In a schema of another name, call its function by SQL.
package addtx

import (
	"context"
	"database/sql"

	"github.com/countmill/countmill"
)

const statement = "select countmill.add($1, $2)"

// A PgxTx is a pgx.Tx, or a connection that is in a transaction.
type PgxTx[R any] interface {
	Exec(ctx context.Context, sql string, args ...any) (R, error)
}

// Add adds delta to a counter when tx commits. An increment that no counter takes is an error that matches countmill.ErrInvalid, and leaves the
// transaction as it is.
func Add[R any](ctx context.Context, tx PgxTx[R], counter string, delta int64) error {
	if err := check(counter, delta); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, statement, counter, delta)
	return err
}

// A SQLTx is a *sql.Tx, or a *sql.Conn that is in a transaction.
type SQLTx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// AddSQL is Add for database/sql.
func AddSQL(ctx context.Context, tx SQLTx, counter string, delta int64) error {
	if err := check(counter, delta); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, statement, counter, delta)
	return err
}

func check(counter string, delta int64) error {
	if err := countmill.CheckCounter(counter); err != nil {
		return err
	}
	return countmill.CheckDelta(delta)
}
