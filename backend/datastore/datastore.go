package datastore

import (
	"context"
	"errors"
	"fmt"

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
	d, err := openDatabase(ctx, cfg, protocol.Kinds, detect)
	if errors.Is(err, engine.ErrDeployment) {
		err = fmt.Errorf("%w: %w", store.ErrDeployment, err)
	}
	if err != nil {
		return nil, err
	}
	cfg = d.cfg
	p := protocol.Config{Window: cfg.Window, Logger: cfg.Logger}
	if d.oneOfTwo {
		p.Shards = fixedShards
	}
	s := &Store{db: d}
	if s.Store, err = protocol.Open(ctx, d, p); err != nil {
		_ = d.Close()
		return nil, err
	}
	cfg.Logger.Info("store opened", "store", cfg.String(), "id", d.id, "emulator", cfg.Emulator, "read_only", cfg.ReadOnly)
	return s, nil
}

// ID identifies this database. No other database has the same id, except copies of it.
func (s *Store) ID() string { return s.db.id }
