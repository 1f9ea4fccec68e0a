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

// awaitRoom waits until Pebble takes a commit at once. Its error means "not applied": the disk refuses tables, the
// store closes, or ctx ends.
func (d *directory) awaitRoom(ctx context.Context) error {
	for waited := false; ; waited = true {
		if err := d.Writable(); err != nil {
			return err
		}
		if d.hasRoom() {
			return nil
		}
		if !waited {
			d.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "folds wait for the disk", slog.String("dir", d.cfg.Dir))
		}
		select {
		case <-time.After(roomEvery):
		case <-ctx.Done():
			return ctx.Err()
		case <-d.ending.Done():
			return fmt.Errorf("%w: %w: the store in %s closes", store.ErrNotApplied, countmill.ErrUnavailable, d.cfg.Dir)
		}
	}
}

// hasRoom asks Pebble only after a quarter of a memtable: Metrics waits while a manifest is written.
func (d *directory) hasRoom() bool {
	if d.unseen.Load() < int64(d.cfg.memTable/4) {
		return true
	}
	m := d.db.Metrics()
	if m.MemTable.Size >= mostMemTables*d.cfg.memTable || m.Levels[0].Sublevels >= mostLevel0 {
		return false
	}
	d.unseen.Store(0)
	return true
}

// Writable returns an error that means "not applied" if the directory is missing, or if the disk refused the last table.
func (d *directory) Writable() error {
	if err := cmp.Or(d.guard.check(), d.health.refused()); err != nil {
		return fmt.Errorf("%w: %w", store.ErrDeployment, err)
	}
	return nil
}
