package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"time"
)

// compare compares every counter and every group with the acknowledged increments, while nothing is on its way.
func (g *grouping) compare() {
	g.t.Helper()
	g.pausing.Lock()
	defer g.pausing.Unlock()
	groups, counters := make(map[string]int64), make(map[string]int64)
	for i := range g.counted {
		if n := g.counted[i].Load(); n != 0 {
			counters[g.shape.counter(i)] = n
			groups[g.shape.group(i)] += n
		}
	}
	g.same("page:", counters)
	g.same("=site:", groups)
}

// same wants exactly these totals under a prefix.
func (g *grouping) same(prefix string, want map[string]int64) {
	g.t.Helper()
	until(g.t, time.Minute, "countmill to be ready", g.out.ready)
	got, err := g.list(prefix)
	if err != nil {
		g.t.Fatalf("listing %s: %v", prefix, err)
	}
	if maps.Equal(got, want) {
		return
	}
	wrong := 0
	for name, n := range want {
		if got[name] != n {
			if wrong++; wrong <= 5 {
				g.t.Errorf("%s is %d, want %d", name, got[name], n)
			}
		}
	}
	g.t.Fatalf("%d of %d totals under %s are wrong; %d were listed", wrong, len(want), prefix, len(got))
}

// list returns the totals of all counters under a prefix.
func (g *grouping) list(prefix string) (map[string]int64, error) {
	got := make(map[string]int64)
	for token := ""; ; {
		query := url.Values{"prefix": {prefix}, "limit": {"1000"}}
		if token != "" {
			query.Set("page_token", token)
		}
		status, text := g.out.up().get("/v1/counters?" + query.Encode())
		var page struct {
			Totals []answerTotal
			Next   string `json:"next_page_token"`
		}
		if err := json.Unmarshal([]byte(text), &page); err != nil || status != http.StatusOK {
			return nil, fmt.Errorf("got %d %s (%w)", status, text, err)
		}
		for _, total := range page.Totals {
			got[total.Counter] = total.Total
		}
		if token = page.Next; token == "" {
			return got, nil
		}
	}
}

// verify asks the server itself, while increments come in.
func (g *grouping) verify() {
	g.t.Helper()
	began, groups := time.Now(), 0
	for token := ""; ; {
		query := url.Values{}
		if token != "" {
			query.Set("page_token", token)
		}
		req, err := http.NewRequest(http.MethodGet, g.out.up().url+"/v1/verify?"+query.Encode(), http.NoBody)
		if err != nil {
			g.t.Fatal(err)
		}
		status, text := answerBy(patient, req)
		var page struct {
			Problems []json.RawMessage
			Groups   int
			Next     string `json:"next_page_token"`
		}
		if err := json.Unmarshal([]byte(text), &page); err != nil || status != http.StatusOK || len(page.Problems) > 0 {
			g.t.Fatalf("verify: got %d %.2000s (%v)", status, text, err)
		}
		groups += page.Groups
		if token = page.Next; token == "" {
			break
		}
	}
	if want := (g.shape.counters + groupSize - 1) / groupSize; groups != want {
		g.t.Errorf("verify compared %d groups, want %d", groups, want)
	}
	g.t.Logf("verify compared %d groups with %d counters in %s under load", groups, g.shape.counters, time.Since(began).Round(time.Second/10))
}
