// Package postgres keeps counters in a schema of PostgreSQL 14 or later, which any number of processes share. Package rows
// is its engine.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/postgres/rows"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol"
)

// Config of a store.
type Config struct {
	// URL is one of pgx and libpq, with the parameter schema (default countmill).
	URL string
	// Window is the deduplication window of a new database. Default 8 days.
	Window time.Duration
	// Create allows Open to make the schema. Otherwise it refuses a database without.
	Create bool
	// ReadOnly is for a process without an aggregator: Open writes nothing unless it may create.
	ReadOnly bool
	Logger   *slog.Logger // default none
}

// A Store is a store that other processes have open too. It hides the moments and the past of protocol.Store: PostgreSQL has none.
type Store struct {
	store.Store
	protocol *protocol.Store
	engine   *rows.Engine
	added    string // the table of increments that other programs add
	release  string // the statement that moves those of adoptions there
	now      func() time.Time
}

// Params are the parameters that a URL may have: schema, and some of those of pgx. A password is none of them, because messages
// show parameters.
var Params = []string{
	"schema", "host", "port", "user", "passfile", "service", "servicefile", "connect_timeout", "application_name", "target_session_attrs", "require_auth", "channel_binding",
	"sslmode", "sslcert", "sslkey", "sslrootcert", "sslnegotiation", "sslsni", "pool_max_conns", "pool_max_conn_lifetime", "pool_max_conn_idle_time",
}

// CheckURL refuses a text that cannot be a URL. Its error shows nothing of it, because it may have a password.
func CheckURL(text string) error {
	if u, err := url.Parse(text); err != nil || u.Opaque != "" || u.Host == "" && u.Path == "" {
		return errors.New("not of the form postgres://[USER@]HOST[:PORT]/DATABASE; in the password, write %40 for @ and %2F for /; of several hosts the last needs a port if any has one")
	}
	return nil
}

const connectTimeout = 5 * time.Second

// parse returns how to connect to the database of a URL, and the schema. Its errors do not show the password.
func parse(text string) (config *pgxpool.Config, schema string, err error) {
	if err := CheckURL(text); err != nil {
		return nil, "", err
	}
	u, _ := url.Parse(text)
	query := u.Query()
	schema = cmp.Or(query.Get("schema"), "countmill")
	query.Del("schema")
	u.RawQuery = query.Encode()
	if config, err = pgxpool.ParseConfig(u.String()); err != nil {
		return nil, "", err
	}
	// The limit is of each server. Otherwise a server that does not answer would hold a place in the pool for two minutes, and callers would not reach the next server.
	config.ConnConfig.ConnectTimeout = cmp.Or(config.ConnConfig.ConnectTimeout, connectTimeout)
	if !query.Has("pool_max_conns") {
		config.MaxConns = 16
	}
	return config, schema, nil
}

// Open opens the store.
func Open(ctx context.Context, c Config) (*Store, error) {
	config, schema, err := parse(c.URL)
	if err != nil {
		return nil, err
	}
	e, err := rows.Open(ctx, config, schema, protocol.Kinds, rows.Options{Create: c.Create, ReadOnly: c.ReadOnly, Also: adding(schema), Taken: addedTable})
	if err != nil {
		return nil, err
	}
	s, err := protocol.Open(ctx, e, protocol.Config{Window: c.Window, Create: c.Create, Logger: c.Logger})
	if err != nil {
		_ = e.Close() // the first error is the reason
		return nil, err
	}
	return &Store{s, s, e, pgx.Identifier{schema, addedTable}.Sanitize(), releasing(schema), time.Now}, nil
}

// ID identifies the database. Copies of it have the same.
func (s *Store) ID() string { return s.protocol.ID() }

// Pool counts the connections.
func (s *Store) Pool() backend.PoolStats {
	p := s.engine.Pool().Stat()
	return backend.PoolStats{Used: int64(p.AcquiredConns()), Idle: int64(p.IdleConns()), Most: int64(p.MaxConns()), Waits: p.EmptyAcquireCount()}
}

// Restored is when the last Check found the database on another server, or restored; zero for never.
func (s *Store) Restored() time.Time { return s.engine.Restored() }

// mostOff is the difference of two clocks from which one of them may be years off.
const mostOff = time.Hour

// Sweep removes for good, as the next two do, so the clocks of the database and of this machine have to agree: after a moment in 2040 all later increments
// would be too old.
func (s *Store) Sweep(ctx context.Context) error { return s.sweep(ctx, s.protocol.Sweep) }

// SweepSeries is Sweep for series.
func (s *Store) SweepSeries(ctx context.Context) error { return s.sweep(ctx, s.protocol.SweepSeries) }

// SweepCounters is Sweep for deleted counters.
func (s *Store) SweepCounters(ctx context.Context, after time.Duration) (removed int, err error) {
	err = s.sweep(ctx, func(ctx context.Context) (err error) {
		removed, err = s.protocol.SweepCounters(ctx, after)
		return err
	})
	return removed, err
}

func (s *Store) sweep(ctx context.Context, do func(context.Context) error) error {
	checked, err := s.protocol.Check(ctx)
	if err != nil {
		return err
	}
	if off := checked.At.Sub(s.now()).Abs(); off > mostOff {
		return fmt.Errorf("postgres: the clocks of the database and of this machine differ by %s (limit: %s): nothing is removed", off.Round(time.Second), mostOff)
	}
	return do(ctx)
}
