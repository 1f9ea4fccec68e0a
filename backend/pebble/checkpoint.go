package pebble

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	pebbledb "github.com/cockroachdb/pebble/v2"
	pebblelog "github.com/cockroachdb/pebble/v2/record"
)

// checkpointPrefix begins the names of copies in the data directory, and of the file of an examination. A process
// that is killed leaves them, and the next one removes them.
const checkpointPrefix = "checkpoint-"

// Checkpoint copies the database and calls use with the directory of the copy, while folds go on. The
// copy contains every fold that returned before the call. It may contain folds that ran during the call, each of
// them completely or not at all. It has the database's id and can be opened like it.
//
// The copy is in the data directory and shares tables with it. It is removed when use returns. Until then
// the disk keeps tables that the database does not need any more. ctx bounds the call, and its
// end and Close end the ctx of use. Close waits until use returns.
//
// The memtable is written to a table first, so that the copy has hardly any log: a table is in the next
// copy too.
func (d *directory) Checkpoint(ctx context.Context, use func(ctx context.Context, dir string) error) (err error) {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.closing.RUnlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.ending, cancel)()
	if err := d.flush(ctx); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	dir := d.fs.PathJoin(d.cfg.Dir, checkpointPrefix+strings.ToLower(rand.Text()[:8]))
	defer func() {
		if err := d.fs.RemoveAll(dir); err != nil { // the next start tries again
			d.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "a copy for a backup was not removed", slog.String("dir", dir), slog.Any("err", err))
		}
	}()
	if err := d.copyTo(dir); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return use(ctx, dir)
}

// flush writes the memtable to a table. It gives up when the disk refuses one.
func (d *directory) flush(ctx context.Context) error {
	refused := d.health.refusal() // before the flush can fail
	if err := d.awaitRoom(ctx); err != nil {
		return err
	}
	done, err := d.db.AsyncFlush()
	if err != nil {
		return err
	}
	select {
	case <-done:
		return ctx.Err()
	case <-refused:
		return cmp.Or(d.Writable(), fmt.Errorf("data directory %s: a table was refused, and a later one was not: try again", d.cfg.Dir))
	case <-ctx.Done():
		return ctx.Err()
	}
}

// copyTo makes the copy and checks it.
func (d *directory) copyTo(dir string) (err error) {
	defer func() {
		if r := recover(); r != nil { // Pebble panics if a directory cannot be synced
			err = fmt.Errorf("%v", r)
		}
	}()
	kept := commitCount{d.id, d.commits.synced.Load(), d.moments.newest()}
	if err := d.db.Checkpoint(dir, pebbledb.WithFlushedWAL()); err != nil {
		return err
	}
	if err := writeCommitCount(d.fs, dir, kept); err != nil {
		return err
	}
	if err := markCopy(d.fs, dir); err != nil {
		return err
	}
	if d.cfg.FS == nil {
		if err := trimLogs(dir); err != nil {
			return err
		}
	}
	cfg := d.cfg
	cfg.Dir = dir
	quiet := logger{log: slog.New(slog.DiscardHandler)} // errors come back, and none is fatal for a reader
	opts := options(cfg, d.fs, quiet, &pebbledb.EventListener{DataCorruption: func(pebbledb.DataCorruptionInfo) {}})
	opts.ReadOnly = true
	return look(cfg, *opts) // it has as many commits as were synced, also after the trim
}

// trimLogs cuts off the bytes behind the last record of each log. Pebble writes a new log over an old file,
// whose remainder is as large as a memtable.
func trimLogs(dir string) error {
	logs, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil {
		return err
	}
	for _, name := range logs {
		n, err := strconv.ParseUint(strings.TrimSuffix(filepath.Base(name), ".log"), 10, 64)
		if err != nil {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		end := endOfLog(numbered(pebblelog.NewReader, f, n))
		if err := errors.Join(f.Close(), os.Truncate(name, end)); err != nil {
			return err
		}
	}
	return nil
}

// numbered opens a log by its number, whose type is internal to Pebble.
func numbered[N ~uint64](open func(io.Reader, N) *pebblelog.Reader, from io.Reader, number uint64) *pebblelog.Reader {
	return open(from, N(number))
}

// endOfLog is the end of the last whole record.
func endOfLog(log *pebblelog.Reader) (end int64) {
	for {
		r, err := log.Next()
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		if err != nil {
			return end
		}
		end = log.Offset()
	}
}

// removeCheckpoints removes copies that killed processes have left. The directory must be open.
func (d *directory) removeCheckpoints() error {
	names, err := d.fs.List(d.cfg.Dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if strings.HasPrefix(name, checkpointPrefix) {
			errs = append(errs, d.fs.RemoveAll(d.fs.PathJoin(d.cfg.Dir, name)))
		}
	}
	return errors.Join(errs...)
}
