package pebble

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/store"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// wantRefused opens a directory and wants an error that names the directory and the remedy.
func wantRefused(t *testing.T, cfg Config, says ...string) {
	t.Helper()
	s, err := Open(cfg)
	if err == nil {
		_ = s.Close()
		t.Fatalf("Open of %s: got no error, want one with %q", cfg.Dir, says)
	}
	for _, say := range append(says, cfg.Dir) {
		if !strings.Contains(err.Error(), say) {
			t.Errorf("Open: got %q, which does not say %q", err, say)
		}
	}
}

func TestOpenRefusesBadConfig(t *testing.T) {
	t.Parallel()
	wantRefused(t, Config{Namespace: strings.Repeat("x", 101), Cache: -1}, "Dir is empty", "Namespace must be", "Cache must not")
}

func TestOpenRefusesFileInTheWay(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, Config{Dir: file}, "a file has that name")
	wantRefused(t, Config{Dir: filepath.Join(file, "below")}, "a file has that name")
}

// errorfs returns the errors that a test as root would never see.
func TestOpenExplainsTheFileSystem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		says string
	}{{syscall.EROFS, "cannot be written"}, {syscall.EACCES, "cannot be written"}, {syscall.ENOSPC, "full disk"}, {syscall.EDQUOT, "full disk"}} {
		files := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpLock {
				return &os.PathError{Op: "open", Path: op.Path, Err: c.err}
			}
			return nil
		}))
		wantRefused(t, Config{Dir: "/data", FS: files}, c.says)
	}
}

func TestOpenRefusesForeignFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "thesis.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, Config{Dir: dir}, "thesis.txt", "empty directory")
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("a refused directory now holds %v, %v", left, err)
	}
}

func TestOpenTakesAFreshVolume(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o700); err != nil {
		t.Fatal(err)
	}
	open(t, Config{Dir: dir})
}

// A store starts beside an examination, and removes its file as that of one that was killed.
func TestOpenBesideAnExamination(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var report backend.Report
	start := sync.OnceFunc(func() { open(t, Config{Dir: dir}) })
	Examine(t.Context(), Exam{Dir: dir, SyncFunc: func(*os.File) error { start(); return nil }}, &report)
	if left := checkpoints(t, dir); len(left) > 0 || len(report.Findings) > 0 {
		t.Errorf("left are %q, found %+v", left, report.Findings)
	}
}

func TestOpenRefusesForeignPebble(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*pebbledb.Merger{"its own merger": pebbledb.DefaultMerger, "our merger": merger} {
		dir := t.TempDir()
		writeTo(t, dir, m, []byte("key"), []byte("value"))
		t.Log(name)
		wantRefused(t, Config{Dir: dir}, "another program")
	}
}

func writeTo(t *testing.T, dir string, m *pebbledb.Merger, key, value []byte) {
	t.Helper()
	db, err := pebbledb.Open(dir, &pebbledb.Options{Merger: m, Logger: logger{log: Config{}.withDefaults().Logger}})
	if err != nil {
		t.Fatal(err)
	}
	if key != nil {
		if err := db.Set(key, value, pebbledb.Sync); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// A process that was killed during its first start leaves a database without a meta record.
func TestOpenTakesAHalfMadeDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeTo(t, dir, merger, nil, nil)
	if _, err := open(t, Config{Dir: dir}).Check(t.Context()); err != nil {
		t.Errorf("Check: got %v, want none: an empty flush is not an error", err)
	}
}

// The meta record is of another format, or damaged.
func TestOpenRefusesMeta(t *testing.T) {
	t.Parallel()
	for value, says := range map[string][]string{
		fmt.Sprintf(`{"format":%d,"id":"x"}`, format+1): {"newer version"},
		`{"format":1,"id":"x"}`:                         {"before its first release", "name an empty directory"},
		fmt.Sprintf(`{"format":%d,"id":"x"}`, format-1): {"before its first release"},
		"not json": {"damaged", "restore a backup"},
	} {
		dir := t.TempDir()
		writeTo(t, dir, merger, metaKey, []byte(value))
		wantRefused(t, Config{Dir: dir}, says...)
	}
}

func TestOpenRefusesNewerPebble(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open(t, Config{Dir: dir}).Close()
	markers, err := filepath.Glob(filepath.Join(dir, "marker.format-version.*"))
	if err != nil || len(markers) == 0 {
		t.Fatalf("no marker of Pebble's format: %v", err)
	}
	if err := os.Rename(markers[len(markers)-1], filepath.Join(dir, "marker.format-version.000099.999")); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, Config{Dir: dir}, "newer version")
}

func TestOpenRefusesSecondOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := open(t, Config{Dir: dir})
	wantRefused(t, Config{Dir: dir}, "in use by another process")
	fold(t, first, nil, "a", 1)
	id := first.ID()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if again := open(t, Config{Dir: dir}); again.ID() != id || id == "" {
		t.Errorf("the id changed from %q to %q", id, again.ID())
	}
}

func TestCheckSeesRemovedDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := open(t, Config{Dir: dir})
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Check(t.Context()); !errors.Is(err, store.ErrOtherDatabase) || !strings.Contains(err.Error(), "is gone") {
		t.Errorf("removed: got error %v, want one that says that it is gone", err)
	}
	// Without its own lock file, another process could open the directory now. This process refuses
	// because it still has the lock.
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(s.guard.lockFile(), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Check(t.Context()); !errors.Is(err, store.ErrOtherDatabase) || !strings.Contains(err.Error(), "was replaced") {
		t.Errorf("replaced: got error %v, want one that says that it was replaced", err)
	}
	if err := errors.Join(os.RemoveAll(dir), os.Rename(dir+".old", dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Check(t.Context()); err != nil {
		t.Errorf("back again: %v", err)
	}
}

// A directory that was moved and put back is not damaged, although tables were missing meanwhile. A table that
// stays away is.
func TestCheckForgetsTablesThatCameBack(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := open(t, Config{Dir: dir})
	fold(t, s, nil, "c", 1)
	if err := s.db.Flush(); err != nil { // into a table that nobody has opened
		t.Fatal(err)
	}
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	v := s.View()
	_, err := v.Lookup(t.Context(), []store.Key{{Counter: "c"}})
	v.Close()
	if err == nil {
		t.Fatal("a table was read that is elsewhere")
	}
	if err := os.Rename(dir+".old", dir); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Check(t.Context()); err != nil {
		t.Errorf("back again: %v", err)
	}
	if got := total(t, s, "c"); got != 1 {
		t.Errorf("got %d, want 1", got)
	}
}

// Pebble flushes what it reads of a log, starts a compaction, and waits for it: the opening that stays reads none.
func TestOpenWaitsForNoCompaction(t *testing.T) {
	t.Parallel()
	files := vfs.NewCrashableMem()
	fold(t, open(t, Config{Dir: "d", FS: files}), nil, "c", 1)
	again := open(t, Config{Dir: "d", FS: files.CrashClone(vfs.CrashCloneCfg{})})
	if n := again.db.Metrics().Flush.Count; n != 0 || total(t, again, "c") != 1 {
		t.Errorf("%d flushes, and a total of %d; want 0 and 1", n, total(t, again, "c"))
	}
}

// A failed flush loses nothing, because the log has everything. Check returns an error until a flush
// succeeds.
func TestCheckSeesFailingFlush(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	files := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
			return syscall.ENOSPC
		}
		return nil
	}))
	s := open(t, Config{Dir: "/data", FS: files})
	fold(t, s, nil, "a", 1)
	full.Store(true)
	flushed, err := s.db.AsyncFlush()
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "Check fails", func() bool { _, err := s.Check(t.Context()); return err != nil })
	if _, err := s.Check(t.Context()); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "/data is on a full disk") {
		t.Errorf("got error %v, want one that says that the disk is full", err)
	}
	full.Store(false)
	<-flushed
	waitFor(t, "Check is fine", func() bool { _, err := s.Check(t.Context()); return err == nil })
	if got := total(t, s, "a"); got != 1 {
		t.Errorf("got %d, want 1", got)
	}
}
