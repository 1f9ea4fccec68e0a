package datastore

import (
	"errors"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
)

func foldOne(t *testing.T, s *Store, adds ...store.ShardDelta) error {
	t.Helper()
	_, err := s.Fold(t.Context(), &store.Commit{Markers: []store.Marker{newMarker()}, Adds: adds})
	return err
}

// Without a connection the store sends no commit, and the error of a fold says so. The first fold may
// still use the broken connection.
func TestNoServer(t *testing.T) {
	t.Parallel()
	host, stop := serveOn(t, &recorder{}, "127.0.0.1:0")
	s := openStore(t, Config{Project: "p-1", Emulator: host, Timeout: time.Second})
	stop()
	err := foldOne(t, s)
	for deadline := time.Now().Add(2 * time.Minute); !errors.Is(err, store.ErrNotApplied); err = foldOne(t, s) {
		if err == nil || time.Now().After(deadline) {
			t.Fatalf("Fold without a server: got %v, want ErrNotApplied", err)
		}
	}
}
