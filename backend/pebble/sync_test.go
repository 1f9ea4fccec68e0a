package pebble

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/countmill/countmill/store"
	sums "github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// stopped is a disk that syncs no log while mu is held.
func stopped(mu *sync.Mutex) vfs.FS {
	return errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			if strings.HasSuffix(op.Path, ".log") {
				mu.Lock()
				defer mu.Unlock()
			}
		}
		return nil
	}))
}

// While a change of rules is being written, nobody reads the settings before.
func TestCheckWaitsForAChange(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex // held while the disk does not sync
	s := open(t, Config{Dir: "/data", FS: stopped(&mu)})
	before, err := s.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	var changing sync.WaitGroup
	changing.Go(func() {
		if _, err := s.ChangeRules(t.Context(), store.RuleChange{Pattern: "a", Keep: store.Retention{Quarters: 24 * time.Hour}}); err != nil {
			t.Error(err)
		}
	})
	waitFor(t, "the change has begun", func() bool {
		s.settings.mu.Lock()
		defer s.settings.mu.Unlock()
		return s.settings.changing != nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	if got, err := s.Check(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("during the change: got version %d, %v, want it to wait", got.Settings.Version, err)
	}
	cancel()
	mu.Unlock()
	if got, err := s.Check(t.Context()); err != nil || got.Settings.Version != before.Settings.Version+1 {
		t.Errorf("after the change: got version %d, %v, want %d", got.Settings.Version, err, before.Settings.Version+1)
	}
	changing.Wait()
}

// A total that was shown stays: a view waits until the folds that it shows are on disk, with markers or
// without.
func TestViewWaitsForSync(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex // held while the disk does not sync
	s := open(t, Config{Dir: "/data", FS: stopped(&mu)})
	fold(t, s, nil, "a", 1)
	for i, markers := range [][]store.Marker{nil, marker(time.Now())} {
		mu.Lock()
		var folding sync.WaitGroup
		folding.Go(func() { fold(t, s, markers, "a", 1) })
		waitFor(t, "the fold is visible", func() bool {
			n, _, err := getShard(s.db, s.keys.shard(nil, wire.ShardHash("a", 0), "a", 0))
			got, _ := n.count.total()
			return err == nil && got == int64(i+2)
		})
		v := s.View()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		for range 2 { // also when it is called again
			if got, err := v.Lookup(ctx, []store.Key{{Counter: "a", Shard: 0}}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("before the sync: got %v, %v, want it to wait", got, err)
			}
		}
		cancel()
		mu.Unlock()
		if got, err := v.Lookup(t.Context(), []store.Key{{Counter: "a", Shard: 0}}); err != nil || got[0].Count != sums.Of(int64(i+2)) {
			t.Errorf("after the sync: got %v, %v, want %d", got, err, i+2)
		}
		v.Close()
		folding.Wait()
	}
	if open := s.syncs.underWay(); len(open) > 0 {
		t.Errorf("%d commits never end", len(open))
	}
}
