package pebble

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/wire"
)

// What was folded before a backup is in it, what is folded beside it is there whole or not
// at all, and the copy is the same database.
func TestBackupUnderLoad(t *testing.T) {
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
				c := &aggregator.Commit{Markers: m, Adds: []aggregator.Add{add("a", 0, 1), add("b", 0, -1)}}
				if c.Adds[0].Hash > c.Adds[1].Hash {
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
		b := taken{dir: filepath.Join(t.TempDir(), "copy"), min: acked.Load()}
		if err := s.Backup(t.Context(), b.dir); err != nil {
			t.Fatal(err)
		}
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
		if found := applied(t, copied, ids); found != got {
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

func applied(t *testing.T, s *Store, ids []wire.PartID) (n int64) {
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

func TestBackupRefusesDirectory(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	full, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := errors.Join(os.WriteFile(filepath.Join(full, "thesis.txt"), nil, 0o600), os.Symlink(s.cfg.Dir, link)); err != nil {
		t.Fatal(err)
	}
	for dir, says := range map[string]string{
		"copy":                            "from the root",
		full:                              `holds "thesis.txt"`,
		filepath.Join(full, "thesis.txt"): "cannot take a backup",
		filepath.Join(full, "no", "copy"): "is not there",
		filepath.Join(s.cfg.Dir, "copy"):  "in the data directory",
		filepath.Join(link, "copy"):       "in the data directory",
		s.cfg.Dir:                         "cannot take a backup",
		filepath.Join(full, strings.Repeat("x", 300)): "cannot take a backup",
	} {
		err := s.Backup(t.Context(), dir)
		if !errors.Is(err, ErrBackupDir) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got error %v, want one that says %q", dir, err, says)
		}
	}
	empty := t.TempDir()
	if err := s.Backup(t.Context(), empty); err != nil {
		t.Errorf("an empty directory: %v", err)
	}
}

// A backup that fails, or that nobody waits for, leaves nothing, and the next one works.
func TestBackupLeavesNothingHalf(t *testing.T) {
	t.Parallel()
	dir, to := t.TempDir(), t.TempDir()
	var fail, hang atomic.Bool
	release, hung := make(chan struct{}), make(chan struct{}, 1)
	files := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !strings.HasPrefix(op.Path, to) || !strings.Contains(op.Path, "OPTIONS") || op.Kind != errorfs.OpCreate {
			return nil
		}
		if hang.Swap(false) {
			hung <- struct{}{}
			<-release
		}
		if fail.Swap(false) {
			return errors.New("drawn")
		}
		return nil
	}))
	s := open(t, Config{Dir: dir, FS: files})
	fold(t, s, nil, "a", 7)
	copied := filepath.Join(to, "copy")
	left := func() int {
		names, err := os.ReadDir(to)
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	fail.Store(true)
	if err := s.Backup(t.Context(), copied); err == nil || !strings.Contains(err.Error(), copied) || left() != 0 {
		t.Errorf("got error %v and %d files, want one that names the directory, and none", err, left())
	}
	hang.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Backup(ctx, copied) }()
	<-hung
	if err := s.Backup(t.Context(), filepath.Join(to, "other")); !errors.Is(err, ErrBackupBusy) {
		t.Errorf("a second backup: got %v, want ErrBackupBusy", err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	close(release)
	waitFor(t, "nothing is left", func() bool { return len(s.backing) == 0 })
	if left() != 0 {
		t.Errorf("%d files are left", left())
	}
	if err := s.Backup(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	if got := total(t, open(t, Config{Dir: copied}), "a"); got != 7 {
		t.Errorf("restored: got %d, want 7", got)
	}
}

// The disk of the backup is full, whatever is written there: there is no backup, and the
// store goes on.
func TestBackupToAFullDisk(t *testing.T) {
	t.Parallel()
	to := t.TempDir()
	var refuse errorfs.OpKind
	var suffix string
	var full, hit atomic.Bool
	files := errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && strings.HasPrefix(op.Path, to) && op.Kind == refuse && strings.HasSuffix(op.Path, suffix) {
			hit.Store(true)
			return &os.PathError{Op: "write", Path: op.Path, Err: syscall.ENOSPC}
		}
		return nil
	}))
	s := open(t, Config{Dir: t.TempDir(), FS: files, Exit: func(int) { panic("the process ends") }})
	for n, c := range []struct {
		kind   errorfs.OpKind
		suffix string
	}{{errorfs.OpCreate, ".log"}, {errorfs.OpFileWrite, ".log"}, {errorfs.OpFileSync, ""}, {errorfs.OpFileWrite, sealTemp}, {errorfs.OpCreate, ""}, {errorfs.OpRename, ""}} {
		fold(t, s, nil, "a", 1)
		refuse, suffix = c.kind, c.suffix
		hit.Store(false)
		full.Store(true)
		err := s.Backup(t.Context(), filepath.Join(to, "copy"))
		full.Store(false)
		if err == nil || !strings.Contains(err.Error(), "no space left") || !hit.Load() {
			t.Errorf("operation %d on %q: got %v (hit: %t), want one that says that there is no space", c.kind, c.suffix, err, hit.Load())
		}
		if left, err := os.ReadDir(to); err != nil || len(left) > 0 {
			t.Errorf("operation %d on %q: %v are left, %v", c.kind, c.suffix, left, err)
		}
		if got := total(t, s, "a"); got != int64(n+1) {
			t.Errorf("the store has %d, want %d", got, n+1)
		}
	}
}
