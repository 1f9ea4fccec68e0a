package datastore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"cloud.google.com/go/auth/credentials"

	"github.com/countmill/countmill/store"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc"

	"github.com/countmill/countmill"
)

const (
	// maxEntities is the most entities of a commit. The documentation no longer gives a number; the
	// last one was 500.
	maxEntities = 400
	// maxKeys is the service's limit for a look-up.
	maxKeys = 1000
	// fixedShards is the number of shards of a new counter if its shards have no tallies to grow by.
	fixedShards = 20
)

// A Store is an open database. All methods are safe for concurrent use.
type Store struct {
	cfg  Config
	conn *grpc.ClientConn
	stub pb.DatastoreClient

	id        string // the database's id, from its meta record
	identity  identity
	untallied bool // shards have no tallies: the server does not support them
	lot       int  // the most entities of a commit by commitLots

	ring    store.Ring
	recent  *recent
	crowded crowded

	links   *links
	checked atomic.Int64 // how many connections there had been at the last check of the database's id

	closed atomic.Bool
	tidied atomic.Int64
}

var _ store.Store = (*Store)(nil)

// Open connects, checks that the database belongs to countmill, and checks that folds work there.
// Without credentials it fails within 5 seconds.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	return open(ctx, cfg, credentials.DetectDefault)
}

func open(ctx context.Context, cfg Config, detect detectFunc) (*Store, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("datastore store: %w", err)
	}
	made := &links{}
	cfg.DialOptions = append(slices.Clip(cfg.DialOptions), grpc.WithStatsHandler(made))
	conn, err := dial(ctx, cfg, detect)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cfg, err)
	}
	s := &Store{cfg: cfg, conn: conn, stub: pb.NewDatastoreClient(conn), lot: maxEntities, links: made, ring: ring, recent: new(recent)}
	if err := s.start(ctx); err != nil {
		_ = s.Close()
		return nil, err
	}
	cfg.Logger.Info("store opened", "store", cfg.String(), "id", s.id, "emulator", cfg.Emulator,
		"read_only", cfg.ReadOnly)
	return s, nil
}

// start reads the state that an open store needs. It waits for a server that is not running yet, or
// that other starting processes keep busy. It does not wait after a refusal.
func (s *Store) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.OpenTimeout)
	defer cancel()
	var last error
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := s.learn(ctx)
		if err == nil || saysNo(err) {
			s.checked.Store(s.links.made.Load())
			return err
		}
		if last == nil || ctx.Err() == nil { // the error before the end of ctx says more
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not usable within %s: %w", s.cfg, s.cfg.OpenTimeout, last)
		case <-time.After(pause):
		}
	}
}

func saysNo(err error) bool {
	return errors.Is(err, store.ErrDeployment) || errors.Is(err, store.ErrRefused) || errors.Is(err, store.ErrNotCounted)
}

func (s *Store) learn(ctx context.Context) error {
	if err := s.readMeta(ctx); err != nil || s.cfg.ReadOnly {
		return err
	}
	return s.probe(ctx)
}

// Limits returns the limits of a commit.
func (s *Store) Limits() store.Limits {
	limits := store.Limits{Entities: maxEntities, Keys: maxKeys, Commits: 4, Shards: 1, ShardRate: 1, Ring: s.ring, Remainders: maxRemainders}
	if s.untallied {
		limits.Shards = fixedShards
	}
	return limits
}

// Keys is the most keys of one Lookup.
func (s *Store) Keys() int { return maxKeys }

// ID identifies this database. No other database has the same id, except copies of it.
func (s *Store) ID() string { return s.id }

// Close ends the connection. Running calls return errors. A second call does nothing.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	if err := s.conn.Close(); err != nil {
		return fmt.Errorf("close %s: %w", s.cfg, err)
	}
	s.cfg.Logger.LogAttrs(context.Background(), slog.LevelInfo, "store closed", slog.String("store", s.cfg.String()))
	return nil
}

// call begins a call and bounds its time. The caller defers cancel. On a new connection, call first
// checks that the same database answers.
func (s *Store) call(ctx context.Context) (_ context.Context, cancel context.CancelFunc, err error) {
	ctx, cancel, err = s.bound(ctx)
	if err != nil {
		return nil, nil, err
	}
	if err := s.recheck(ctx); err != nil {
		cancel()
		return nil, nil, err
	}
	return ctx, cancel, nil
}

func (s *Store) bound(ctx context.Context) (_ context.Context, cancel context.CancelFunc, err error) {
	if s.closed.Load() {
		return nil, nil, fmt.Errorf("%w: the store %s is closed", countmill.ErrUnavailable, s.cfg)
	}
	ctx, cancel = context.WithTimeout(ctx, s.cfg.Timeout)
	return ctx, cancel, nil
}

// write is call, with an error for a store that was opened with ReadOnly.
func (s *Store) write(ctx context.Context) (_ context.Context, cancel context.CancelFunc, err error) {
	if s.cfg.ReadOnly {
		return nil, nil, fmt.Errorf("%w: %s was opened for reading only", store.ErrDeployment, s.cfg)
	}
	return s.call(ctx)
}
