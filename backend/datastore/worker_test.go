package datastore

import (
	"testing"
	"time"

	"github.com/countmill/countmill/store"
)

// Each start of an aggregator may use a new id. Records of ended aggregators must not pile up, because
// readers read all of them.
func TestRecordsOfGoneWorkersAreRemoved(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	for id, age := range map[string]time.Duration{"gone": 25 * time.Hour, "stale": 23 * time.Hour, "fresh": -time.Minute} {
		s := openStore(t, cfg)
		s.tidied.Store(now().UnixMicro()) // not due yet
		if err := s.Beat(t.Context(), store.Worker{ID: id, Expires: now().Add(-age)}); err != nil {
			t.Fatal(err)
		}
	}
	s := openStore(t, cfg)
	if err := s.Beat(t.Context(), store.Worker{ID: "new", Expires: now()}); err != nil {
		t.Fatal(err)
	}
	workers, err := s.Workers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, w := range workers {
		ids = append(ids, w.ID)
	}
	if len(ids) != 3 || ids[0] != "fresh" || ids[1] != "new" || ids[2] != "stale" {
		t.Errorf("workers %q, want fresh, new and stale", ids)
	}
}
