package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A copy contains every fold that returned before it, and each concurrent fold completely or not at
// all. It is the same database.
func TestCheckpointUnderLoad(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir(), memTable: 64 << 10, Cache: 1 << 20})
	var acked, begun atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	marks := make([][]wire.PartID, 4)
	for worker := range marks {
		load.Go(func() {
			for ctx.Err() == nil {
				begun.Add(1)
				m := marker(time.Now())
				c := &store.Commit{Markers: m, Adds: []store.ShardDelta{addTo("a", 0, 1), addTo("b", 0, -1)}}
				if c.Adds[0].Order > c.Adds[1].Order {
					c.Adds[0], c.Adds[1] = c.Adds[1], c.Adds[0]
				}
				if _, err := s.Fold(context.WithoutCancel(ctx), c); err != nil {
					t.Error(err)
					return
				}
				marks[worker] = append(marks[worker], m[0].ID)
				acked.Add(1)
			}
		})
	}
	type taken struct {
		dir      string
		min, max int64
	}
	var backups []taken
	for n := range 5 {
		waitFor(t, "some folds", func() bool { return acked.Load() > int64(n*100) })
		b := taken{min: acked.Load()}
		b.dir = copyOf(t, s)
		b.max = begun.Load()
		backups = append(backups, b)
	}
	cancel()
	load.Wait()
	var ids []wire.PartID
	for _, m := range marks {
		ids = append(ids, m...)
	}
	for _, b := range backups {
		copied := open(t, Config{Dir: b.dir, Cache: 1 << 20})
		got := total(t, copied, "a")
		if got < b.min || got > b.max || total(t, copied, "b") != -got {
			t.Errorf("restored: a is %d and b %d, want %d to %d and the same below 0", got, total(t, copied, "b"), b.min, b.max)
		}
		if found := countApplied(t, copied, ids); found != got {
			t.Errorf("restored: %d markers for %d folds", found, got)
		}
		if copied.ID() != s.ID() {
			t.Errorf("restored: database %s, want %s", copied.ID(), s.ID())
		}
		fold(t, copied, marker(time.Now()), "a", 1)
		if again := total(t, copied, "a"); again != got+1 {
			t.Errorf("restored and folded: got %d, want %d", again, got+1)
		}
	}
}

func countApplied(t *testing.T, s *Store, ids []wire.PartID) (n int64) {
	t.Helper()
	for ; len(ids) > 0; ids = ids[min(len(ids), maxKeys):] {
		found, err := s.Applied(t.Context(), ids[:min(len(ids), maxKeys)])
		if err != nil {
			t.Fatal(err)
		}
		n += int64(len(found))
	}
	return n
}

// copyOf returns a directory with what Checkpoint shows.
func copyOf(t *testing.T, s *Store) string {
	t.Helper()
	to := t.TempDir()
	err := s.Checkpoint(t.Context(), func(_ context.Context, dir string) error { return os.CopyFS(to, os.DirFS(dir)) })
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// checkpoints are the copies in the data directory.
func checkpoints(t *testing.T, dir string) (found []string) {
	t.Helper()
	for _, name := range names(t, dir) {
		if strings.HasPrefix(name, checkpointPrefix) {
			found = append(found, name)
		}
	}
	return found
}

// A second copy shares the tables of the first, and has no more log than the folds in between: the
// tables have everything older.
func TestCheckpointSharesTables(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	for n := range 200 {
		fold(t, s, marker(time.Now()), fmt.Sprintf("counter-%d", n), 1)
	}
	first, second := copyOf(t, s), copyOf(t, s)
	tables, others := 0, int64(0)
	for _, name := range names(t, second) {
		info, err := os.Stat(filepath.Join(second, name))
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(name) != ".sst" {
			others += info.Size()
			continue
		}
		tables++
		got, err := os.ReadFile(filepath.Join(second, name))
		if err != nil {
			t.Fatal(err)
		}
		if want, err := os.ReadFile(filepath.Join(first, name)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not in the first copy, or has other content there: %v", name, err)
		}
	}
	if tables == 0 || others > 16<<10 {
		t.Errorf("got %d tables and %d other bytes, want some tables and little else", tables, others)
	}
}

// A copy goes with the process: Close ends its user, a killed process leaves a copy that the next one removes.
func TestCheckpointEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	using, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- s.Checkpoint(t.Context(), func(ctx context.Context, _ string) error {
			close(using)
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	<-using
	if left := checkpoints(t, dir); len(left) != 1 {
		t.Errorf("got copies %q, want one", left)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the end of the context", err)
	}
	if err := s.Checkpoint(t.Context(), nil); !errors.Is(err, countmill.ErrUnavailable) {
		t.Errorf("closed: got %v", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, checkpointPrefix+"x", "y"), 0o700); err != nil {
		t.Fatal(err)
	}
	open(t, Config{Dir: dir})
	if left := checkpoints(t, dir); len(left) > 0 {
		t.Errorf("%q are left", left)
	}
}

// Only its owner can read a copy, even if it shares files with a directory that an earlier version has
// made.
func TestCheckpointIsPrivate(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no file modes")
	}
	data := t.TempDir()
	s := open(t, Config{Dir: data})
	fold(t, s, marker(time.Now().Add(time.Hour)), "a", 1)
	if err := s.db.Flush(); err != nil {
		t.Fatal(err)
	}
	tables, err := filepath.Glob(filepath.Join(data, "*.sst"))
	if err != nil || len(tables) == 0 {
		t.Fatalf("no tables to share: %v", err)
	}
	if err := os.Chmod(tables[0], 0o644); err != nil {
		t.Fatal(err)
	}
	fold(t, s, nil, "a", 1)
	err = s.Checkpoint(t.Context(), func(context.Context, string) error {
		return filepath.Walk(data, func(path string, info os.FileInfo, err error) error {
			if path == data {
				return err // the operator may have made it
			}
			return checkPrivate(path, info, err)
		})
	})
	if err != nil {
		t.Error(err)
	}
}

func checkPrivate(path string, info os.FileInfo, err error) error {
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		err = fmt.Errorf("%s: its mode is %o", path, info.Mode().Perm())
	}
	return err
}

// A copy that cannot be made, because its disk refuses a file or its caller goes away, leaves no files.
// The store continues.
func TestCheckpointLeavesNothingHalf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var refuse errorfs.OpKind
	var suffix string
	var full, hit atomic.Bool
	files := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && strings.Contains(op.Path, checkpointPrefix) && op.Kind == refuse && strings.HasSuffix(op.Path, suffix) {
			hit.Store(true)
			return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
		}
		return nil
	}))
	s := open(t, Config{Dir: dir, FS: files, Exit: func(int) { panic("the process ends") }})
	for n, c := range []struct {
		kind   errorfs.OpKind
		suffix string
	}{{errorfs.OpCreate, ".log"}, {errorfs.OpFileWrite, ".log"}, {errorfs.OpFileSync, ""}, {errorfs.OpFileWrite, commitCountTemp}, {errorfs.OpCreate, ""}, {errorfs.OpRename, ""}} {
		fold(t, s, nil, "a", 1)
		refuse, suffix = c.kind, c.suffix
		hit.Store(false)
		full.Store(true)
		err := s.Checkpoint(t.Context(), func(context.Context, string) error { return nil })
		full.Store(false)
		if err == nil || !strings.Contains(err.Error(), "no space left") || !hit.Load() {
			t.Errorf("operation %d on %q: got %v (hit: %t), want one about the missing space", c.kind, c.suffix, err, hit.Load())
		}
		if left := checkpoints(t, dir); len(left) > 0 {
			t.Errorf("operation %d on %q: %v are left", c.kind, c.suffix, left)
		}
		if got := total(t, s, "a"); got != int64(n+1) {
			t.Errorf("the store has %d, want %d", got, n+1)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Checkpoint(ctx, nil); !errors.Is(err, context.Canceled) || len(checkpoints(t, dir)) > 0 {
		t.Errorf("cancelled: got %v and %q", err, checkpoints(t, dir))
	}
	drawn := errors.New("drawn")
	if err := s.Checkpoint(t.Context(), func(context.Context, string) error { return drawn }); !errors.Is(err, drawn) || len(checkpoints(t, dir)) > 0 {
		t.Errorf("a user that fails: got %v and %q", err, checkpoints(t, dir))
	}
	if got := total(t, open(t, Config{Dir: copyOf(t, s)}), "a"); got != 6 {
		t.Errorf("restored: got %d, want 6", got)
	}
}
