package rows

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/countmill/countmill/store/engine"
)

// Options of an engine.
type Options struct {
	// ViewTime bounds a view: an open one keeps old rows, and slows changes of hot rows. Default 30 s.
	ViewTime time.Duration
	// Create allows Open to make the schema. Otherwise it refuses a database without.
	Create bool
	// ReadOnly is for a process that has no right to make tables: it refuses a schema that lacks any.
	ReadOnly bool
	// Also are statements that make the rest of the schema, beside the tables of kinds. They may run again.
	Also []string
	// Taken is the table of the rows of engine.Commit.Taken, in the schema; empty if there are none.
	Taken string
}

// An Engine is an open database.
type Engine struct {
	options  Options
	pool     *pgxpool.Pool
	schema   string
	meta     string // metaTable, quoted
	tables   []*table
	identity string
	known    atomic.Pointer[home] // as Check has found it
	restored atomic.Int64         // when it was last another one, as Check has read it; 0 for never
	durable  atomic.Value         // synchronous_commit of a commit, as Check has read it
	late     atomic.Bool          // the last commit got no answer in time
	longest  time.Duration        // the constant, but in a test
	moments  moments
	closing  context.Context // ends with Close, and all views with it
	close    context.CancelFunc
	// Views have half of the connections, and transactions a quarter, so that a commit always has one. Scans have three quarters of
	// the views, so that look-ups find a place. Checks have a connection: without them nobody folds.
	views, scans, transacts, checks chan struct{}
}

var _ engine.Engine = (*Engine)(nil)

// A home is the server of the database, with its timeline, and Checked.Restores there.
type home struct {
	server   string
	restores int64
}

// format is that of the tables. A later one is a migration: migrate brings each earlier one to it, and never back.
const format = 1

// checkTime bounds a check of a caller who sets no limit: others wait for its place.
const checkTime = 10 * time.Second

// minConns is the number of connections that two views, a transaction, a check and a commit need together.
const minConns = 5

// Open opens a schema of the database that config leads to. It adds what tables of an older version lack, and needs rights to do so only if
// something is missing.
func Open(ctx context.Context, config *pgxpool.Config, schema string, kinds engine.Kinds, options Options) (*Engine, error) {
	options.ViewTime = cmp.Or(options.ViewTime, 30*time.Second)
	config.MaxConns = max(config.MaxConns, minConns)
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	config.BeforeConnect = beforeConnect
	config.ConnConfig.OnNotice = onNotice
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	e := &Engine{options: options, pool: pool, schema: schema, meta: quoted(schema, metaTable), tables: tables(schema, kinds), longest: longest,
		views: make(chan struct{}, config.MaxConns/2), scans: make(chan struct{}, config.MaxConns*3/8),
		transacts: make(chan struct{}, config.MaxConns/4), checks: make(chan struct{}, 1)}
	e.known.Store(new(home))
	e.closing, e.close = context.WithCancel(context.Background())
	if err := e.prepare(ctx); err != nil {
		return nil, errors.Join(refusal(err, nil), e.Close())
	}
	return e, nil
}

// beforeConnect makes a connection that sends no cancel requests. pgx sends one when it gives up a connection, and a
// commit that waits for its standby would end as if it had arrived there.
func beforeConnect(_ context.Context, config *pgx.ConnConfig) error {
	connected, dial := new(atomic.Bool), config.DialFunc
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		if connected.Load() {
			return nil, errors.New("postgres: no cancel requests")
		}
		return dial(ctx, network, address)
	}
	config.AfterConnect = func(context.Context, *pgconn.PgConn) error { connected.Store(true); return nil }
	return nil
}

// warned is the key of a warning in the data of a connection.
const warned = "warned"

// onNotice keeps a warning that PostgreSQL sends in place of an error: a commit is on this server, and perhaps not on its standby.
func onNotice(c *pgconn.PgConn, n *pgconn.Notice) {
	if n.SeverityUnlocalized == "WARNING" && (n.Code == "01000" || n.Code == "57P01") {
		c.CustomData()[warned] = n.Message
	}
}

// prepare reads the settings of the server and the columns of the schema, and migrates it if it lacks any.
func (e *Engine) prepare(ctx context.Context) error {
	var fsync, encoding, durability string
	err := e.pool.QueryRow(ctx, "select current_setting('fsync'), current_setting('server_encoding'), "+durable).Scan(&fsync, &encoding, &durability)
	if err != nil {
		return err
	}
	e.durable.Store(durability)
	if fsync == "off" {
		return fmt.Errorf("%w: fsync is off, and a loss of power would lose counts", engine.ErrDeployment)
	}
	if encoding != "UTF8" {
		return fmt.Errorf("%w: the database has the encoding %s, and names need UTF8: createdb --encoding=UTF8 --template=template0", engine.ErrDeployment, encoding)
	}
	lacks, err := e.lacks(ctx)
	switch {
	case err != nil || lacks == nothing:
		return err
	case lacks == everything && !e.options.Create:
		return fmt.Errorf("%w: the schema %s has no tables, so countmill has not used it yet: open it once with --create", engine.ErrDeployment, e.schema)
	case e.options.ReadOnly && !e.options.Create:
		return fmt.Errorf("%w: the schema %s is of an older version: start an aggregator of this version first", engine.ErrDeployment, e.schema)
	}
	return pgx.BeginFunc(ctx, e.pool, func(tx pgx.Tx) error { return e.migrate(ctx, tx) })
}

// How much of its tables a schema lacks.
const (
	nothing = iota
	something
	everything
)

// lacks reports how much the schema lacks, and reads the identity of the database.
func (e *Engine) lacks(ctx context.Context) (int, error) {
	found := make(map[string]bool)
	rows, err := e.pool.Query(ctx, "select pg_catalog.concat(table_name, '.', column_name) from information_schema.columns where table_schema = $1 union all select indexname from pg_indexes where schemaname = $1", e.schema)
	if err != nil {
		return 0, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, name := range names {
		found[name] = true
	}
	if err != nil || len(found) == 0 {
		return everything, err
	}
	var has int
	err = e.pool.QueryRow(ctx, "select format, identity, origin, restores from "+e.meta).Scan(&has, &e.identity, &e.known.Load().server, &e.known.Load().restores)
	if undefined := new(pgconn.PgError); errors.As(err, &undefined) && undefined.Code == "42P01" {
		return 0, fmt.Errorf("%w: the schema %s has other tables; name an empty schema", engine.ErrDeployment, e.schema)
	}
	if err == nil && has > format {
		err = fmt.Errorf("%w: the schema %s has the format %d; this version knows %d", engine.ErrDeployment, e.schema, has, format)
	}
	if err != nil {
		return 0, err
	}
	for _, t := range e.all() {
		needed, _ := t.definitions()
		for i := range needed {
			needed[i] = t.kind.Name + "." + strings.Trim(needed[i], `"`)
		}
		for _, name := range append(needed, Indexes(t.kind)...) {
			if !found[name] {
				return something, nil
			}
		}
	}
	return nothing, nil
}

// all are the tables with their side tables.
func (e *Engine) all() (all []*table) {
	for _, t := range e.tables {
		if all = append(all, t); t.side != nil {
			all = append(all, t.side)
		}
	}
	return all
}

// metaTable has one row: the identity of the database, the last server that it was on, and how often it came to another one.
const metaTable = "countmill_format"

// server is the server with its timeline, which rises when a standby is promoted, and when a backup is restored to a point in time. The table's own
// number differs after a restore of a dump. Both are expressions over that table.
const (
	place  = `case when pg_is_in_recovery() then '' else substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8) end || ' ' || tableoid`
	server = `(select system_identifier from pg_control_system()) || ' ' || ` + place
)

// durable is the server's default of synchronous_commit, and on in place of off.
const durable = `(select case reset_val when 'off' then 'on' else reset_val end from pg_settings where name = 'synchronous_commit')`

// migrate makes the tables, and adds columns and indexes. One process at a time does it.
func (e *Engine) migrate(ctx context.Context, tx pgx.Tx) error {
	literal := "'" + strings.ReplaceAll(e.schema, "'", "''") + "'"
	sql := []string{
		"select " + ownNames,
		"select pg_advisory_xact_lock(hashtext('countmill'), hashtext(" + literal + "))",
		// A role without the right to make schemas may not say "if not exists" of its own.
		fmt.Sprintf("do $do$ begin if to_regnamespace(quote_ident(%s)) is null then create schema %s; end if; end $do$", literal, quoted(e.schema)),
		fmt.Sprintf("create table if not exists %s (one boolean primary key default true check (one), format integer not null, identity text not null, origin text not null, restores bigint not null default 0, restored timestamptz)", e.meta),
		fmt.Sprintf("insert into %s (format, identity, origin) values (%d, '%s', 'new') on conflict do nothing", e.meta, format, rand.Text()),
		fmt.Sprintf("update %s set origin = %s where origin = 'new'", e.meta, server),
	}
	for _, t := range e.all() {
		sql = append(sql, t.create()...)
	}
	for _, s := range append(sql, e.options.Also...) {
		if _, err := tx.Exec(ctx, s); err != nil {
			return err
		}
	}
	return tx.QueryRow(ctx, "select identity, origin, restores from "+e.meta).Scan(&e.identity, &e.known.Load().server, &e.known.Load().restores)
}

// commitRows is the most rows of a commit. A fold locks its rows until its end: folds of many counters at once would wait for each other,
// and folds of different counters have no row in common.
const commitRows = 1000

// Limits are the facts about PostgreSQL.
func (e *Engine) Limits() engine.Limits {
	return engine.Limits{
		Name:     e.identity,
		Rows:     commitRows,
		Bytes:    64 << 20, // a message has at most 1 GiB
		RowBytes: 16 << 20,
		Keys:     5000,
		Commits:  8,
		// A row is locked until its commit is on the disk: some 3 ms.
		RowRate: 300,
		ByName:  true, Conditions: true, Clock: true, Takes: e.options.Taken != "",
	}
}

// Moment returns zero: other processes have the database too.
func (e *Engine) Moment() time.Time { return time.Time{} }

// Resume does nothing.
func (e *Engine) Resume(time.Time) {}

// Check compares the identity, and reads rows in the same trip. Another server than the last one may lack the end of the database: it
// counts as a restore, and no Transact is taken before that is durable.
func (e *Engine) Check(ctx context.Context, with []engine.Key) (engine.Checked, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	checked := engine.Checked{Rows: make([]engine.Row, len(with))}
	var identity, last, now string
	var readOnly bool
	v := &view{e: e, slots: e.checks}
	defer v.Close()
	err := v.ask(ctx, false, func(b *batch) {
		b.want(nil, func(v [][]byte) error {
			identity, last, now, checked.Restores = string(v[0]), string(v[1]), string(v[2]), int64Of(v[3])
			readOnly = v[4][0] != 0
			e.restored.Store(int64Of(v[5]))
			e.durable.Store(string(v[6]))
			return nil
		}, "select identity, origin, "+server+", restores, current_setting('default_transaction_read_only')::boolean, (extract(epoch from restored) * 1000000)::bigint, "+durable+" from "+e.meta)
		clear(checked.Rows)
		e.look(b, with, []engine.FieldID{engine.All}, checked.Rows, nil)
	})
	checked.At = v.At()
	v.Close()
	switch {
	case err != nil:
		return engine.Checked{}, err
	case identity != e.identity:
		return engine.Checked{}, fmt.Errorf("%w: postgres: its identity is %q, and was %q", engine.ErrOtherDatabase, identity, e.identity)
	case readOnly:
		return checked, fmt.Errorf("%w: postgres: the database is read only", engine.ErrReadOnly)
	case now != last:
		checked.Restores++
		_, err = e.pool.Exec(ctx, "update "+e.meta+" set restores = restores + 1, restored = now(), origin = $1 where origin = $2", now, last)
		if errors.Is(refusal(err, nil), engine.ErrDeployment) { // a role that may only read
			return checked, nil
		} else if err != nil {
			return engine.Checked{}, notSent(err)
		}
	}
	e.known.Store(&home{now, checked.Restores})
	return checked, nil
}

// Restored is when the database was last on another server, or restored from a dump; zero for never.
func (e *Engine) Restored() (at time.Time) {
	if micros := e.restored.Load(); micros != 0 {
		at = time.UnixMicro(micros).UTC()
	}
	return at
}

// Pool has the connections, for statements beside the engine's.
func (e *Engine) Pool() *pgxpool.Pool { return e.pool }

// Close closes all connections. Views that are open fail.
func (e *Engine) Close() error {
	e.close()
	e.pool.Close()
	return nil
}
