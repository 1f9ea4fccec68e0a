package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/countmill/countmill"
)

// A directory is an open data directory with everything that keeps it safe. All methods are safe for concurrent use.
type directory struct {
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

// Dir is Config.Dir.
func (d *directory) Dir() string { return d.cfg.Dir }

// kept writes the commit count now and then. Its error means that the disk refuses that, or tables.
func (d *directory) kept() error {
	if err := d.health.unwritable(); err != nil {
		return err
	}
	d.commits.mu.Lock()
	soon := time.Since(d.commits.at) < commitCountEvery
	d.commits.mu.Unlock()
	if soon {
		return nil
	}
	return d.keepCommitCount()
}

// enter begins a call that uses the database, and never waits: a Close may wait for the disk. The caller defers
// d.closing.RUnlock.
func (d *directory) enter() error {
	if d.closing.TryRLock() {
		if !d.closed {
			return nil
		}
		d.closing.RUnlock()
	}
	return fmt.Errorf("%w: the store in %s is closed", countmill.ErrUnavailable, d.cfg.Dir)
}

// closeAfter waits for running calls, calls last, and releases the directory. A second call does nothing.
func (d *directory) closeAfter(last func()) error {
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
func (d *directory) FileSystem() (free, size uint64, err error) {
	usage, err := d.fs.GetDiskUsage(d.cfg.Dir)
	return usage.AvailBytes, usage.TotalBytes, err
}

// DiskUsage returns the bytes that the directory uses on disk, or 0 when it is closed.
func (d *directory) DiskUsage() uint64 {
	if d.enter() != nil {
		return 0
	}
	defer d.closing.RUnlock()
	return d.db.Metrics().DiskSpaceUsage()
}

// Written returns the bytes written to logs and to tables since the directory was opened, or 0 when it is closed.
func (d *directory) Written() (logs, tables uint64) {
	if d.enter() != nil {
		return 0, 0
	}
	defer d.closing.RUnlock()
	m := d.db.Metrics()
	for i := range m.Levels {
		tables += m.Levels[i].TableBytesFlushed + m.Levels[i].TableBytesCompacted
	}
	return m.WAL.BytesWritten, tables
}
