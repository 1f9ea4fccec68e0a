package api_test

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"net/url"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/api"
)

func TestBadge(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 250)
	s := ask(t, api.Services{Reader: newFakeOf(map[string]int64{"page:/home": 1234567, "<script>&": -1000, long: math.MinInt64, "a.json": 5})}, api.Config{})
	for _, tc := range []struct{ counter, query, label, message string }{
		{"page:/home", "", "page:/home", "1,234,567"},
		{"page:/home", "?label=views", "views", "1,234,567"},
		{"page:/home", "?label=", "", "1,234,567"},
		{"<script>&", "", "<script>&", "-1,000"},
		{long, "", strings.Repeat("é", 39) + "…", "-9,223,372,036,854,775,808"},
		{"a.json", "", "a.json", "5"},
		{"nobody", "", "nobody", "0"},
	} {
		path := "/badge/" + url.PathEscape(tc.counter)
		status, text, header := s.call(t, "GET", path+".svg"+tc.query, "")
		if got := texts(t, text); status != 200 || strings.Join(got, "|") != tc.label+": "+tc.message+"|"+tc.label+"|"+tc.message {
			t.Errorf("%s.svg%s: got %d %q, want the label %q and %s", tc.counter, tc.query, status, got, tc.label, tc.message)
		}
		if got := header.Get("Cache-Control"); got != "public, max-age=10" {
			t.Errorf("Cache-Control is %q", got)
		}
		s.want(t, "GET", path+".json"+tc.query, "", 200, `"message":"`+tc.message+`"`)
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
	s := ask(t, api.Services{
		Reader: newFakeOf(map[string]int64{"page:/home": 7, "shop:a": 8}), Public: func(counter string) bool { return strings.HasPrefix(counter, "page:") },
	}, api.Config{})
	s.want(t, "GET", "/badge/page:%2Fhome.svg", "", 200, "")
	status, existing, _ := s.call(t, "GET", "/badge/shop:a.svg", "")
	if _, missing, _ := s.call(t, "GET", "/badge/shop:b.svg", ""); status != 404 || existing != missing || strings.Contains(existing, "8") {
		t.Errorf("another counter: got %d\n%s and\n%s, want one answer for both", status, existing, missing)
	}
	status, _, header := s.of(t, "shop:").call(t, "GET", "/badge/shop:a.svg", "")
	if kept := header.Get("Cache-Control"); status != 200 || kept != "private, max-age=10" || header.Get("Vary") != "Authorization" {
		t.Errorf("another counter for a caller who may read it: got %d, and caches may keep it: %q", status, kept)
	}
	s.of(t, "bar:").want(t, "GET", "/badge/shop:a.svg", "", 404, "")
}
