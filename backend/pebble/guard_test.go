package pebble

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// While the directory is moved away, nothing is folded and no marker is found. When it is back, the
// store continues.
func TestNoFoldWithoutTheDirectory(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := open(t, Config{Dir: dir})
	m := marker(time.Now().Add(time.Hour))
	fold(t, s, m, "a", 1)
	try := func(markers []store.Marker) error {
		_, err := s.Fold(t.Context(), &store.Commit{Markers: markers, Adds: []store.ShardDelta{store.NewShardDelta("a", 0, 1)}})
		return err
	}
	if err := os.Rename(dir, dir+".old"); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"without markers": try(nil),
		"with a marker":   try(marker(time.Now().Add(2 * time.Hour))),
		"a dead letter":   s.PutDeadLetters(t.Context(), []store.DeadLetter{{Key: "k"}}),
	} {
		if !errors.Is(err, store.ErrDeployment) || !strings.Contains(err.Error(), dir+" is gone") {
			t.Errorf("%s: got %v, want ErrDeployment, and a text that says that the directory is gone", name, err)
		}
	}
	if _, err := s.Applied(t.Context(), []wire.PartID{m[0].ID}); !errors.Is(err, store.ErrDeployment) {
		t.Errorf("a marker: got %v, want ErrDeployment", err)
	}
	if err := os.Rename(dir+".old", dir); err != nil {
		t.Fatal(err)
	}
	fold(t, s, nil, "a", 1)
	if got := total(t, s, "a"); got != 2 {
		t.Errorf("back again: got %d, want 2", got)
	}
}

// away opens a store that loses its directory right after its next sync.
func away(t *testing.T) (s *Store, dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	s = open(t, Config{Dir: dir})
	fold(t, s, nil, "a", 1)
	s.syncs.kept = func() error {
		if err := os.Rename(dir, dir+".old"); err != nil {
			t.Error(err)
		}
		return s.guard.await()
	}
	return s, dir
}

// If the directory is gone after a fold's sync, the fold is neither acknowledged nor shown until the
// directory is back.
func TestFoldWaitsForItsDirectory(t *testing.T) {
	t.Parallel()
	s, dir := away(t)
	folded := make(chan struct{})
	go func() { fold(t, s, nil, "a", 1); close(folded) }()
	waitFor(t, "the directory is moved", func() bool { _, err := os.Stat(dir + ".old"); return err == nil })
	v := s.View()
	defer v.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*guardEvery)
	defer cancel()
	if got, err := v.Lookup(ctx, []store.Key{{Counter: "a", Shard: 0}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a view: got %v, %v, want it to wait", got, err)
	}
	select {
	case <-folded:
		t.Error("a fold into a directory that is gone was acknowledged")
	default:
	}
	if err := os.Rename(dir+".old", dir); err != nil {
		t.Fatal(err)
	}
	<-folded
	if got := total(t, s, "a"); got != 2 {
		t.Errorf("back again: got %d, want 2", got)
	}
}

// Close does not wait for a directory that never comes back. It changes nothing in another directory of
// the same name.
func TestCloseWithoutTheDirectory(t *testing.T) {
	t.Parallel()
	s, dir := away(t)
	folded := make(chan error, 1)
	go func() {
		_, err := s.Fold(t.Context(), &store.Commit{Adds: []store.ShardDelta{store.NewShardDelta("a", 0, 1)}})
		folded <- err
	}()
	waitFor(t, "the directory is moved", func() bool { _, err := os.Stat(dir + ".old"); return err == nil })
	other, endOther := hold(t, dir)
	before := names(t, dir)
	files := logFS{s.fs, dir, &doom{}, s.guard, newPauses(0, nil)}
	_, made := files.Create(filepath.Join(dir, "000099.sst"), vfs.WriteCategoryUnspecified)
	_, reused := files.ReuseForWrite(filepath.Join(dir, before[0]), filepath.Join(dir, "000098.sst"), vfs.WriteCategoryUnspecified)
	for i, err := range []error{made, reused, files.Remove(filepath.Join(dir, before[0])), files.Rename(filepath.Join(dir, before[0]), filepath.Join(dir, "000097.sst"))} {
		if err == nil || !strings.Contains(err.Error(), "was replaced") {
			t.Errorf("change %d of the other directory: got %v, want an error that it was replaced", i, err)
		}
	}
	_ = s.Close()
	if err := <-folded; err == nil || errors.Is(err, store.ErrDeployment) {
		t.Errorf("got %v, want an error with an unknown outcome", err)
	}
	if after := names(t, dir); !slices.Equal(before, after) {
		t.Errorf("the other directory held %q, and now %q", before, after)
	}
	_ = endOther.Close()
	if err := other.Wait(); err != nil {
		t.Error(err)
	}
	open(t, Config{Dir: dir})
	if got := total(t, open(t, Config{Dir: dir + ".old"}), "a"); got != 2 {
		t.Errorf("the one that was moved: got %d, want 2", got)
	}
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func BenchmarkGuard(b *testing.B) {
	s := open(b, Config{Dir: b.TempDir()})
	for b.Loop() {
		if err := s.guard.check(); err != nil {
			b.Fatal(err)
		}
	}
}
