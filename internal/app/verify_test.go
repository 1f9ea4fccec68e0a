package app

import (
	"encoding/json"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
)

// verify is the kinds and counters of all problems, and how many shards were looked at.
func (r *running) verify(t *testing.T, fix bool) (problems []string, shards, cached int) {
	t.Helper()
	for token := ""; ; {
		var status int
		var text string
		if fix {
			body, _ := json.Marshal(map[string]any{"limit": 100, "page_token": token})
			status, text = r.call(t, "POST", "/v1/verify", string(body))
		} else {
			query := url.Values{"limit": {"100"}}
			if token != "" {
				query.Set("page_token", token)
			}
			status, text = r.call(t, "GET", "/v1/verify?"+query.Encode(), "")
		}
		var got struct {
			Problems []struct {
				Kind, Counter string
				Fixed         bool
			}
			Shards, Cached, Unchecked int
			Next                      string `json:"next_page_token"`
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil || status != 200 {
			t.Fatalf("verify: got %d %s", status, text)
		}
		for _, p := range got.Problems {
			problems = append(problems, p.Kind+" "+p.Counter)
			if p.Fixed != fix {
				t.Errorf("problem %+v, want it fixed: %t", p, fix)
			}
		}
		shards, cached = shards+got.Shards, cached+got.Cached-got.Unchecked
		if token = got.Next; token == "" {
			return problems, shards, cached
		}
	}
}

func (r *running) wantProblems(t *testing.T, fix bool, want ...string) {
	t.Helper()
	if got, _, _ := r.verify(t, fix); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("problems %q, want %q", got, want)
	}
}

// Verify finds nothing while increments are counted. Then it finds the planted faults, and
// the totals show its repairs.
func testVerify(t *testing.T, r *running) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 20 {
			r.incr(t, fmt.Sprintf(`[{"counter":"c%02d"},{"counter":"all"},{"counter":"d%02d"}]`, i, i))
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		r.wantProblems(t, false)
	}
	s := serviceOf[tending](t, r.App).store
	for _, a := range []store.ShardDelta{store.NewShardDelta("all", 200, 5), store.NewShardDelta("lost", 1, 7)} {
		if _, err := s.Fold(t.Context(), &store.Commit{Adds: []store.ShardDelta{a}}); err != nil {
			t.Fatal(err)
		}
	}
	r.wantTotal(t, "all", 20)
	for _, fix := range []bool{false, true} {
		got, shards, _ := r.verify(t, fix)
		if fmt.Sprint(got) != "[beyond all orphan lost]" && fmt.Sprint(got) != "[orphan lost beyond all]" || shards < 43 {
			t.Errorf("problems %q of %d shards, want shards beyond and an orphan, of at least 43", got, shards)
		}
	}
	r.wantProblems(t, false)
	r.wantTotal(t, "all", 25)
	r.wantTotal(t, "lost", 7)
}

func TestVerifyOnPebble(t *testing.T) {
	t.Parallel()
	testVerify(t, start(t, t.TempDir()))
}

func TestVerifyOnDatastore(t *testing.T) {
	t.Setenv("DATASTORE_EMULATOR_HOST", emulator.Firestore(t))
	a, err := New(Config{Listen: "127.0.0.1:0", Store: "datastore://" + emulator.Project(), Reader: reader.Config{DefaultStaleness: -1}})
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, a)
	defer r.stop(t)
	r.waitReady(t)
	testVerify(t, r)
	if status, text := r.call(t, "GET", "/v1/verify?page_token="+url.QueryEscape("MXNnYXJiYWdl"), ""); status != 400 {
		t.Errorf("a forged page token: got %d %s, want 400", status, text)
	}
	testVerifyCache(t, r)
}

// A cached total may be old, but not wrong.
func testVerifyCache(t *testing.T, r *running) {
	serviceOf[tending](t, r.App).cache.(droppable).Drop(t.Context(), []string{"all", "lost"})
	r.call(t, "GET", "/v1/totals?counter=all&counter=c01&max_staleness=1m", "")
	r.incr(t, `{"counter":"all"}`)
	found, err := serviceOf[tending](t, r.App).cache.Get(t.Context(), []string{"all"})
	if err != nil || len(found) != 1 || found[0].Total != 25 {
		t.Fatalf("cached: %v, %v; want the 25 of a moment ago", found, err)
	}
	if got, _, cached := r.verify(t, false); len(got) != 0 || cached < 2 {
		t.Errorf("problems %q, %d cached totals checked; want none of 2", got, cached)
	}
	wrong := []store.CachedTotal{
		{Counter: "all", Total: 24, Exists: true, AsOf: found[0].AsOf.Add(time.Microsecond)},
		{Counter: "c01", Total: 1, Exists: true, AsOf: time.Now().Add(time.Hour)},
	}
	if err := serviceOf[tending](t, r.App).cache.Set(t.Context(), wrong, time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, fix := range []bool{false, true} {
		r.wantProblems(t, fix, "cached all", "cached c01")
	}
	r.wantProblems(t, false)
	r.wantTotal(t, "all", 26)
}
