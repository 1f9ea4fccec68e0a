package pebble

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

func take(count int) store.Take {
	var id [1]wire.PartID
	wire.RandomIDs(rand.Reader, wire.SequenceClass, id[:])
	return store.Take{ID: id[0], Count: count, At: time.Now()}
}

// first returns the first value of a take.
func first(t testing.TB, s *Store, sequence string, of store.Take) int64 {
	t.Helper()
	given, err := s.NextValues(t.Context(), sequence, []store.Take{of})
	if err != nil || given[0].Count == 0 {
		t.Fatalf("NextValues of %q: %v, %v", sequence, given, err)
	}
	return given[0].First
}

// Every value that a caller has is on disk, together with the marker of its id.
func TestSequencesSurviveLossOfPower(t *testing.T) {
	t.Parallel()
	files := vfs.NewCrashableMem()
	s := open(t, Config{Dir: "data", FS: files})
	type answer struct {
		sequence string
		take     store.Take
		value    int64
	}
	var mu sync.Mutex
	var answers []answer
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	defer func() { // also after a failure: the store closes later
		cancel()
		callers.Wait()
	}()
	for caller := range 6 {
		callers.Go(func() {
			for ctx.Err() == nil {
				a := answer{sequence: fmt.Sprint(caller % 4), take: take(1)}
				a.value = first(t, s, a.sequence, a.take)
				mu.Lock()
				answers = append(answers, a)
				mu.Unlock()
			}
		})
	}
	for cut := range 10 {
		waitFor(t, "some answers", func() bool { mu.Lock(); defer mu.Unlock(); return len(answers) > 50*(cut+1) })
		mu.Lock()
		acked := answers[:len(answers):len(answers)]
		mu.Unlock()
		crashed := open(t, Config{Dir: "data", FS: files.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 0})})
		last := make(map[string]int64)
		for _, a := range acked {
			if got := first(t, crashed, a.sequence, a.take); got != a.value {
				t.Fatalf("after cut %d an id has the value %d of sequence %s, its caller has %d", cut, got, a.sequence, a.value)
			}
			last[a.sequence] = max(last[a.sequence], a.value)
		}
		for name, value := range last {
			if got := first(t, crashed, name, take(1)); got <= value {
				t.Errorf("after cut %d sequence %s gives %d, and a caller has %d", cut, name, got, value)
			}
		}
		if err := crashed.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Calls that wait at the same time share a commit.
func TestSequencesShareCommits(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	if err := s.lockMarking(t.Context()); err != nil {
		t.Fatal(err)
	}
	const calls = maxNexts + 40
	before := s.commits.synced.Load()
	var all sync.WaitGroup
	for i := range calls {
		all.Go(func() {
			if got := first(t, s, fmt.Sprint("sequence ", i), take(1)); got != 1 {
				t.Errorf("sequence %d begins at %d", i, got)
			}
		})
	}
	waitFor(t, "all calls wait", func() bool { s.nexts.mu.Lock(); defer s.nexts.mu.Unlock(); return len(s.nexts.waiting) == calls })
	s.unlockMarking()
	all.Wait()
	if n := s.commits.synced.Load() - before; n > 3 {
		t.Errorf("%d calls made %d commits, want at most 3", calls, n)
	}
}

// A call that leaves the queue in time gets no values. Another one behind it gets its own.
func TestSequenceCallLeaves(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	if err := s.lockMarking(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error)
	gone := take(7)
	go func() {
		_, err := s.NextValues(ctx, "a", []store.Take{gone})
		left <- err
	}()
	waitFor(t, "the call waits", func() bool { s.nexts.mu.Lock(); defer s.nexts.mu.Unlock(); return len(s.nexts.waiting) == 1 })
	cancel()
	if err := <-left; !errors.Is(err, store.ErrNotApplied) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want ErrNotApplied because of the context", err)
	}
	s.unlockMarking()
	if got := first(t, s, "a", take(1)); got != 1 {
		t.Errorf("the next call got %d, want 1", got)
	}
}

// A directory that was made from a copy leaves out values once, also of sequences that the copy does not
// have.
func TestRestoredSequencesGoOnLater(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	id := take(5)
	first(t, s, "a", id)
	dir := copyOf(t, s)
	first(t, s, "a", take(3)) // lost
	first(t, s, "new", take(1))

	for round := range int64(2) {
		for range 2 { // opening again leaves out nothing
			restored := open(t, Config{Dir: dir})
			base := 5 + (round+1)*store.RestoreSkip
			if got, err := restored.Sequence(t.Context(), "a"); err != nil || got.Last != base+round {
				t.Errorf("restored %d times: state %+v, %v, want the last value %d", round+1, got, err, base+round)
			}
			if got := first(t, restored, "a", id); got != 1 {
				t.Errorf("restored %d times: a repeat got %d, want 1 as before", round+1, got)
			}
			if err := restored.Close(); err != nil {
				t.Fatal(err)
			}
		}
		restored := open(t, Config{Dir: dir})
		if got, want := first(t, restored, "a", take(1)), 5+(round+1)*store.RestoreSkip+round+1; got != want {
			t.Errorf("restored %d times: got %d, want %d", round+1, got, want)
		}
		if got, want := first(t, restored, fmt.Sprint("new ", round), take(1)), (round+1)*store.RestoreSkip+1; got != want {
			t.Errorf("restored %d times: a new sequence begins at %d, want %d", round+1, got, want)
		}
		dir = copyOf(t, restored)
	}
}

// A kill between the count of a restore and the removal of the file leaves out more values, never fewer.
func TestRestoreIsCountedBeforeItsFileGoes(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	first(t, s, "a", take(1))
	dir := copyOf(t, s)
	restored := open(t, Config{Dir: dir})
	if _, err := os.Stat(filepath.Join(dir, copyFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file of a copy is still there after opening: %v", err)
	}
	if err := restored.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, copyFile), nil, 0o600); err != nil { // as the kill leaves it
		t.Fatal(err)
	}
	if got, want := first(t, open(t, Config{Dir: dir}), "a", take(1)), int64(2+2*store.RestoreSkip); got != want {
		t.Errorf("after the kill: got %d, want %d", got, want)
	}
}

func TestDamagedSequenceIsAnError(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	if err := s.db.Set(s.keys.named(nil, kindSequence, "a"), []byte("short"), nil); err != nil {
		t.Fatal(err)
	}
	if got, err := s.NextValues(t.Context(), "a", []store.Take{take(1)}); !errors.Is(err, store.ErrNotApplied) {
		t.Errorf("got %v, %v, want ErrNotApplied", got, err)
	}
	if got := first(t, s, "b", take(1)); got != 1 {
		t.Errorf("another sequence: got %d, want 1", got)
	}
	old := take(1)
	old.At = time.Date(3000, 1, 1, 0, 0, 0, 0, time.UTC)
	if got, err := s.NextValues(t.Context(), "b", []store.Take{old}); !errors.Is(err, store.ErrRefused) {
		t.Errorf("a time that no epoch has: got %v, %v, want ErrRefused", got, err)
	}
}
