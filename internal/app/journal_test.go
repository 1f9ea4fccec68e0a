package app

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/store/storetest/fakestore"
)

// A journalPage is an answer of GET /v1/journal.
type journalPage struct {
	Entries []struct {
		Key, Counter, Part, Sender string
		Time                       time.Time
		Delta                      int64
	}
	Next, Previous string
	SettledUntil   time.Time `json:"settled_until"`
}

func (r *running) journal(t *testing.T, query string) (page journalPage) {
	t.Helper()
	status, text := r.call(t, "GET", "/v1/journal?"+query, "")
	if err := json.Unmarshal([]byte(text), &page); status != 200 || err != nil {
		t.Fatalf("%s: got %d %s (%v)", query, status, text, err)
	}
	return page
}

// A rule holds for the increments that come after its answer, and its entries outlive the process and
// the rule.
func TestJournalEndToEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := start(t, dir)
	r.waitReady(t)
	r.incr(t, `[{"counter":"billing:a","delta":1000}]`)
	if status, text := r.call(t, "POST", "/v1/rules/journal", `{"pattern":"billing:*","keep":"400d"}`); status != 200 || !strings.Contains(text, `"keep":"400d"`) {
		t.Fatalf("the rule: got %d %s", status, text)
	}
	for i := range 5 {
		r.incr(t, fmt.Sprintf(`[{"counter":"billing:a","delta":%d,"id":"order-%d"},{"counter":"x"}]`, i+1, i))
	}
	r.incr(t, `[{"counter":"billing:a","delta":3,"id":"order-2"}]`) // again
	page := r.journal(t, "counter=billing:a&limit=2")
	var deltas []int64
	for at := page; ; at = r.journal(t, "counter=billing:a&limit=2&after="+at.Next) {
		for _, e := range at.Entries {
			deltas = append(deltas, e.Delta)
		}
		if at.Next == "" {
			break
		}
	}
	if want := []int64{1, 2, 3, 4, 5}; !slices.Equal(deltas, want) {
		t.Errorf("pages have %v, want %v", deltas, want)
	}
	if one := r.journal(t, "counter=billing:a&id=order-3"); len(one.Entries) != 1 || one.Entries[0].Delta != 4 || one.Next != "" || one.SettledUntil.IsZero() {
		t.Errorf("the increment of an id: %+v", one)
	}
	if before := r.journal(t, "counter=billing:a&limit=1&before="+page.Entries[1].Key); len(before.Entries) != 1 || before.Entries[0].Key != page.Entries[0].Key || before.Previous != "" || before.Next != page.Entries[0].Key {
		t.Errorf("before the second: %+v", before)
	}
	if status, text := r.call(t, "GET", "/v1/journal/records?limit=1000", ""); status != 200 || strings.Count(text, `"data":`) != 6 {
		t.Errorf("records: got %d %s, want the opening balances and 5", status, text)
	}
	if status, text := r.call(t, "DELETE", "/v1/rules/journal?pattern="+url.QueryEscape("billing:*"), ""); status != 200 {
		t.Fatalf("the removal: got %d %s", status, text)
	}
	r.incr(t, `[{"counter":"billing:a","delta":100}]`)
	r.stop(t)
	r = start(t, dir)
	defer r.stop(t)
	if again := r.journal(t, "counter=billing:a"); len(again.Entries) != 5 {
		t.Errorf("after a removal and a restart: %d entries, want 5", len(again.Entries))
	}
	r.wantTotal(t, "billing:a", 1115)
}

// A reader leaves opening balances to the rounds of an aggregator.
func TestReaderWritesNoOpeningBalances(t *testing.T) {
	t.Parallel()
	r := openApart(t).run(t, Config{Roles: Reader})
	defer r.stop(t)
	if status, text := r.call(t, "POST", "/v1/rules/journal", `{"pattern":"billing:*","keep":"400d"}`); status != 200 {
		t.Fatalf("the rule: got %d %s", status, text)
	}
	if status, text := r.call(t, "GET", "/v1/journal/records", ""); status != 200 || !strings.Contains(text, `"records":[]`) {
		t.Errorf("records: got %d %s, want none", status, text)
	}
}

// Before the aggregator has read the rules any counter may have a journal, so that its first increments name their senders too.
func TestJournalBeforeTheRulesAreKnown(t *testing.T) {
	t.Parallel()
	a, err := aggregator.New(nil, fakestore.New(fakestore.Options{}), aggregator.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if s := (&aggregating{Aggregator: a}); !s.journal("billing:a") {
		t.Error("a counter has no journal by rules that nobody has read")
	}
}

// Entries say which token sent them, also of requests that share a batch.
func TestJournalNamesSenders(t *testing.T) {
	t.Parallel()
	scopes := []auth.Scope{auth.Publish, auth.Admin}
	file, secrets := authtest.File(t, auth.Token{Name: "shop", Scopes: scopes}, auth.Token{Name: "web", Scopes: scopes})
	a, err := New(Config{Listen: "127.0.0.1:0", Store: "pebble:" + escapeDir(t.TempDir()), Tokens: file})
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, a)
	defer r.stop(t)
	r.addRule(t, "journal", "billing:*", "400d", "Authorization", "Bearer "+secrets[0])
	var all sync.WaitGroup
	for i, secret := range secrets {
		all.Go(func() {
			for n := range 10 {
				body := fmt.Sprintf(`[{"counter":"billing:a","delta":%d}]`, 1+99*i)
				headers := []string{"Content-Type", "application/json", "Authorization", "Bearer " + secret}
				switch n % 3 {
				case 1:
					headers = append(headers, "Idempotency-Key", fmt.Sprint("k", n))
				case 2:
					body = fmt.Sprintf(`[{"counter":"billing:a","delta":%d,"id":"%d-%d"}]`, 1+99*i, i, n)
				}
				if status, text := r.call(t, "POST", "/v1/increments", body, headers...); status != 202 {
					t.Errorf("got %d %s", status, text)
				}
			}
		})
	}
	all.Wait()
	status, text := r.call(t, "GET", "/v1/journal?counter=billing:a&limit=1000", "", "Authorization", "Bearer "+secrets[0])
	var page journalPage
	if err := json.Unmarshal([]byte(text), &page); status != 200 || err != nil {
		t.Fatalf("got %d %s (%v)", status, text, err)
	}
	sums := make(map[string]int64)
	for _, e := range page.Entries {
		sums[e.Sender] += e.Delta
	}
	if len(sums) != 2 || sums["shop"] != 10 || sums["web"] != 1000 {
		t.Errorf("sums by sender: got %v, want 10 of shop and 1000 of web", sums)
	}
}
