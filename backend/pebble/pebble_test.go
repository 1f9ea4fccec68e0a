package pebble

import (
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend/backendtest"
	"github.com/countmill/countmill/reader"
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

// clocked is a store whose clock can be set.
type clocked struct {
	*Store
	clock *wrong
}

func TestStore(t *testing.T) {
	t.Parallel()
	backendtest.RunStore(t,
		func(t *testing.T) backendtest.Store {
			clock := &wrong{}
			return clocked{open(t, Config{Dir: t.TempDir(), Namespace: "conformance", clock: clock.now}), clock}
		},
		backendtest.Clock(func(s backendtest.Store, off time.Duration) { s.(clocked).clock.set(off) }),
		backendtest.Durable(func(t *testing.T, s backendtest.Store) backendtest.Store {
			if err := s.Close(); err != nil {
				t.Fatalf("Close: %v", err)
			}
			return clocked{open(t, s.(clocked).cfg), s.(clocked).clock}
		}))
}

func hash(counter string) uint64 { return wire.ShardHash(counter, 0) }

func fold(t testing.TB, s *Store, markers []aggregator.Marker, counter string, delta int64) {
	t.Helper()
	c := &aggregator.Commit{Markers: markers, Adds: []aggregator.Add{{Counter: counter, Hash: hash(counter), Delta: delta}}}
	if _, err := s.Fold(t.Context(), c); err != nil {
		t.Fatalf("Fold: %v", err)
	}
}

func total(t testing.TB, s *Store, counter string) int64 {
	t.Helper()
	v := s.View()
	defer v.Close()
	got, err := v.Lookup(t.Context(), []reader.Key{{Counter: counter}})
	if err != nil {
		t.Fatalf("Lookup: %v", err)
	}
	return got[0].Value
}

func marker(expire time.Time) []aggregator.Marker {
	var ids [1]wire.PartID
	wire.RandomIDs(rand.Reader, ids[:])
	return []aggregator.Marker{{ID: ids[0], Fingerprint: 1, Fold: 2, ExpireAt: expire}}
}

func TestNamespacesAreApart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := marker(time.Now().Add(time.Hour))
	for i, ns := range []string{"", "a", "ab", "b"} {
		s := open(t, Config{Dir: dir, Namespace: ns})
		fold(t, s, m, "x", int64(i+1))
		if err := s.Raise(t.Context(), []aggregator.Raise{{Counter: "x", Shards: i + 1}}); err != nil {
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

func TestSweepDropsEndedEpochsOnly(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Now()
	s := open(t, Config{Dir: dir})
	var ids []wire.PartID
	for days := range 20 {
		m := marker(now.Add(time.Duration(days)*24*time.Hour + time.Hour))
		fold(t, s, m, "a", 1)
		ids = append(ids, m[0].ID)
	}
	for day := 0; day <= 26; day += 2 {
		at := now.Add(time.Duration(day) * 24 * time.Hour)
		if err := s.Sweep(at); err != nil {
			t.Fatal(err)
		}
		found, err := s.Applied(t.Context(), ids)
		if err != nil {
			t.Fatal(err)
		}
		kept := make(map[wire.PartID]bool)
		for _, m := range found {
			kept[m.ID] = true
			if m.ExpireAt.Before(at.Add(-epochLength)) {
				t.Errorf("day %d: a marker that expired %s ago is still there", day, at.Sub(m.ExpireAt))
			}
		}
		for i, id := range ids {
			if i >= day && !kept[id] {
				t.Errorf("day %d: the marker of day %d is gone", day, i)
			}
		}
	}
	if len(s.epochs) != 0 {
		t.Errorf("epochs %v are left", s.epochs)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Dir: dir})
	if got := total(t, s, "a"); got != 20 || len(s.epochs) != 0 {
		t.Errorf("reopened: got %d and epochs %v, want 20 and none", got, s.epochs)
	}
}

// Opening finds the epochs and drops none, not even one that has ended: the clock of a
// machine that has just booted may be wrong.
func TestOpenFindsEpochs(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Now()
	s := open(t, Config{Dir: dir})
	old, fresh, far := marker(now.Add(-10*24*time.Hour)), marker(now.Add(8*24*time.Hour)), marker(now.Add(99*24*time.Hour))
	for _, m := range [][]aggregator.Marker{old, far, fresh} {
		fold(t, s, m, "a", 1)
	}
	if len(s.epochs) != 3 {
		t.Fatalf("got epochs %v, want 3", s.epochs)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Dir: dir})
	if len(s.epochs) != 3 {
		t.Errorf("reopened: got epochs %v, want 3", s.epochs)
	}
	for _, m := range [][]aggregator.Marker{old, fresh, far} {
		_, err := s.Fold(t.Context(), &aggregator.Commit{Markers: m})
		if !errors.Is(err, aggregator.ErrMarkerExists) {
			t.Errorf("reopened: marker that expires %s got %v, want ErrMarkerExists", m[0].ExpireAt, err)
		}
	}
}

func TestSweepDropsSilentWorkers(t *testing.T) {
	t.Parallel()
	s, now := open(t, Config{Dir: t.TempDir()}), time.Now()
	for id, expires := range map[string]time.Duration{"live": time.Minute, "stale": -time.Hour, "gone": -25 * time.Hour} {
		if err := s.Announce(t.Context(), aggregator.Worker{ID: id, Expires: now.Add(expires)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Sweep(now); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Workers(t.Context()); err != nil || len(got) != 2 {
		t.Errorf("got %v, %v, want live and stale", got, err)
	}
}

// After Fold has returned, the machine may lose power at any moment: everything that
// was not synced is gone, and the commit is still there, with the raise before it.
func TestFoldSurvivesLossOfPower(t *testing.T) {
	t.Parallel()
	files := vfs.NewCrashableMem()
	cfg := Config{Dir: "data", FS: files}
	s := open(t, cfg)
	for i := range 50 {
		if err := s.Raise(t.Context(), []aggregator.Raise{{Counter: "a", Shards: i + 1}}); err != nil {
			t.Fatal(err)
		}
		var m []aggregator.Marker
		if i%2 == 0 {
			m = marker(time.Now().Add(time.Hour))
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

// A record that comes with a fold is there whenever the fold is.
func TestFoldWithRaisesSurvivesLossOfPower(t *testing.T) {
	t.Parallel()
	files := vfs.NewCrashableMem()
	s := open(t, Config{Dir: "data", FS: files})
	for i := range 20 {
		name := fmt.Sprint("c", i)
		c := &aggregator.Commit{
			Adds:   []aggregator.Add{{Counter: name, Hash: wire.HashCounter(name), Delta: 5}},
			Raises: []aggregator.Raise{{Counter: name, Shards: 1}},
		}
		if i%2 == 0 {
			c.Markers = marker(time.Now().Add(time.Hour))
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

// A process that nobody sweeps does it by itself.
func TestFoldSweepsOnceADay(t *testing.T) {
	t.Parallel()
	s, now := open(t, Config{Dir: t.TempDir()}), time.Now()
	fold(t, s, marker(now.Add(-10*24*time.Hour)), "a", 1)
	fold(t, s, marker(now.Add(time.Hour)), "a", 1)
	if len(s.epochs) != 2 {
		t.Errorf("just opened: got epochs %v, want 2", s.epochs)
	}
	s.swept = now.Add(-25 * time.Hour)
	fold(t, s, marker(now.Add(time.Hour)), "a", 1)
	if len(s.epochs) != 1 {
		t.Errorf("a day later: got epochs %v, want 1", s.epochs)
	}
}
