package pebble

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// health is the last error of Pebble's background work.
type health struct {
	dir    string
	files  vfs.FS
	log    *slog.Logger
	doom   *doom
	pauses *pauses

	mu                              sync.Mutex
	flush, compact, corrupt, absent error
	absentPath                      string
	refusing                        chan struct{} // is closed when the next flush fails
}

func newHealth(dir string, files vfs.FS, log *slog.Logger, d *doom, p *pauses) *health {
	return &health{dir: dir, files: files, log: log, doom: d, pauses: p, refusing: make(chan struct{})}
}

// refused returns the error of the last flush.
func (h *health) refused() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.explain(h.flush)
}

// refusal returns a channel that is closed when the next flush fails.
func (h *health) refusal() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refusing
}

// unreadable returns an error if a file is damaged or missing.
func (h *health) unreadable() error {
	h.findAbsent()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.explain(h.corrupt, h.absent)
}

// unwritable returns the errors of the last flush and the last compaction.
func (h *health) unwritable() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.explain(h.flush, h.compact)
}

func (h *health) explain(errs ...error) error {
	if err := errors.Join(errs...); err != nil {
		return explain(h.dir, err)
	}
	return nil
}

func (h *health) listener() *pebbledb.EventListener {
	return &pebbledb.EventListener{
		// A failed flush or compaction also reports its error when it ends.
		BackgroundError: func(error) {},
		FlushEnd:        func(info pebbledb.FlushInfo) { h.flushed(info.Err) },
		CompactionEnd: func(info pebbledb.CompactionInfo) {
			if !errors.Is(info.Err, pebbledb.ErrCancelledCompaction) {
				h.pauses.ended(compacting, info.Err)
				h.set(&h.compact, "compaction", info.Err)
			}
		},
		DataCorruption: func(info pebbledb.DataCorruptionInfo) {
			h.corrupted(info.Path, fmt.Errorf("%s: %w", info.Path, info.Details))
		},
		DiskSlow: func(info pebbledb.DiskSlowInfo) {
			h.log.Warn("disk is slow", "path", info.Path, "took", info.Duration, "dir", h.dir)
		},
		// Below 10 % of the disk, which can be plenty. Who opens the store watches FileSystem for too few bytes.
		LowDiskSpace: func(pebbledb.LowDiskSpaceInfo) {},
	}
}

// corrupted records that a file cannot be read. Damage stays until the process ends. A missing file may come
// back, with a directory that was moved for a while.
func (h *health) corrupted(path string, err error) {
	if !errors.Is(err, fs.ErrNotExist) {
		h.set(&h.corrupt, "read", err)
		return
	}
	h.mu.Lock()
	h.absentPath = path
	h.mu.Unlock()
	h.set(&h.absent, "read", err)
}

// findAbsent looks for a file that was missing. Pebble itself tries to open it at each read.
func (h *health) findAbsent() {
	h.mu.Lock()
	path, absent := h.absentPath, h.absent != nil
	h.mu.Unlock()
	if !absent {
		return
	}
	if _, err := h.files.Stat(path); err == nil {
		h.set(&h.absent, "read", nil)
	}
}

// emptyTable is Pebble's text when a flush found nothing to write, as in a directory whose last process
// wrote nothing. Pebble exports no error for it.
const emptyTable = "pebble: empty table"

// flushed ends the process if a flush fails while the store is being opened: Pebble would retry forever
// inside its Open, and only the log would show why.
func (h *health) flushed(err error) {
	if err != nil && err.Error() == emptyTable {
		err = nil
	}
	if err != nil && !h.doom.opened.Load() {
		h.doom.end("flush of the write-ahead log: " + err.Error())
	}
	h.pauses.ended(flushing, err)
	h.set(&h.flush, "flush", err)
	if err != nil {
		h.mu.Lock()
		close(h.refusing)
		h.refusing = make(chan struct{})
		h.mu.Unlock()
	}
}

// set records an error, or its end with nil, and logs each of the two once.
func (h *health) set(field *error, what string, err error) {
	h.mu.Lock()
	before := *field
	*field = err
	h.mu.Unlock()
	switch {
	case before == nil && err != nil:
		h.log.Error("data directory has errors", "dir", h.dir, "during", what, "err", err)
	case before != nil && err == nil:
		h.log.Info("data directory has no more errors", "dir", h.dir, "during", what)
	}
}

// doom ends the process once.
type doom struct {
	dir  string
	log  *slog.Logger
	exit func(code int)
	once sync.Once
	// opened is false while Open runs: most errors are then returned to its caller.
	opened atomic.Bool
}

// end logs one error and does not return.
func (d *doom) end(reason string) {
	d.once.Do(func() {
		d.log.Error("data directory cannot be written: the process ends; nothing acknowledged is lost: free space or repair the disk, then start again",
			"dir", d.dir, "err", reason)
		d.exit(1)
	})
	select {} // another goroutine is ending the process
}

// logger passes Pebble's messages to slog.
type logger struct {
	log  *slog.Logger
	doom *doom
}

var _ pebbledb.Logger = logger{}

func (l logger) Infof(format string, args ...any) { l.say(slog.LevelDebug, format, args...) }

func (l logger) Errorf(format string, args ...any) { l.say(slog.LevelError, format, args...) }

// Fatalf ends the process. Pebble calls it if the write-ahead log or the manifest cannot be written.
func (l logger) Fatalf(format string, args ...any) { l.doom.end(fmt.Sprintf(format, args...)) }

func (l logger) say(level slog.Level, format string, args ...any) {
	if ctx := context.Background(); l.log.Enabled(ctx, level) {
		l.log.LogAttrs(ctx, level, "pebble", slog.String("detail", fmt.Sprintf(format, args...)))
	}
}
