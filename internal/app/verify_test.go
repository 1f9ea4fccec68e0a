package app

import (
	"encoding/json"
	"fmt"
	"net/url"
	"testing"
)

// verify is the kinds and counters of all problems, and how many shards were looked at.
func (r *running) verify(t *testing.T, fix bool) (problems []string, shards int) {
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
			Shards int
			Next   string `json:"next_page_token"`
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
		shards += got.Shards
		if token = got.Next; token == "" {
			return problems, shards
		}
	}
}

func (r *running) wantProblems(t *testing.T, fix bool, want ...string) {
	t.Helper()
	if got, _ := r.verify(t, fix); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("problems %q, want %q", got, want)
	}
}
