package api_test

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/auth/authtest"
)

// as is the answer to a GET of a handler.
func as(t *testing.T, h http.Handler, path string) (int, string) {
	t.Helper()
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
	return rec.Code, rec.Body.String()
}

func TestBadge(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 250)
	f := newFakeOf(map[string]int64{"page:/home": 1234567, "<script>&": -1000, long: math.MinInt64, "a.json": 5})
	srv, _ := start(t, f, api.Config{})
	for _, tc := range []struct{ counter, query, label, message string }{
		{"page:/home", "", "page:/home", "1,234,567"},
		{"page:/home", "?label=views", "views", "1,234,567"},
		{"page:/home", "?label=", "", "1,234,567"},
		{"<script>&", "", "<script>&", "-1,000"},
		{long, "", strings.Repeat("é", 39) + "…", "-9,223,372,036,854,775,808"},
		{"a.json", "", "a.json", "5"},
		{"nobody", "", "nobody", "0"},
	} {
		path := srv.URL + "/badge/" + url.PathEscape(tc.counter)
		status, text, header := call(t, "GET", path+".svg"+tc.query, "")
		if got := texts(t, text); status != 200 || strings.Join(got, "|") != tc.label+": "+tc.message+"|"+tc.label+"|"+tc.message {
			t.Errorf("%s.svg%s: got %d %q, want the label %q and %s", tc.counter, tc.query, status, got, tc.label, tc.message)
		}
		if got := header.Get("Cache-Control"); got != "public, max-age=10" {
			t.Errorf("Cache-Control is %q", got)
		}
		status, text, _ = call(t, "GET", path+".json"+tc.query, "")
		if status != 200 || !strings.Contains(text, `"message":"`+tc.message+`"`) || !strings.Contains(text, `"schemaVersion":1`) {
			t.Errorf("%s.json: got %d %s, want the message %s", tc.counter, status, text, tc.message)
		}
	}
	if status, text, _ := call(t, "GET", srv.URL+"/badge/page:.png", ""); status != 404 || !strings.Contains(text, ".svg or .json") {
		t.Errorf("a .png: got %d %s, want 404", status, text)
	}
}

// texts are the texts of an SVG, which must be well-formed and have no script.
func texts(t *testing.T, svg string) (all []string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(svg))
	in := ""
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if in = token.Name.Local; in == "text" || in == "title" {
				all = append(all, "")
			}
			if in == "script" {
				t.Fatalf("a script in %s", svg)
			}
		case xml.EndElement:
			in = ""
		case xml.CharData:
			if in == "text" || in == "title" {
				all[len(all)-1] += string(token)
			}
		}
	}
}

// Where callers have tokens, strangers see the badges of public counters alone. They do not learn
// whether another counter exists.
func TestBadgesArePublicWhereALineSaysSo(t *testing.T) {
	t.Parallel()
	f := newFakeOf(map[string]int64{"page:/home": 7, "shop:a": 8})
	a := serve(api.Services{Reader: f, Public: func(counter string) bool { return strings.HasPrefix(counter, "page:") }}, api.Config{})
	if status, _ := as(t, a, "/badge/page:%2Fhome.svg"); status != 200 {
		t.Errorf("a public counter: got %d, want 200", status)
	}
	there, existing := as(t, a, "/badge/shop:a.svg")
	_, missing := as(t, a, "/badge/shop:b.svg")
	if there != 404 || existing != missing || strings.Contains(existing, "8") {
		t.Errorf("another counter: got %d\n%s and\n%s, want one answer for both", there, existing, missing)
	}
	rec := httptest.NewRecorder()
	authtest.As(t, a, "shop", "shop:").ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/badge/shop:a.svg", nil))
	if kept := rec.Header().Get("Cache-Control"); rec.Code != 200 || kept != "private, max-age=10" || rec.Header().Get("Vary") != "Authorization" {
		t.Errorf("another counter for a caller who may read it: got %d, and caches may keep it: %q", rec.Code, kept)
	}
	if status, _ := as(t, authtest.As(t, a, "bar", "bar:"), "/badge/shop:a.svg"); status != 404 {
		t.Errorf("another counter for a caller who may not: got %d, want 404", status)
	}
}
