package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/postgres/rows"
	"github.com/countmill/countmill/store/protocol"
)

// The checks of an examination.
const (
	checkReached = "reachability of the database"
	checkMeta    = "meta record"
	checkRights  = "permissions of the database"
	checkWrites  = "writes"
	checkDurable = "durability of commits"
	checkVacuum  = "autovacuum"
	checkBloat   = "dead rows"
	checkIndexes = "indexes"
	checkAdopted = "adoptions"
)

// An Exam says how to examine a database. With ReadOnly the role may be that of a reader, which needs no right to write.
type Exam struct {
	Config
	// NowFunc is this machine's clock. Default time.Now.
	NowFunc func() time.Time
}

const (
	// mostDead is the number of dead rows of a table from which it is a finding, if they are more than its rows. Autovacuum
	// begins at a fifth of these. A guess.
	mostDead = 100_000
	page     = "howto/postgresql.md"
)

// Examine looks for mistakes of the database and of the rights of its role. It writes nothing.
func Examine(ctx context.Context, e Exam, r *backend.Report) {
	if e.NowFunc == nil {
		e.NowFunc = time.Now
	}
	config, schema, err := parse(e.URL)
	var conn *pgx.Conn
	if err == nil {
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // as PgBouncer needs it
		conn, err = pgx.ConnectConfig(ctx, config.ConnConfig)
	}
	if err == nil { // statements find the operators and functions of PostgreSQL alone
		_, err = conn.Exec(ctx, "begin; set local search_path = pg_catalog", pgx.QueryExecModeSimpleProtocol)
	}
	x := &examination{Exam: e, Report: r, conn: conn, schema: schema}
	if err != nil {
		x.failed(err)
		return
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	r.Done(checkReached, "")
	for _, check := range []func(context.Context) error{x.server, x.tables, x.vacuum, x.indexes, x.adoptions} {
		if err := check(ctx); err != nil {
			if !errors.Is(err, errNoTables) {
				x.failed(err)
			}
			return
		}
	}
}

// An examination is under way.
type examination struct {
	Exam
	*backend.Report
	conn   *pgx.Conn
	schema string
}

// errNoTables ends an examination.
var errNoTables = errors.New("there are no tables yet")

func (x *examination) find(check, what, why, do string) {
	x.Find(backend.Finding{Check: check, What: what, Why: why, Do: do, Page: page})
}

func (x *examination) failed(err error) {
	check, do := checkReached, "Look at the address in --store, at the network, and at the log of PostgreSQL."
	if pg := new(pgconn.PgError); errors.As(err, &pg) && (strings.HasPrefix(pg.Code, "28") || pg.Code == "42501") {
		check, do = checkRights, "Look at the user in --store, its password and pg_hba.conf. docs has the statements that make the role."
	}
	x.find(check, rows.OneLine(err).Error()+".", "No role that has the store can work.", do)
}

// server examines settings.
func (x *examination) server(ctx context.Context) error {
	began := x.NowFunc()
	var at time.Time
	var standby, readOnly bool
	var fsync, durable, standbys, vacuum string
	err := x.conn.QueryRow(ctx, `select clock_timestamp(), pg_is_in_recovery(), current_setting('default_transaction_read_only')::boolean, current_setting('fsync'),
		(select reset_val from pg_settings where name = 'synchronous_commit'), current_setting('synchronous_standby_names'), current_setting('autovacuum')`).
		Scan(&at, &standby, &readOnly, &fsync, &durable, &standbys, &vacuum)
	if err != nil {
		return err
	}
	took := x.NowFunc().Sub(began)
	x.Clock(at.Sub(began.Add(took/2)), took/2)
	switch {
	case readOnly && !standby && x.ReadOnly:
		x.Done(checkWrites, "the database is read only: enough for a reader, which then changes nothing")
	case standby || readOnly:
		x.find(checkWrites, "This server is a standby, or the database is read only.", "An aggregator cannot fold. A standby may lack the latest commits, so countmill does not read it.",
			"Name the primary in --store. With several hosts in the URL, add target_session_attrs=read-write.")
	default:
		x.Done(checkWrites, "")
	}
	switch {
	case fsync == "off":
		x.find(checkDurable, "fsync is off.", "Roles refuse this server: a loss of power would lose counts that were acknowledged.", "Set fsync = on.")
	case standbys == "":
		x.Done(checkDurable, durability(durable)+". No standby is synchronous: a failover loses the last commits")
	default:
		x.Done(checkDurable, durability(durable))
	}
	if x.Done(checkVacuum, vacuum); vacuum != "on" {
		x.find(checkVacuum, "autovacuum is off.", "Each commit leaves old rows. Nothing removes them: tables grow and commits get slower.", "Set autovacuum = on.")
	}
	return nil
}

// durability says what synchronous_commit promises. countmill replaces off in its own transactions.
func durability(setting string) string {
	if setting == "off" {
		return "synchronous_commit is off. countmill sets it to on for its commits, so a crash of the server loses none of them"
	}
	return "synchronous_commit is " + setting
}

// tables examines whether tables exist, and the rights of the role on them.
func (x *examination) tables(ctx context.Context) error {
	var exists, usage bool
	var n int
	var lacks string
	needed, forRole := "select,insert,update,delete", "to read and write"
	err := x.conn.QueryRow(ctx, `select to_regnamespace(quote_ident($1)) is not null, coalesce(has_schema_privilege(to_regnamespace(quote_ident($1)), 'usage'), false)`, x.schema).Scan(&exists, &usage)
	if err == nil {
		if x.ReadOnly {
			needed, forRole = "select", "to read, as for a reader. For up give --bus inproc: too, for an aggregator its --bus"
		}
		err = x.conn.QueryRow(ctx, `select count(distinct c.oid), coalesce(string_agg(distinct format('%s on %I', p, c.relname), ', ') filter (where not has_table_privilege(c.oid, p)), '')
			from pg_class c, unnest(string_to_array($2, ',')) p where c.relnamespace = to_regnamespace(quote_ident($1)) and c.relkind = 'r'`, x.schema, needed).Scan(&n, &lacks)
	}
	switch {
	case err != nil:
		return err
	case n == 0:
		x.find(checkMeta, fmt.Sprintf("The database has no tables in the schema %s.", x.schema), "Roles refuse a database that countmill has not used yet.", "Start the first aggregator once with --create.")
		return errNoTables
	case exists && !usage:
		lacks = "usage on schema " + x.schema
	}
	x.Done(checkMeta, "")
	if x.Done(checkRights, forRole); lacks != "" {
		x.find(checkRights, "The role lacks: "+lacks+".", "A role of countmill that needs them cannot work.", "Let the role own the schema, or grant it these rights.")
		if !usage {
			return errNoTables
		}
	}
	return nil
}

// vacuum examines the space of old rows.
func (x *examination) vacuum(ctx context.Context) error {
	var off, dead, oldest string
	err := x.conn.QueryRow(ctx, `select
		coalesce((select string_agg(relname, ', ') from pg_class where relnamespace = to_regnamespace(quote_ident($1)) and array_to_string(reloptions, ',') ~* 'autovacuum_enabled=(false|off|0|no)'), ''),
		coalesce((select string_agg(format('%s: %s dead, %s live', relname, n_dead_tup, n_live_tup), '; ') from pg_stat_user_tables where schemaname = $1 and n_dead_tup > $2 and n_dead_tup > n_live_tup), ''),
		coalesce((select format('; process %s of %s has a transaction open for %s', pid, usename, date_trunc('second', now() - xact_start)) from pg_stat_activity
			where xact_start < now() - interval '5 minutes' and backend_xmin is not null order by xact_start limit 1), '')`, x.schema, mostDead).Scan(&off, &dead, &oldest)
	if err != nil {
		return err
	}
	if off != "" {
		x.find(checkVacuum, "autovacuum is off for: "+off+".", "Each commit leaves old rows. Nothing removes them: tables grow and commits get slower.", "alter table ... reset (autovacuum_enabled)")
	}
	if x.Done(checkBloat, strings.TrimPrefix(oldest, "; ")); dead != "" {
		x.find(checkBloat, "Most rows are dead: "+dead+oldest+".", "Reads and commits pass them. Autovacuum cannot remove rows that an open transaction may still see, or it is too slow.",
			"End transactions that are open for long, or raise autovacuum_vacuum_cost_limit.")
	}
	return nil
}

// indexes examines whether all are there.
func (x *examination) indexes(ctx context.Context) error {
	var needed []string
	for _, k := range protocol.Kinds {
		needed = append(needed, rows.Indexes(&k)...)
	}
	var missing string
	err := x.conn.QueryRow(ctx, `select coalesce(string_agg(name, ', '), '') from unnest($2::text[]) name where not exists (
		select from pg_index i join pg_class c on c.oid = i.indexrelid where c.relnamespace = to_regnamespace(quote_ident($1)) and c.relname = name and i.indisvalid)`, x.schema, needed).Scan(&missing)
	if err != nil {
		return err
	}
	if x.Done(checkIndexes, ""); missing != "" {
		x.find(checkIndexes, "Indexes are missing, or not valid: "+missing+".", "Scans read whole tables.", "Drop those that are not valid, and restart an aggregator: it makes what is missing.")
	}
	return nil
}

// adoptions examines whether increments wait for an adoption that has not run.
func (x *examination) adoptions(ctx context.Context) error {
	held, adopted := pgx.Identifier{x.schema, "held"}.Sanitize(), pgx.Identifier{x.schema, "adopted"}.Sanitize()
	var waiting string
	err := x.conn.QueryRow(ctx, `select coalesce(string_agg(format('%s of %s since %s', n, adoption, oldest), ', '), '') from (select h.adoption, count(*) n, date_trunc('second', min(h.at)) oldest
		from `+held+` h where not exists (select from `+adopted+` a where a.adoption = h.adoption) group by 1 having min(h.at) < now() - interval '1 hour') w`).Scan(&waiting)
	if err != nil {
		return err
	}
	if x.Done(checkAdopted, ""); waiting != "" {
		x.find(checkAdopted, "Increments wait for adoptions: "+waiting+".", "No total has them before that.", "Run countmill.adopt with that id, or correct the id where you count.")
	}
	return nil
}
