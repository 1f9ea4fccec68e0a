package pebble

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

func take(count int) store.Take {
	return store.Take{ID: wire.RandomID(rand.Reader, wire.SequenceClass), Count: count, At: time.Now()}
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
