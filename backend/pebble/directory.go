package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/countmill/countmill"
)

// A Form is what the keys and values of a directory mean. A directory is opened with its own form only.
type Form struct {
	Number int // rises with each new form
	merger *pebbledb.Merger
}

// NewForm returns a form with its merge operator. The name and the number are stored.
func NewForm(number int, name string, merge func(key, value []byte) (pebbledb.ValueMerger, error)) Form {
	return Form{number, newMerger(name, merge)}
}

// hasSettings reports whether the meta record has the settings.
func (f Form) hasSettings() bool { return f.Number == format }

// A Directory is an open data directory with everything that keeps it safe, whatever its form. All methods are safe for
// concurrent use.
type Directory struct {
	cfg    Config
	db     *pebbledb.DB
	id     string // the database's id, from its meta record
	fs     vfs.FS
	guard  *guard // nil with Config.FS
	health *health
	files  io.Closer // stops the disk watcher

	// closing is held for reading by every call that uses db.
	closing sync.RWMutex
	closed  bool
	ending  context.Context // ends when Close is called
	end     context.CancelFunc

	commits  commits
	unseen   atomic.Int64 // bytes of commits since hasRoom asked Pebble
	moments  moments
	syncs    syncs
	restores int64 // how often the directory was restored; see copy.go
}

type directory = Directory

// DB is the database.
func (d *Directory) DB() *pebbledb.DB { return d.db }

// Dir is Config.Dir.
func (d *Directory) Dir() string { return d.cfg.Dir }

// ID identifies this database. No other database has the same id, except copies and backups of it.
func (d *Directory) ID() string { return d.id }

// Restores is how often the directory was restored from a backup.
func (d *Directory) Restores() int64 { return d.restores }

// Readable returns an error if the directory was removed or replaced, or has damaged files.
func (d *Directory) Readable() error {
	if err := d.guard.check(); err != nil {
		return err
	}
	return d.health.unreadable()
}

// Kept writes the commit count now and then. Its error means that the disk refuses that, or tables.
func (d *Directory) Kept() error {
	if err := d.health.unwritable(); err != nil {
		return err
	}
	return d.keepCommitCountNowAndThen()
}

// UnderWay returns the commits that are visible and perhaps not synced. Settled waits for them.
func (d *Directory) UnderWay() []chan struct{} { return d.syncs.underWay() }

// Settled waits until those commits are synced. If ctx ends first, it returns the rest.
func (d *Directory) Settled(ctx context.Context, open []chan struct{}) ([]chan struct{}, error) {
	return settled(ctx, open)
}

// Enter begins a call that uses the database, and never waits. The caller calls Leave at its end.
func (d *Directory) Enter() error { return d.enter() }

// Leave ends a call that uses the database.
func (d *Directory) Leave() { d.closing.RUnlock() }

// enter begins a call that uses the database, and never waits: a Close may wait for the disk. The caller defers
// d.closing.RUnlock.
func (d *Directory) enter() error {
	if d.closing.TryRLock() {
		if !d.closed {
			return nil
		}
		d.closing.RUnlock()
	}
	return fmt.Errorf("%w: the store in %s is closed", countmill.ErrUnavailable, d.cfg.Dir)
}

// CloseAfter waits for running calls, calls last, and releases the directory. A second call does nothing.
func (d *Directory) CloseAfter(last func()) error {
	d.end()
	d.guard.end()
	d.closing.Lock()
	defer d.closing.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	last()
	if err := d.keepCommitCount(); err != nil { // an older count loses no data
		d.cfg.Logger.Warn("commit count was not written: the loss of the last commits would not be noticed", "dir", d.cfg.Dir, "err", err)
	}
	if err := errors.Join(d.db.Close(), d.files.Close()); err != nil {
		return fmt.Errorf("close %s: %w", d.cfg.Dir, err)
	}
	d.cfg.Logger.Info("store closed", "dir", d.cfg.Dir)
	return nil
}

// FileSystem returns the free bytes of the directory's file system, and its size in bytes.
func (d *Directory) FileSystem() (free, size uint64, err error) {
	usage, err := d.fs.GetDiskUsage(d.cfg.Dir)
	return usage.AvailBytes, usage.TotalBytes, err
}

// DiskUsage returns the bytes that the directory uses on disk, or 0 when it is closed.
func (d *Directory) DiskUsage() uint64 {
	if d.enter() != nil {
		return 0
	}
	defer d.closing.RUnlock()
	return d.db.Metrics().DiskSpaceUsage()
}
