package datastore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"cloud.google.com/go/auth/credentials"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/protocol"
)

// fixedShards is the number of shards of a new counter if its shards have no tallies to grow by.
const fixedShards = 20

// A Store is an open database. All methods are safe for concurrent use.
type Store struct {
	*protocol.Store
	db *database
}

// Open connects, checks that the database belongs to countmill, and checks that folds work there.
// Without credentials it fails within 5 seconds.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	return open(ctx, cfg, credentials.DetectDefault)
}

func open(ctx context.Context, cfg Config, detect detectFunc) (*Store, error) {
	d, err := dialed(ctx, cfg, protocol.Kinds, detect)
	if err != nil {
		return nil, err
	}
	s := &Store{db: d}
	if err := s.start(ctx); err != nil {
		_ = d.Close()
		return nil, err
	}
	d.checked.Store(d.links.made.Load())
	d.same = func(ctx context.Context) error {
		_, err := s.Check(ctx)
		return err
	}
	d.cfg.Logger.Info("store opened", "store", d.cfg.String(), "id", s.ID(), "emulator", d.cfg.Emulator, "read_only", d.cfg.ReadOnly)
	return s, nil
}

// start waits for a server that is not running yet, or that other starting processes keep busy. It does not wait after a
// refusal.
func (s *Store) start(ctx context.Context) error {
	cfg := &s.db.cfg
	ctx, cancel := context.WithTimeout(ctx, cfg.OpenTimeout)
	defer cancel()
	var last error
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := s.learn(ctx)
		if err == nil || errors.Is(err, store.ErrDeployment) || errors.Is(err, store.ErrRefused) || errors.Is(err, store.ErrNotCounted) {
			return err
		}
		if last == nil || ctx.Err() == nil { // the error before the end of ctx says more
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is not usable within %s: %w", cfg, cfg.OpenTimeout, last)
		case <-time.After(pause):
		}
	}
}

// learn opens the protocols, and then checks that folds work. Only a database of countmill gets entities of the probe.
func (s *Store) learn(ctx context.Context) (err error) {
	cfg := protocol.Config{Window: s.db.cfg.Window, Create: s.db.cfg.Create, Logger: s.db.cfg.Logger}
	if s.Store, err = protocol.Open(ctx, s.db, cfg); err != nil {
		return fmt.Errorf("%s: %w", s.db.cfg, err)
	}
	if s.db.cfg.ReadOnly {
		return nil
	}
	if err := s.db.probe(ctx); err != nil {
		if errors.Is(err, engine.ErrDeployment) {
			err = fmt.Errorf("%w: %w", store.ErrDeployment, err)
		}
		return err
	}
	if s.db.oneOfTwo {
		cfg.Shards = fixedShards
		s.Store, err = protocol.Open(ctx, s.db, cfg)
	}
	return err
}
