package pebble

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest"
	"github.com/countmill/countmill/wire"
)

func TestMain(m *testing.M) {
	if runChild() {
		return
	}
	goleak.VerifyTestMain(m)
}

func open(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := Open(cfg)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.RunStore(t,
		func(t *testing.T) store.Store {
			return open(t, Config{Dir: t.TempDir(), Namespace: "conformance"})
		},
		storetest.OfEngine(),
		storetest.Durable(func(t *testing.T, s store.Store) store.Store {
			if err := s.Close(); err != nil {
				t.Fatalf("Close: %v", err)
			}
			return open(t, s.(*Store).directory.cfg)
		}),
		storetest.RemovesByForgetBefore(func(t *testing.T, m *storetest.Machine) store.Store {
			return open(t, Config{Dir: t.TempDir(), clock: m.Now, age: m.Age})
		}, func(t *testing.T, s store.Store) { sweep(t, s.(*Store)) }))
}

func fold(t testing.TB, s *Store, markers []store.Marker, counter string, delta int64) {
	t.Helper()
	c := &store.Commit{Markers: markers, Adds: []store.ShardDelta{store.NewShardDelta(counter, 0, delta)}}
	if _, err := s.Fold(t.Context(), c); err != nil {
		t.Fatalf("Fold: %v", err)
	}
}

func total(t testing.TB, s *Store, counter string) int64 {
	t.Helper()
	v := s.View()
	defer v.Close()
	got, err := v.Lookup(t.Context(), []store.Key{{Counter: counter}})
	if err != nil {
		t.Fatalf("Lookup: %v", err)
	}
	return int64(got[0].Count.Lo)
}

func marker(at time.Time) []store.Marker {
	var ids [1]wire.PartID
	wire.RandomIDs(rand.Reader, wire.AnonymousClass, ids[:])
	return []store.Marker{{ID: ids[0], Fingerprint: 1, Fold: 2, At: at}}
}

func TestNamespacesAreApart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := marker(time.Now())
	for i, ns := range []string{"", "a", "ab", "b"} {
		s := open(t, Config{Dir: dir, Namespace: ns})
		fold(t, s, m, "x", int64(i+1))
		if err := s.Grow(t.Context(), []store.Growth{{Counter: "x", Shards: i + 1}}); err != nil {
			t.Fatal(err)
		}
		if got := total(t, s, "x"); got != int64(i+1) {
			t.Errorf("namespace %q: got %d, want %d", ns, got, i+1)
		}
		v := s.View()
		if got, err := v.List(t.Context(), "", "", 10); err != nil || len(got) != 1 || got[0].Shards != i+1 {
			t.Errorf("namespace %q lists %v, %v", ns, got, err)
		}
		v.Close()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// After Fold has returned, a loss of power at any moment removes everything that was not synced. The
// commit is still there, and so is the growth before it.
func TestFoldSurvivesLossOfPower(t *testing.T) {
	t.Parallel()
	files := vfs.NewCrashableMem()
	cfg := Config{Dir: "data", FS: files}
	s := open(t, cfg)
	for i := range 50 {
		if err := s.Grow(t.Context(), []store.Growth{{Counter: "a", Shards: i + 1}}); err != nil {
			t.Fatal(err)
		}
		var m []store.Marker
		if i%2 == 0 {
			m = marker(time.Now())
		}
		fold(t, s, m, "a", 1)
		crashed := open(t, Config{Dir: "data", FS: files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0})})
		if got := total(t, crashed, "a"); got != int64(i+1) {
			t.Fatalf("after fold %d and a loss of power: got %d", i+1, got)
		}
		if got, err := crashed.Shards(t.Context(), []string{"a"}); err != nil || got[0] != i+1 {
			t.Fatalf("after fold %d and a loss of power: record names %v shards, %v", i+1, got, err)
		}
		if m != nil {
			if got, err := crashed.Applied(t.Context(), []wire.PartID{m[0].ID}); err != nil || len(got) != 1 {
				t.Fatalf("after fold %d and a loss of power: marker %v, %v", i+1, got, err)
			}
		}
		if err := crashed.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A record that was written in a fold's commit exists whenever the fold does.
func TestFoldWithRaisesSurvivesLossOfPower(t *testing.T) {
	t.Parallel()
	files := vfs.NewCrashableMem()
	s := open(t, Config{Dir: "data", FS: files})
	for i := range 20 {
		name := fmt.Sprint("c", i)
		c := &store.Commit{
			Adds:    []store.ShardDelta{store.NewShardDelta(name, 0, 5)},
			Growths: []store.Growth{{Counter: name, Shards: 1}},
		}
		if i%2 == 0 {
			c.Markers = marker(time.Now())
		}
		if _, err := s.Fold(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		crashed := open(t, Config{Dir: "data", FS: files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0})})
		got, err := crashed.Shards(t.Context(), []string{name})
		if n := total(t, crashed, name); n != 5 || err != nil || got[0] != 1 {
			t.Fatalf("after fold %d and a loss of power: got %d, record names %v shards, %v, want 5 and 1", i+1, n, got, err)
		}
		if err := crashed.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
