package api_test

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/api"
)

// Any body is refused as a problem, or read as encoding/json reads it.
func FuzzBody(f *testing.F) {
	for _, body := range []string{`{"counters":["a","b/c"]}`, `{"counters":["\u00e9"]}`, `{"counters":[null]}`, `{"Counters":["a"]}`, `{"counters":["a"],"counters":[]}`, `null`, "{\"counters\":[\"\xff\"]}"} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		fake := newFake()
		h := newReader(fake, api.Config{})
		defer h.CloseStreams()
		rec := httptest.NewRecorder()
		req := httptest.NewRequest("POST", "/v1/totals", strings.NewReader(body))
		req.Header.Set("Content-Type", "application/json")
		h.ServeHTTP(rec, req)
		checkAnswer(t, req, rec.Result(), rec.Body.Bytes())
		if rec.Code == 400 {
			return
		}
		var want struct {
			Counters []string `json:"counters"`
		}
		if err := json.Unmarshal([]byte(body), &want); rec.Code != 200 || err != nil || !slices.Equal(want.Counters, fake.asked) {
			t.Errorf("%q: status %d, asked for %q; encoding/json reads %q, %v", body, rec.Code, fake.asked, want.Counters, err)
		}
	})
}
