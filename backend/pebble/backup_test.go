package pebble

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A backup contains every fold that returned before it, and each concurrent fold completely or not at
// all. The copy is the same database.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s := open(t, Config{Dir: t.TempDir(), BackupRoot: root, memTable: 64 << 10, Cache: 1 << 20})
	var acked, begun atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	marks := make([][]wire.PartID, 4)
	for worker := range marks {
		load.Go(func() {
			for ctx.Err() == nil {
				begun.Add(1)
				m := marker(time.Now())
				c := &store.Commit{Markers: m, Adds: []store.ShardDelta{add("a", 0, 1), add("b", 0, -1)}}
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
		b := taken{dir: filepath.Join(root, fmt.Sprint(n)), min: acked.Load()}
		backup(t, s, b.dir)
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

func backup(t *testing.T, s *Store, to string) {
	t.Helper()
	if _, err := s.Backup(t.Context(), to); err != nil {
		t.Fatal(err)
	}
}

func TestBackupRefusesDirectory(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	root, outside := filepath.Join(at, "root"), filepath.Join(at, "outside")
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(root, "full"), 0o700), os.MkdirAll(filepath.Join(outside, "empty"), 0o700),
		os.WriteFile(filepath.Join(root, "full", "thesis.txt"), nil, 0o600), os.WriteFile(filepath.Join(outside, "secret.txt"), nil, 0o600),
		os.Symlink(filepath.Join(outside, "empty"), filepath.Join(root, "link")), os.Symlink(outside, filepath.Join(root, "to")),
		os.Symlink("/nowhere", filepath.Join(root, "dangling")))
	s := open(t, Config{Dir: filepath.Join(root, "data"), BackupRoot: root})
	for to, says := range map[string]string{
		"":                                     "name a directory below " + root,
		".":                                    "name a directory below",
		root:                                   "name a directory below",
		"/":                                    "it is not below " + root,
		"..":                                   "it is not below",
		"../root":                              "it is not below",
		"../outside":                           "it is not below",
		"a/../../outside/empty":                "it is not below",
		outside:                                "it is not below",
		root + "2":                             "it is not below",
		filepath.Join(outside, "secret.txt"):   "it is not below",
		root + "/../outside/secret.txt":        "it is not below",
		"link":                                 "link is a symbolic link",
		filepath.Join(root, "link"):            "link is a symbolic link",
		"link/copy":                            "link is a symbolic link",
		"to/empty":                             "to is a symbolic link",
		"to/secret.txt":                        "to is a symbolic link",
		"dangling":                             "dangling is a symbolic link",
		"full":                                 "it is not empty",
		"full/thesis.txt":                      "full/thesis.txt is not a directory",
		"full/thesis.txt/copy":                 "full/thesis.txt is not a directory",
		"no/copy":                              "no does not exist: make it",
		"data":                                 "in the data directory",
		"data/copy":                            "in the data directory",
		"full/" + strings.Repeat("x", 300):     "file name too long",
		filepath.Join(root, "full", "..", "."): "name a directory below",
	} {
		_, err := s.Backup(t.Context(), to)
		if !errors.Is(err, ErrBackupDir) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got error %v, want one with %q", to, err, says)
			continue
		}
		_, shown, _ := strings.Cut(err.Error(), ErrBackupDir.Error()) // the text before it quotes the request
		if strings.Contains(shown, "secret") || strings.Contains(shown, "outside") {
			t.Errorf("%s: %q names a file outside the root", to, err)
		}
	}
	if names := names(t, root); !slices.Equal(names, []string{"dangling", "data", "full", "link", "to"}) {
		t.Errorf("refusals left %q", names)
	}
	for to, want := range map[string]string{"new": "new", filepath.Join(root, "full", "..", "other"): "other", "full/../third/": "third"} {
		if dir, err := s.Backup(t.Context(), to); err != nil || dir != filepath.Join(root, want) {
			t.Errorf("%s: got %s, %v", to, dir, err)
		}
	}
	must(os.Mkdir(filepath.Join(root, "empty"), 0o755))
	backup(t, s, "empty")
	if _, err := open(t, Config{Dir: t.TempDir()}).Backup(t.Context(), filepath.Join(root, "x")); !errors.Is(err, ErrNoBackupRoot) {
		t.Errorf("without a root: got %v, want ErrNoBackupRoot", err)
	}
	if _, err := open(t, Config{Dir: t.TempDir(), BackupRoot: filepath.Join(at, "no")}).Backup(t.Context(), "x"); !errors.Is(err, ErrBackupDir) || !strings.Contains(err.Error(), "no is not a directory: make it, or mount it") {
		t.Errorf("with a missing root: got %v", err)
	}
}

// Only its owner can read a backup, even if it shares files with a directory that an earlier version
// has made.
func TestBackupIsPrivate(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no file modes")
	}
	root, data := t.TempDir(), t.TempDir()
	s := open(t, Config{Dir: data, BackupRoot: root})
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
	backup(t, s, "copy")
	fold(t, s, nil, "a", 1)
	err = errors.Join(filepath.Walk(filepath.Join(root, "copy"), checkPrivate), filepath.Walk(data, func(path string, info os.FileInfo, err error) error {
		if path == data {
			return err // the operator may have made it
		}
		return checkPrivate(path, info, err)
	}))
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

// A backup that fails, or whose caller goes away, leaves no files, and the next one works.
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
	s := open(t, Config{Dir: dir, BackupRoot: to, FS: files})
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
	if _, err := s.Backup(t.Context(), copied); err == nil || !strings.Contains(err.Error(), copied) || left() != 0 {
		t.Errorf("got error %v and %d files, want an error that names the directory, and no files", err, left())
	}
	hang.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { _, err := s.Backup(ctx, copied); ended <- err }()
	<-hung
	if _, err := s.Backup(t.Context(), filepath.Join(to, "other")); !errors.Is(err, ErrBackupBusy) {
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
	backup(t, s, copied)
	if got := total(t, open(t, Config{Dir: copied}), "a"); got != 7 {
		t.Errorf("restored: got %d, want 7", got)
	}
}

// Backup fails if its disk is full, at any file that it writes. The store continues.
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
	s := open(t, Config{Dir: t.TempDir(), BackupRoot: to, FS: files, Exit: func(int) { panic("the process ends") }})
	for n, c := range []struct {
		kind   errorfs.OpKind
		suffix string
	}{{errorfs.OpCreate, ".log"}, {errorfs.OpFileWrite, ".log"}, {errorfs.OpFileSync, ""}, {errorfs.OpFileWrite, commitCountTemp}, {errorfs.OpCreate, ""}, {errorfs.OpRename, ""}} {
		fold(t, s, nil, "a", 1)
		refuse, suffix = c.kind, c.suffix
		hit.Store(false)
		full.Store(true)
		_, err := s.Backup(t.Context(), filepath.Join(to, "copy"))
		full.Store(false)
		if err == nil || !strings.Contains(err.Error(), "no space left") || !hit.Load() {
			t.Errorf("operation %d on %q: got %v (hit: %t), want one about the missing space", c.kind, c.suffix, err, hit.Load())
		}
		if left, err := os.ReadDir(to); err != nil || len(left) > 0 {
			t.Errorf("operation %d on %q: %v are left, %v", c.kind, c.suffix, left, err)
		}
		if got := total(t, s, "a"); got != int64(n+1) {
			t.Errorf("the store has %d, want %d", got, n+1)
		}
	}
}
