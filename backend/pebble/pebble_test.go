package pebble

import (
	"crypto/rand"
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

func addTo(counter string, shard int, delta int64) store.ShardDelta {
	return store.NewShardDelta(counter, shard, delta)
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
	return []store.Marker{{ID: wire.RandomID(rand.Reader, wire.AnonymousClass), Fingerprint: 1, Fold: 2, At: at}}
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

// A loss of power right after a manifest was made leaves its name: Pebble's marker may name it already.
func TestManifestsKeepTheirNames(t *testing.T) {
	t.Parallel()
	disk := vfs.NewCrashableMem()
	s := open(t, Config{Dir: "data", FS: disk})
	const name = "data/MANIFEST-000099"
	file, err := logFS{s.fs, "data", &doom{}, s.guard, newPauses(0, nil)}.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := disk.CrashClone(vfs.CrashCloneCfg{}).Stat(name); err != nil {
		t.Error(err)
	}
}
