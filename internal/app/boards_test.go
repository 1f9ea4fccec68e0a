package app

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/store"
)

// The top of an index over a directory, and the place of a counter, in the next answer after the increments.
func TestBoardsOfADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := pebble.Open(pebble.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	indexSites(t, s)
	r := start(t, dir)
	r.waitReady(t)
	r.countSites(t)
	for _, query := range []string{"", "&window=today&tz=Asia/Kolkata", "&window=this-month"} {
		r.wantTop(t, query, "{[{page:s1:/49 491} {page:s0:/48 481}]}")
	}
	if status, text := r.call(t, "GET", "/v1/rank?index=sites&counter=page:s2:/47", ""); status != 200 || !strings.Contains(text, `"rank":3,"of":50,`) {
		t.Errorf("rank: got %d %s, want 3 of 50", status, text)
	}
	if status, text := r.call(t, "GET", "/v1/top?index=sites&window=1h", ""); status != 404 || !strings.Contains(text, "page:*=1m:6h") {
		t.Errorf("an hour of a rule without minutes: got %d %s, want 404 with the rule to add", status, text)
	}
	r.poll(t, "serving", func() bool { return r.indexState(t, "sites") == "serving" })
	if status, text := r.call(t, "GET", "/v1/top?index=sites&of=groups&n=1", ""); status != 200 || !strings.Contains(text, `"top":[{"counter":"=site:s1","total":4267,"rank":1}]`) {
		t.Errorf("top of groups: got %d %s, want =site:s1 of 4267", status, text)
	}
}

// indexSites adds rules to a store, and closes it.
func indexSites(t *testing.T, s store.Store) {
	t.Helper()
	for _, c := range []store.RuleChange{
		{Pattern: "page:*", Keep: store.Retention{Quarters: 400 * 24 * 3600e9}},
		{Index: &store.IndexChange{Step: store.CreateIndex, Index: store.Index{Name: "sites", Match: "page:{site}:*", Group: "site:{site}"}}},
	} {
		if _, err := s.ChangeRules(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// countSites counts 50 counters of the index, and a counter outside it.
func (r *running) countSites(t *testing.T) {
	t.Helper()
	var body []string
	for i := range 50 {
		body = append(body, fmt.Sprintf(`{"counter":"page:s%d:/%d","delta":%d}`, i%3, i, 10*i+1))
	}
	r.incr(t, "["+strings.Join(body, ",")+`,{"counter":"page:none","delta":1000}]`)
}

// wantTop compares the two best counters.
func (r *running) wantTop(t *testing.T, query, want string) {
	t.Helper()
	if top, text := r.top(t, query); fmt.Sprint(top) != want {
		t.Errorf("top%s: got %s, want %s", query, text, want)
	}
}

type topOfTwo struct {
	Top []struct {
		Counter string
		Total   int64
	}
}

func (r *running) top(t *testing.T, query string) (top topOfTwo, text string) {
	t.Helper()
	status, text := r.call(t, "GET", "/v1/top?index=sites&n=2"+query, "")
	if err := json.Unmarshal([]byte(text), &top); err != nil || status != 200 || len(top.Top) == 0 {
		t.Fatalf("top%s: got %d %s (%v)", query, status, text, err)
	}
	return top, text
}
