package pebble

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// Folds wait for the disk while so many memtables are not tables yet, or level 0 is so deep: reads slow down earlier, but
// folds should not stop.
//
// Pebble has limits of its own, which are higher and never reached. Its wait has no end while the disk is full, and
// nobody could read meanwhile: a view waits for the commits under way.
const (
	mostMemTables = 4
	mostLevel0    = 64
)

// roomEvery is how often a waiting commit looks for room.
const roomEvery = 10 * time.Millisecond

// awaitRoom waits until Pebble takes a commit at once. Its error means "not applied": the disk refuses tables, or the
// store closes.
func (s *Store) awaitRoom() error {
	for waited := false; ; waited = true {
		if err := s.Writable(); err != nil {
			return err
		}
		if s.hasRoom() {
			return nil
		}
		if !waited {
			s.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "folds wait for the disk", slog.String("dir", s.cfg.Dir))
		}
		select {
		case <-time.After(roomEvery):
		case <-s.ending.Done():
			return notApplied(fmt.Errorf("%w: the store in %s closes", countmill.ErrUnavailable, s.cfg.Dir))
		}
	}
}

// hasRoom asks Pebble only after a quarter of a memtable: Metrics waits while a manifest is written.
func (s *Store) hasRoom() bool {
	if s.unseen.Load() < int64(s.cfg.memTable/4) {
		return true
	}
	m := s.db.Metrics()
	if m.MemTable.Size >= mostMemTables*s.cfg.memTable || m.Levels[0].Sublevels >= mostLevel0 {
		return false
	}
	s.unseen.Store(0)
	return true
}

// Writable returns an error that means "not applied" if the directory is missing, or if the disk refused the last table.
func (s *Store) Writable() error {
	if err := cmp.Or(s.guard.check(), s.health.refused()); err != nil {
		return fmt.Errorf("%w: %w", store.ErrDeployment, err)
	}
	return nil
}
