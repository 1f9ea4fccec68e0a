package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
	"github.com/countmill/countmill/internal/clock"
)

// A token that has reached a limit gets 429, with the limit and when to come again, before its
// body is read; other tokens do not notice.
func TestTokensHaveLimits(t *testing.T) {
	t.Parallel()
	for field, l := range map[string]auth.Limits{
		"increments_per_second": {Increments: 1},
		"bytes_per_second":      {Bytes: 10},
		"new_counters_per_hour": {NewCounters: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(clock.Earliest)) // a bubble begins in the year 2000
			s := &recorder{}
			h := newIncrements(s, IncrementsConfig{})
			as := authtest.With(t, h, auth.Token{Name: "limited", Scopes: []auth.Scope{auth.Publish}, Limits: l})
			if resp := post(`[{"counter":"a"},{"counter":"b"},{"counter":"c"}]`).do(as); resp.StatusCode != http.StatusAccepted {
				t.Fatalf("%s: the first request: got %d", field, resp.StatusCode)
			}
			body := &toldReader{Reader: strings.NewReader(`[{"counter":"new"}]`)}
			r := httptest.NewRequest(http.MethodPost, "/v1/increments", body)
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			as.ServeHTTP(w, r)
			p := problemOf(t, w.Result())
			if p.Status != 429 || p.Type != "urn:countmill:problem:quota" || p.Field != field || p.Limit == "" || w.Header().Get("Retry-After") == "0" {
				t.Errorf("%s: got %+v and Retry-After %q", field, p, w.Header().Get("Retry-After"))
			}
			if body.read != (l.NewCounters > 0) {
				t.Errorf("%s: body read: %t", field, body.read)
			}
			if resp := post(`{"counter":"other"}`).do(authtest.As(t, h, "other")); resp.StatusCode != http.StatusAccepted {
				t.Errorf("%s: another caller: got %d", field, resp.StatusCode)
			}
			after, err := time.ParseDuration(w.Header().Get("Retry-After") + "s")
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(after)
			if resp := post(`{"counter":"new"}`).do(as); resp.StatusCode != http.StatusAccepted {
				t.Errorf("%s: after %s: got %d", field, after, resp.StatusCode)
			}
			if got := len(s.got()); got != 3 {
				t.Errorf("%s: %d requests were counted, want 3", field, got)
			}
			if h.queue.under != 0 {
				t.Errorf("%s: %d increments are under way", field, h.queue.under)
			}
		})
	}
}
