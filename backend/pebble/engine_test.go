package pebble

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/enginetest"
)

func openRows(t testing.TB, cfg Config, kinds engine.Kinds) *database {
	t.Helper()
	e, err := openDatabase(cfg, kinds)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// A disk syncs no log while it is held, and can lose unsynced writes.
type disk struct {
	vfs.FS
	files *vfs.MemFS
	held  sync.RWMutex
	free  func() // releases it; nil while it is not held
}

func newDisk(files *vfs.MemFS) *disk {
	d := &disk{files: files}
	d.FS = errorfs.Wrap(files, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			if strings.HasSuffix(op.Path, ".log") {
				d.held.RLock()
				defer d.held.RUnlock()
			}
		}
		return nil
	}))
	return d
}

func (d *disk) hold() (release func()) {
	d.held.Lock()
	d.free = sync.OnceFunc(d.held.Unlock)
	return d.free
}

// cut returns the disk after a loss of power. Users of this one go on.
func (d *disk) cut() *disk {
	after := newDisk(d.files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0, RNG: rand.New(rand.NewPCG(1, 1))}))
	if d.free != nil {
		d.free()
	}
	return after
}

func TestEngine(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, func(t *testing.T, kinds engine.Kinds) *enginetest.Under {
		d := newDisk(vfs.NewCrashableMem())
		cfg := Config{Dir: "/data", FS: d, Namespace: "suite", Cache: 1 << 20}
		e := openRows(t, cfg, kinds)
		reopen := func(t *testing.T) engine.Engine {
			e = openRows(t, cfg, kinds)
			return e
		}
		return &enginetest.Under{
			Engine: e,
			Reopen: func(t *testing.T) engine.Engine {
				if err := e.Close(); err != nil {
					t.Error(err)
				}
				return reopen(t)
			},
			Tidy: func(t *testing.T) {
				if err := e.db.Flush(); err != nil {
					t.Error(err)
				}
				if err := e.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false); err != nil {
					t.Error(err)
				}
			},
			HoldSyncs: func(*testing.T) func() { return d.hold() },
			CutPower: func(t *testing.T) engine.Engine {
				d = d.cut()
				cfg.FS = d
				return reopen(t)
			},
		}
	})
}

// A page of Due reads no row of the pages before.
func TestPagesOfDueAreOneLook(t *testing.T) {
	t.Parallel()
	kinds := enginetest.Kinds()
	e := openRows(t, Config{Dir: t.TempDir()}, kinds)
	kind := engine.KindID(slices.IndexFunc(kinds, func(k engine.Kind) bool { return k.Name == "blob" }))
	const rows = 1000
	changes := make([]engine.Change, rows)
	for i := range changes {
		at := engine.Field{ID: kinds[kind].Due, Value: engine.IntOf(int64(rows - i))}
		changes[i] = engine.Change{Key: engine.Key{Kind: kind, Name: fmt.Sprintf("%04d", i)}, Set: []engine.Field{at}, Data: make([]byte, 1000)}
	}
	_, err := e.Commit(t.Context(), &engine.Commit{Changes: engine.Changes(changes...)})
	if err := errors.Join(err, e.db.Flush()); err != nil {
		t.Fatal(err)
	}
	blocks := func(limit int) int64 {
		before, found, after := e.db.Metrics().BlockCache, 0, ""
		for found == 0 || after != "" {
			keys, next, err := e.Due(t.Context(), kind, rows, after, limit)
			if err != nil {
				t.Fatal(err)
			}
			found, after = found+len(keys), next
		}
		if found != rows {
			t.Fatalf("pages of %d list %d rows, want %d", limit, found, rows)
		}
		now := e.db.Metrics().BlockCache
		return now.Hits + now.Misses - before.Hits - before.Misses
	}
	if all, pages := blocks(2*rows), blocks(10); all < 100 || pages > 4*all {
		t.Errorf("one page reads %d blocks, and 100 pages read %d", all, pages)
	}
	err = e.Expire(t.Context(), kind, rows)
	if keys, _, dueErr := e.Due(t.Context(), kind, rows, "", rows); err != nil || dueErr != nil || len(keys) != 1 {
		t.Errorf("%d rows are left, %v, %v, want the one that is due at %d", len(keys), err, dueErr, rows)
	}
}
