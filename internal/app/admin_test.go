package app

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// removed calls a route that takes something off a counter, and returns how much.
func (r *running) removed(t *testing.T, method, path, body string) int64 {
	t.Helper()
	status, text := r.call(t, method, path, body)
	var got struct{ Removed *int64 }
	if err := json.Unmarshal([]byte(text), &got); err != nil || status != 200 || got.Removed == nil {
		t.Fatalf("%s %s %s: got %d %s (%v)", method, path, body, status, text, err)
	}
	return *got.Removed
}

func (r *running) exists(t *testing.T, counter string) bool {
	t.Helper()
	_, text := r.call(t, "GET", "/v1/counters/"+counter, "")
	_, list := r.call(t, "GET", "/v1/counters", "")
	exists := strings.Contains(text, `"exists":true`)
	if listed := strings.Contains(list, `"counter":"`+counter+`"`); listed != exists {
		t.Errorf("counter %s: listed %t, exists %t", counter, listed, exists)
	}
	return exists
}

func TestUpLooksAfterCounters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := start(t, dir)
	r.incr(t, `[{"counter":"a","delta":5},{"counter":"b","delta":1}]`)
	if got := r.removed(t, "POST", "/v1/reset", `{"counter":"a","id":"jan"}`); got != 5 {
		t.Errorf("reset: removed %d, want 5", got)
	}
	r.wantTotal(t, "a", 0)
	r.incr(t, `{"counter":"a","delta":2}`)
	if got := r.removed(t, "POST", "/v1/reset", `{"counter":"a","id":"jan"}`); got != 5 || !r.exists(t, "a") {
		t.Errorf("repeated: removed %d, want 5 as before", got)
	}
	r.wantTotal(t, "a", 2)
	if got := r.removed(t, "DELETE", "/v1/counters/a", ""); got != 2 || r.exists(t, "a") {
		t.Errorf("delete: removed %d, want 2, and it does not exist", got)
	}
	r.stop(t)
	r = start(t, dir)
	if r.exists(t, "a") || !r.exists(t, "b") {
		t.Error("after a restart the deleted counter is back, or the other one gone")
	}
	r.incr(t, `{"counter":"a"}`)
	if r.wantTotal(t, "a", 1); !r.exists(t, "a") {
		t.Error("an increment does not make a deleted counter exist")
	}
	if got := r.metric(t, "countmill_admin_changes_total"); got != 0 {
		t.Errorf("changes since the restart: got %v, want 0", got)
	}
	status, text := r.call(t, "PATCH", "/v1/counters/new", `{"shards":7}`)
	if status != 200 || text != `{"counter":"new","shards":7}`+"\n" {
		t.Errorf("raise: got %d %s", status, text)
	}
	if status, text = r.call(t, "PATCH", "/v1/counters/new", `{"shards":6}`); status != 409 || !strings.Contains(text, `"limit":"7 to 999"`) {
		t.Errorf("raise to less: got %d %s, want 409 that names 7", status, text)
	}
	r.incr(t, `{"counter":"new","delta":3}`)
	if _, text = r.call(t, "GET", "/v1/counters/new", ""); !strings.Contains(text, `"total":3,`) || !strings.Contains(text, `"shards":7,`) {
		t.Errorf("raised before its first increment: %s, want 3 in 7 shards", text)
	}
}

// Deleted counters are swept every hour by whoever aggregates, a day after their delete.
func TestDeletedCountersAreSwept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := protocoltest.New(protocoltest.Options{})
		err := s.Grow(t.Context(), []store.Growth{{Counter: "a", Shards: 1}})
		_, deleted := s.ResetCounter(t.Context(), store.ResetRequest{ID: wire.ResetID("a", "x"), Counter: "a", Look: store.Sum{Exists: true, At: time.Now()}, Delete: true})
		if err = errors.Join(err, deleted); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		b := &backends{store: s}
		runs := startAll(ctx, sweeps(Config{Roles: Aggregator, Logger: slog.New(slog.DiscardHandler)}, b))
		for hour, want := range []int{1, 1, 0} {
			if n := s.Record("a").Shards; n != want {
				t.Errorf("after %d times 12 hours and a half: %d shards, want %d", hour, n, want)
			}
			time.Sleep(12*time.Hour + 31*time.Minute)
		}
		cancel()
		if err := runs.rest(true); err != nil {
			t.Error(err)
		}
	})
}
