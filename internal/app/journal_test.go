package app

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

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
	a, err := aggregator.New(nil, protocoltest.New(protocoltest.Options{}), aggregator.Config{})
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
	r := startWith(t, Config{Tokens: file})
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
	var page struct {
		Entries []struct {
			Sender string
			Delta  int64
		}
	}
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
