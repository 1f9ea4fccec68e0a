package pebble

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/countmill/countmill/store"
)

// A tableDisk has no room for tables while it is full, and counts the tables that it refused. held tables wait.
type tableDisk struct {
	vfs.FS
	full    atomic.Bool
	refused atomic.Int64
	held    chan struct{}
}

func newTableDisk() *tableDisk {
	d := &tableDisk{held: make(chan struct{})}
	d.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind != errorfs.OpCreate || !strings.HasSuffix(op.Path, ".sst") {
			return nil
		}
		<-d.held
		if d.full.Load() {
			d.refused.Add(1)
			return syscall.ENOSPC
		}
		return nil
	}))
	return d
}

// fill folds until an error, and returns the number of folds before it.
func fillUp(t *testing.T, s *Store) (folds int64, err error) {
	t.Helper()
	filler := strings.Repeat("x", 400)
	for ; err == nil && folds < 100_000; folds++ {
		adds := []store.ShardDelta{addTo("a", 0, 1), addTo(fmt.Sprint(filler, folds), 0, 1)}
		if adds[0].Order > adds[1].Order {
			adds[0], adds[1] = adds[1], adds[0]
		}
		_, err = s.Fold(t.Context(), &store.Commit{Adds: adds})
	}
	return folds - 1, err
}

// waits reports whether a table waits after a refused one.
func waits(p *pauses, writer vfs.DiskWriteCategory) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.of[writer]
	return x.next > 0 && !x.due
}

// The disk has no room for a table, and logs have some left. Folds are refused and not applied, backups end, reads
// are answered, and the flush waits before it tries again. With room, all goes on.
func TestNoRoomForTables(t *testing.T) {
	t.Parallel()
	disk := newTableDisk()
	close(disk.held)
	s := open(t, Config{Dir: "/data", FS: disk, memTable: 64 << 10, pause: time.Hour})
	fold(t, s, nil, "b", 1)
	disk.full.Store(true)
	backup := s.Checkpoint(t.Context(), func(context.Context, string) error { return nil })
	if !errors.Is(backup, syscall.ENOSPC) || !strings.Contains(backup.Error(), "free space there") {
		t.Errorf("a backup: got %v, want one about the full disk", backup)
	}
	for range 10 { // each would begin a memtable
		if err := s.Checkpoint(t.Context(), func(context.Context, string) error { return nil }); !errors.Is(err, store.ErrDeployment) {
			t.Errorf("the next backup: got %v, want ErrDeployment", err)
		}
	}
	if n, err := fillUp(t, s); n != 0 || !errors.Is(err, store.ErrDeployment) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a fold: got %v after %d folds, want ErrDeployment", err, n)
	}
	if _, err := s.NextValues(t.Context(), "s", []store.Take{take(1)}); !errors.Is(err, store.ErrNotApplied) {
		t.Errorf("a sequence: got %v, want ErrNotApplied", err)
	}
	if got := total(t, s, "b"); got != 1 || total(t, s, "a") != 0 {
		t.Errorf("the totals are %d and %d, want 1 and 0", got, total(t, s, "a"))
	}
	if checked, err := s.Check(t.Context()); !errors.Is(err, store.ErrReadOnly) || checked.Settings.Window == 0 {
		t.Errorf("Check: got %+v, %v, want the settings and ErrReadOnly", checked, err)
	}
	waitFor(t, "a table that waits", func() bool { return waits(s.health.pauses, flushing) })
	if n := disk.refused.Load(); n != 1 {
		t.Errorf("%d tables were tried within an hour, want 1", n)
	}
	if err := s.Close(); err != nil { // ends the wait
		t.Fatal(err)
	}
	disk.full.Store(false)
	s = open(t, Config{Dir: "/data", FS: disk, memTable: 64 << 10, pause: time.Millisecond})
	disk.full.Store(true)
	n, err := fillUp(t, s)
	if !errors.Is(err, store.ErrDeployment) {
		t.Fatalf("got %v after %d folds, want ErrDeployment", err, n)
	}
	if got := total(t, s, "a"); got != n {
		t.Errorf("the total is %d after %d folds", got, n)
	}
	disk.full.Store(false)
	waitFor(t, "a fold", func() bool {
		_, err := s.Fold(t.Context(), &store.Commit{Adds: []store.ShardDelta{addTo("a", 0, 1)}})
		return err == nil
	})
	if got := total(t, s, "a"); got != n+1 {
		t.Errorf("the total is %d after %d folds", got, n+1)
	}
	if err := s.Checkpoint(t.Context(), func(context.Context, string) error { return nil }); err != nil {
		t.Errorf("a backup with room: %v", err)
	}
}

// The disk is slow. Folds wait, and end with the first refused table or with the store; reads, the end of the store
// and a backup that is cancelled do not wait for them.
func TestFoldsWaitForTheDisk(t *testing.T) {
	t.Parallel()
	for _, full := range []bool{true, false} {
		disk := newTableDisk()
		s := open(t, Config{Dir: "/data", FS: disk, memTable: 64 << 10, pause: time.Hour})
		disk.full.Store(full)
		type end struct {
			folds int64
			err   error
		}
		ended := make(chan end, 1)
		go func() {
			n, err := fillUp(t, s)
			ended <- end{n, err}
		}()
		waitFor(t, "folds that wait", func() bool { return !s.hasRoom() })
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		backup := make(chan error, 1)
		go func() { backup <- s.Checkpoint(cancelled, nil) }()
		select {
		case err := <-backup:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("a backup whose context has ended: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("a backup waits for the disk after the end of its context")
		}
		before := total(t, s, "a")
		closed := make(chan error, 1)
		if full {
			close(disk.held)
		} else {
			go func() { closed <- s.Close() }()
			<-s.ending.Done()
		}
		e := <-ended
		if want := map[bool]error{true: store.ErrDeployment, false: store.ErrNotApplied}[full]; !errors.Is(e.err, want) || e.folds < before {
			t.Errorf("full: %t: got %v after %d folds, want %v after %d or more", full, e.err, e.folds, want, before)
		}
		if full {
			continue
		}
		close(disk.held)
		if err := <-closed; err != nil {
			t.Errorf("close: %v", err)
		}
	}
}

// The pauses double, end with the store, and begin anew after a success. Work of several tables waits once.
func TestPauses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		p := newPauses(shortPause, end)
		wait := func(want time.Duration) {
			t.Helper()
			began := time.Now()
			p.wait(flushing)
			if got := time.Since(began); got != want {
				t.Errorf("waited %s, want %s", got, want)
			}
		}
		wait(0)
		for _, want := range []time.Duration{shortPause, 2 * shortPause, 4 * shortPause} {
			p.ended(flushing, io.EOF)
			wait(want)
			wait(0)
		}
		for range 10 {
			p.ended(flushing, io.EOF)
		}
		wait(longPause)
		p.ended(compacting, nil)
		p.ended(flushing, io.EOF)
		p.wait(compacting)
		close(end)
		wait(0)
		p.ended(flushing, nil)
		p.ended(flushing, io.EOF)
		if got := p.take(flushing); got != shortPause {
			t.Errorf("after a success: %s, want %s", got, shortPause)
		}
	})
}
