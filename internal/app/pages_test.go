package app

import (
	"net/http"
	"testing"

	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/auth/authtest"
)

// A web page whose name leads to this machine may not call, unless callers have tokens
// or the operator lets anybody call.
func TestHostsOfOtherNames(t *testing.T) {
	t.Parallel()
	tokens, secrets := authtest.File(t, auth.Token{Name: "a", Scopes: []auth.Scope{auth.Read}})
	for name, tc := range map[string]struct {
		cfg  Config
		want int
	}{
		"no tokens": {Config{}, http.StatusForbidden},
		"tokens":    {Config{Tokens: tokens}, http.StatusOK},
		"insecure":  {Config{Insecure: true}, http.StatusOK},
	} {
		r := startWith(t, tc.cfg)
		for host, want := range map[string]int{"evil.example": tc.want, "localhost:1": http.StatusOK} {
			req, err := http.NewRequest("GET", r.url+"/v1/counters", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = host
			req.Header.Set("Authorization", "Bearer "+secrets[0])
			res, err := r.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if res.StatusCode != want {
				t.Errorf("%s, for %s: got %d, want %d", name, host, res.StatusCode, want)
			}
		}
	}
}

// Browsers send some requests of other pages without asking. A request that changes something
// is refused, unless --cors-origin names the page.
func TestPagesOfOtherOrigins(t *testing.T) {
	t.Parallel()
	const page = "https://page.example"
	for name, tc := range map[string]struct {
		origins []string
		header  []string
		want    int
	}{
		"no page":           {nil, nil, http.StatusAccepted},
		"other":             {nil, []string{"Origin", page}, http.StatusForbidden},
		"other by fetch":    {nil, []string{"Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		"null":              {nil, []string{"Origin", "null"}, http.StatusForbidden},
		"named":             {[]string{page}, []string{"Origin", page, "Sec-Fetch-Site", "cross-site"}, http.StatusAccepted},
		"not the one":       {[]string{page}, []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		"any":               {[]string{"*"}, []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, http.StatusAccepted},
		"same":              {nil, []string{"Sec-Fetch-Site", "same-origin"}, http.StatusAccepted},
		"typed by a person": {nil, []string{"Sec-Fetch-Site", "none"}, http.StatusAccepted},
	} {
		r := startWith(t, Config{CORSOrigins: tc.origins, Insecure: true})
		if status, text := r.call(t, "POST", "/v1/increments", `{"counter":"a"}`, tc.header...); status != tc.want {
			t.Errorf("%s: got %d %s, want %d", name, status, text, tc.want)
		}
		if status, text := r.call(t, "GET", "/v1/counters/a", "", tc.header...); status != http.StatusOK { // a page cannot read the answer
			t.Errorf("%s: GET: got %d %s", name, status, text)
		}
		r.stop(t)
	}
}
