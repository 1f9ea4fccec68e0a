package embedded_test

import (
	"errors"
	"testing"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/embedded"
)

// Sequences go on after the DB is opened again, and a repeat gets the same values.
func TestSequences(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for n := range int64(2) {
		db, err := embedded.Open(dir)
		must(t, err)
		if got, err := db.Next(t.Context(), countmill.NextRequest{Sequence: "a", ID: "x", Count: 3}); err != nil || got != (countmill.Values{First: 1, Last: 3}) {
			t.Errorf("open %d: an id got %v, %v, want 1 to 3", n, got, err)
		}
		if got, err := db.Next(t.Context(), countmill.NextRequest{Sequence: "a"}); err != nil || got.First != n+4 {
			t.Errorf("open %d: got %v, %v, want %d", n, got, err, n+4)
		}
		if got, err := db.DeleteSequence(t.Context(), "a"); err != nil || !got.Exists() || got.Last != n+4 {
			t.Errorf("open %d: delete: got %+v, %v", n, got, err)
		}
		if got, err := db.Sequence(t.Context(), "a"); err != nil || got.Exists() {
			t.Errorf("open %d: after the delete: got %+v, %v", n, got, err)
		}
		must(t, db.Close())
		if _, err := db.Next(t.Context(), countmill.NextRequest{Sequence: "a"}); !errors.Is(err, countmill.ErrClosed) {
			t.Errorf("after Close: got %v, want ErrClosed", err)
		}
	}
}
