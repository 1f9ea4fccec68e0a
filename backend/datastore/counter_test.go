package datastore

import (
	"crypto/rand"
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

func mustRaise(t *testing.T, s *Store, counter string, shards int) {
	t.Helper()
	if err := s.Grow(t.Context(), []store.Growth{{Counter: counter, Shards: shards}}); err != nil {
		t.Fatalf("Raise: %v", err)
	}
}

// remove deletes a counter whose shards sum to sum.
func remove(t *testing.T, s *Store, counter string, sum int64) store.ResetResult {
	t.Helper()
	done, err := s.ResetCounter(t.Context(), removal(counter, sum))
	if err != nil {
		t.Fatalf("ResetCounter: %v", err)
	}
	return done
}

func removal(counter string, sum int64) store.ResetRequest {
	return store.ResetRequest{ID: wire.ResetID(counter, rand.Text()), Counter: counter, Delete: true, ExpireAt: now().Add(time.Hour),
		Look: store.Sum{Exists: true, Sum: int128.Of(sum), At: now()}}
}

// People change counters through readers, which open the store with ReadOnly. Only processes that fold
// may sweep.
func TestReadOnlyStoresChangeRecords(t *testing.T) {
	t.Parallel()
	cfg := fresh(t)
	s := openStore(t, cfg)
	mustRaise(t, s, "a", 1)
	mustFold(t, s, &store.Commit{Adds: []store.ShardDelta{add("a", 0, 5)}})
	cfg.ReadOnly = true
	ro := openStore(t, cfg)
	if n, err := ro.GrowCounter(t.Context(), "b", 7); n != 7 || err != nil {
		t.Errorf("GrowCounter: got %d, %v, want 7", n, err)
	}
	if done := remove(t, ro, "a", 5); done.Removed != int128.Of(5) {
		t.Errorf("ResetCounter: removed %d, want 5", done.Removed)
	}
	if n, err := ro.SweepCounters(t.Context(), 0); n != 0 || err != nil {
		t.Errorf("SweepCounters: got %d, %v, want nothing done", n, err)
	}
	if got := value(t, s, "a", store.RecordKey); !got.Exists {
		t.Error("the record is gone")
	}
}

// deleted_at is the only indexed property of a record: queries use it, and few records have it.
func TestOnlyDeletionsAreIndexed(t *testing.T) {
	t.Parallel()
	s := openStore(t, fresh(t))
	mustRaise(t, s, "a", 1)
	remove(t, s, "a", 0)
	found, err := s.lookupAll(t.Context(), []ref{{kindCounter, "a"}})
	if err != nil {
		t.Fatal(err)
	}
	var indexed []string
	for name, v := range found[ref{kindCounter, "a"}].GetProperties() {
		if !v.GetExcludeFromIndexes() {
			indexed = append(indexed, name)
		}
	}
	if !slices.Equal(indexed, []string{"deleted_at"}) {
		t.Errorf("indexed properties of a record: %v, want deleted_at", indexed)
	}
}

// A counter whose record and shards do not fit one commit stays, hidden.
func TestSweepFitsOneCommit(t *testing.T) {
	t.Parallel()
	s := openStore(t, fresh(t))
	for _, c := range []struct {
		name   string
		shards int
		gone   bool
	}{{"fits", 399, true}, {"does not", 400, false}} {
		mustRaise(t, s, c.name, c.shards)
		mustFold(t, s, &store.Commit{Adds: []store.ShardDelta{add(c.name, c.shards-1, 5)}})
		remove(t, s, c.name, 5)
		<-time.After(2 * time.Millisecond)
		if _, err := s.SweepCounters(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if got := value(t, s, c.name, store.RecordKey); got.Exists == c.gone {
			t.Errorf("a deleted counter of %d shards: gone %t, want %t", c.shards, !got.Exists, c.gone)
		}
	}
}

// Each answer of a reset's transaction says whether the reset was certainly not done.
func TestResetAnswers(t *testing.T) {
	t.Parallel()
	calls := &tap{}
	cfg := fresh(t)
	cfg.DialOptions = append(cfg.DialOptions, calls.option())
	s := openStore(t, cfg)
	mustRaise(t, s, "a", 1)
	for _, c := range []struct {
		method string
		code   string
		undone bool
	}{
		{"BeginTransaction", "PermissionDenied", true}, {"Commit", "PermissionDenied", true}, {"Commit", "InvalidArgument", true},
		{"Commit", "Aborted", false}, {"Commit", "DeadlineExceeded", false}, {"Commit", "Unavailable", false}, {"Commit", "AlreadyExists", false},
	} {
		calls.set(func(method string, _, _ any) (bool, error) {
			if method != "/google.datastore.v1.Datastore/"+c.method {
				return false, nil
			}
			return true, statusOf(c.code)
		})
		_, reset := s.ResetCounter(t.Context(), removal("a", 0))
		_, raise := s.GrowCounter(t.Context(), "a", 9)
		for what, err := range map[string]error{"reset": reset, "raise": raise} {
			if err == nil || errors.Is(err, countmill.ErrUnavailable) != c.undone {
				t.Errorf("%s, %s of %s: got %v, undone want %t", what, c.code, c.method, err, c.undone)
			}
		}
	}
	calls.set(nil)
	if got := value(t, s, "a", store.RecordKey); got.Shards != 1 || got.Reset != (store.ResetState{}) {
		t.Errorf("the record is %+v, want one shard and no reset", got)
	}
}

func statusOf(name string) error {
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		if code.String() == name {
			return status.Error(code, "no")
		}
	}
	panic(name)
}
