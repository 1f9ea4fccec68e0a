// Package rows is an engine (package engine) on PostgreSQL 14 and later: a table for each kind, in a schema of its own.
//
// # Tables
//
// A narrow field is a bigint column. A wide one is two, which hold the halves of engine.Int.Split, so a sum is exact to 95 bits.
// Fields that are open are rows of a side table, which are written under the lock of their row only. A delete therefore makes the row first if
// it is absent. With 120 open fields a row, commits of 400 were 2 to 3 times as fast as with a jsonb column, and the table was larger; with 30 the
// two were equal. Names have the order of their bytes.
//
// # Commits
//
// A commit is one round trip: BEGIN, a statement for each kind that takes arrays, COMMIT. It locks rows in the order of
// their keys; of one kind first those to update or delete, then those to insert, then the others. If commits wait for each other in a
// circle all the same, PostgreSQL ends one, with ErrNotApplied. An operand that differs between rows says its operation in the column op.
// A condition fails as a division by zero (22012), whose statement says which error it means. It holds a lock of its table, for which a change
// of the table waits in a queue.
//
// # Transactions
//
// The reads of a Transact are one repeatable-read transaction, which locks nothing. At the end a second one, read committed, locks the
// rows that were read, in the order of keys, and then compares their versions (xmin) in a statement of its own: one
// statement that waits for a lock and reads still has the old snapshot. Where a row was absent it inserts one and deletes it, and
// another process that inserts the row waits for the end. The writes follow. Blind additions meet those of commits, which
// they could not in a repeatable-read transaction.
//
// # Views
//
// A view is a repeatable-read transaction, and ends after Options.ViewTime: an open snapshot slows busy rows. Its moment is now(), the time of its
// BEGIN. Another view can begin later and take its snapshot earlier, so the process orders moments by the number of transactions that a snapshot
// shows. If a moment has been given out already for more, the view takes another snapshot.
//
// # PgBouncer
//
// The package works through PgBouncer in transaction mode: the suite passes through version 1.18.0. It uses no named statements, no session settings, session locks or
// cursors. Statements are parsed each time: with arrays, a commit of 400 rows has as many statements as one of four.
package rows
