package rows

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/countmill/countmill/store/engine"
)

// Commit applies c in one round trip. A Soft one is as durable as the others (C5 in package engine): processes outlive a crash of PostgreSQL, and
// the last commits without a flush do not.
func (e *Engine) Commit(ctx context.Context, c *engine.Commit) (engine.Result, error) {
	u := e.begin(new(batch))
	if len(c.Taken) > 0 {
		ids := newArray(oidInt8s)
		for _, id := range c.Taken {
			ids.int64(id)
		}
		// Rows that another commit holds count as gone: its outcome decides, and nobody waits for it.
		u.want(engine.ErrExists, nil, fmt.Sprintf("with taken as (delete from %s where id in (select id from %[1]s where id = any ($1) for update skip locked) returning 1) select 1 / (count(*) = %[2]d)::int from taken",
			quoted(e.schema, e.options.Taken), len(c.Taken)), ids.param())
	}
	if c.Restores != nil {
		// Without the number of the system, which costs a file.
		u.want(engine.ErrOutdated, nil, "select 1 / count(*) from "+e.meta+" where restores = $1 and origin like '% ' || "+place, number(*c.Restores))
	}
	if err := u.require(c.Require); err != nil {
		return engine.Result{}, err
	}
	if c.Changes != nil {
		if err := e.change(u.batch, c.Changes); err != nil {
			return engine.Result{}, err
		}
	}
	result, err := u.apply(ctx)
	if errors.Is(err, engine.ErrExists) {
		err = cmp.Or(e.confirm(ctx), err)
	}
	return result, err
}

// confirm waits until all that a view has shown is as durable as a commit. Rows of a commit that waits for its standby show if that wait is
// cancelled.
func (e *Engine) confirm(ctx context.Context) error {
	u := e.begin(new(batch))
	u.do("select pg_logical_emit_message(true, 'countmill', '') where current_setting('synchronous_standby_names') <> ''")
	_, err := u.apply(ctx)
	return err
}

// A unit is a transaction of one round trip.
type unit struct {
	*batch
	e  *Engine
	at int64 // a time when others see the commit, after the answer
}

// statementTime bounds a statement, waits for locks included.
const statementTime = "30s"

// ownNames lets statements find the operators and functions of PostgreSQL alone: another role may have made an operator with closer types in a schema
// that everybody may use.
const ownNames = "set_config('search_path', 'pg_catalog', true)"

// noticeLoss lets the server notice within a minute that the other machine is gone. It may have only a part of a commit then, whose locks
// no time-out of PostgreSQL ends: the default is two hours.
const noticeLoss = "set_config('tcp_keepalives_idle', '15', true), set_config('tcp_keepalives_interval', '15', true), set_config('tcp_keepalives_count', '3', true)"

// errWaits: PostgreSQL keeps the connection of a commit that waits for a standby, also when nobody waits for its answer. So repeats without
// an end would take all of max_connections.
var errWaits = fmt.Errorf("%w: commits wait for a standby", engine.ErrNotApplied)

// begin adds BEGIN and the settings of the transaction: a pooler shares sessions, so no setting outlives it.
func (e *Engine) begin(b *batch) *unit {
	u := &unit{batch: b, e: e}
	b.do("begin isolation level read committed")
	b.do("select set_config('synchronous_commit', $1, true), set_config('statement_timeout', $2, true), "+ownNames+", "+noticeLoss, text(e.durable.Load().(string)), text(statementTime))
	if e.late.Load() {
		u.want(errWaits, nil, "select 1 / (count(*) < 4)::int from pg_stat_activity where usename = session_user and wait_event = 'SyncRep' and state_change < now() - interval '5 s'")
	}
	return u
}

// require adds conditions: a lock of the table, which also keeps absent rows as they are, and then a statement that reads under the lock.
func (u *unit) require(all []engine.Require) error {
	for _, q := range all {
		t := u.e.tables[q.Key.Kind]
		if !t.settings() {
			return fmt.Errorf("%w: a condition on a row of %s", engine.ErrRefused, t.kind.Name)
		}
		u.do("lock table " + t.name + " in row share mode")
		u.want(engine.ErrOutdated, nil, fmt.Sprintf("select 1 / (coalesce((select %s from %s where name = $1), 0) <= $2)::int",
			t.columns[t.column(q.Field)].low, t.name), t.keyParam("name", &q.Key), number(q.AtMost))
	}
	return nil
}

// apply adds COMMIT, and sends all.
func (u *unit) apply(ctx context.Context) (engine.Result, error) {
	conn, err := u.e.pool.Acquire(ctx)
	if err != nil {
		return engine.Result{}, notSent(err)
	}
	defer release(conn)
	return u.applyOn(ctx, conn)
}

func (u *unit) applyOn(ctx context.Context, conn *pgxpool.Conn) (engine.Result, error) {
	last := len(u.statements)
	u.do("commit")
	u.want(nil, func(v [][]byte) error { u.at = int64Of(v[0]) + epoch; return nil }, "select clock_timestamp()")
	c := conn.Conn().PgConn()
	delete(c.CustomData(), warned)
	done, err := u.run(ctx, c)
	if err == nil || ctx.Err() != nil {
		u.e.late.Store(err != nil)
	}
	switch {
	case err == nil && c.CustomData()[warned] != nil:
		return engine.Result{}, fmt.Errorf("postgres: the commit is perhaps not on a standby: %v", c.CustomData()[warned])
	case err == nil:
		return engine.Result{At: time.UnixMicro(u.e.moments.after(u.at)).UTC()}, nil
	case errors.Is(err, engine.ErrNotApplied):
		return engine.Result{}, err
	case done >= last:
		return engine.Result{}, fmt.Errorf("postgres: maybe applied: %w", err)
	}
	return engine.Result{}, refusal(err, u.statements[done].meant)
}

// release rolls back an open transaction, and gives the connection back.
func release(conn *pgxpool.Conn) {
	if c := conn.Conn().PgConn(); !c.IsClosed() && c.TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		b := new(batch)
		b.do("rollback")
		_, _ = b.run(ctx, c) // a connection that is still in a transaction is closed
	}
	conn.Release()
}

// Expire removes rows in lots.
func (e *Engine) Expire(ctx context.Context, kind engine.KindID, before int64) error {
	for first := true; ; first = false {
		u, removed := e.begin(new(batch)), 0
		t := e.tables[kind]
		// The condition is there twice: a row may move while the deletion waits for it.
		u.want(nil, func([][]byte) error { removed++; return nil }, fmt.Sprintf(`delete from %s where ctid = any (array(
			select ctid from %[1]s where %[2]s <> 0 and %[2]s < $1 limit %[3]d)) and %[2]s <> 0 and %[2]s < $1 returning 1`, t.name, t.due(), expireLot), number(before))
		if _, err := u.apply(ctx); err != nil && first {
			return err
		} else if err != nil {
			return errors.Join(errors.New("postgres: some rows are left"), err)
		}
		if removed < expireLot {
			return nil
		}
	}
}

const expireLot = 10_000
