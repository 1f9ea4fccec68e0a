package api_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/internal/api/apitest"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
)

func zoned(t *testing.T, name string) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// twoRows are two days of Kolkata. The second is not over.
func twoRows(t *testing.T) reader.Series {
	kolkata := zoned(t, "Asia/Kolkata")
	day := func(d int) time.Time { return time.Date(2026, 11, d, 0, 0, 0, 0, kolkata) }
	return reader.Series{
		Rows: []reader.Row{
			{Counter: `a"b`, Time: day(22), End: day(23), Value: 86400},
			{Counter: `a"b`, Time: day(23), End: day(24), Value: -30, Partial: true},
		},
		AsOf: day(23).Add(time.Minute), Begin: day(1).UTC(), Unbucketed: int128.Of(12),
	}
}

func TestSeries(t *testing.T) {
	t.Parallel()
	f := &fakeReader{series: twoRows(t)}
	srv, _ := start(t, f, api.Config{})
	doc := apitest.Load(t)
	for _, tt := range []struct{ query, accept, want string }{
		{"", "", `[{"time":"2026-11-22T00:00:00+05:30","counter":"a\"b","value":86400,"partial":false},` + "\n" +
			`{"time":"2026-11-23T00:00:00+05:30","counter":"a\"b","value":-30,"partial":true}]` + "\n"},
		{"&format=string", "application/json", `[{"time":"2026-11-22T00:00:00+05:30","counter":"a\"b","value":"86400","partial":false},` + "\n" +
			`{"time":"2026-11-23T00:00:00+05:30","counter":"a\"b","value":"-30","partial":true}]` + "\n"},
		{"", "text/html, text/csv;q=0.5", "time,counter,value,partial\n" +
			"2026-11-22T00:00:00+05:30,\"a\"\"b\",86400,false\n2026-11-23T00:00:00+05:30,\"a\"\"b\",-30,true\n"},
	} {
		path := "/v1/series?counter=a%22b&step=1d&tz=Asia/Kolkata&from=2026-11-22&to=2026-11-23T00:01:00%2B05:30" + tt.query
		status, text, header := call(t, http.MethodGet, srv.URL+path, "", "Accept", tt.accept)
		if status != 200 || text != strings.TrimSpace(tt.want) {
			t.Errorf("%s: got %d\n%s\nwant\n%s", tt.query, status, text, tt.want)
		}
		for name, want := range map[string]string{
			"Countmill-As-Of": "2026-11-22T18:31:00.000000Z", "Countmill-Begin": "2026-10-31T18:30:00Z", "Countmill-Without-Curve": "12", "Vary": "Accept",
		} {
			if got := header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", tt.query, name, got, want)
			}
		}
		if !strings.Contains(tt.accept, "csv") {
			doc.CheckAnswer(t, http.MethodGet, "/v1/series", status, header, []byte(text))
		}
	}
	q := f.query
	if from := time.Date(2026, 11, 22, 0, 0, 0, 0, zoned(t, "Asia/Kolkata")); !q.From.Equal(from) || q.From.Location().String() != "Asia/Kolkata" || q.To.Sub(q.From) != 24*time.Hour+time.Minute {
		t.Errorf("from %s to %s, want from %s, in its zone", q.From, q.To, from)
	}
	call(t, http.MethodGet, srv.URL+"/v1/series?counter=a", "")
	if q := f.query; q.To.Sub(q.From) != 24*time.Hour || time.Since(q.To) > time.Minute || q.From.Location() != time.UTC {
		t.Errorf("without parameters: from %s to %s", q.From, q.To)
	}
}

// A date is the first moment of its day, also where the clock skips midnight or shows it twice.
func TestDatesOfSeries(t *testing.T) {
	t.Parallel()
	f := &fakeReader{series: twoRows(t)}
	srv, _ := start(t, f, api.Config{})
	for query, want := range map[string][2]string{
		"tz=America/Havana&from=2026-03-08&to=2026-03-09": {"2026-03-08T01:00:00-04:00", "2026-03-09T00:00:00-04:00"},
		"tz=America/Havana&from=2026-03-07&to=2026-03-08": {"2026-03-07T00:00:00-05:00", "2026-03-08T01:00:00-04:00"},
		"tz=Asia/Amman&from=2020-10-30&to=2020-10-31":     {"2020-10-30T00:00:00+03:00", "2020-10-31T00:00:00+02:00"},
		"tz=Asia/Kolkata&from=2026-11-22&to=2026-11-23":   {"2026-11-22T00:00:00+05:30", "2026-11-23T00:00:00+05:30"},
	} {
		if status, text, _ := call(t, http.MethodGet, srv.URL+"/v1/series?counter=a&"+query, ""); status != 200 {
			t.Errorf("%s: got %d %s", query, status, text)
		}
		if got := [2]string{f.query.From.Format(time.RFC3339), f.query.To.Format(time.RFC3339)}; got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

// A row whose sum does not fit 64 bits has no value. The others have theirs.
func TestSeriesOfARowThatOverflows(t *testing.T) {
	t.Parallel()
	f := &fakeReader{series: twoRows(t)}
	f.series.Rows[0].Value, f.series.Rows[0].Overflow = 0, true
	srv, _ := start(t, f, api.Config{})
	for accept, want := range map[string]string{
		"": `[{"time":"2026-11-22T00:00:00+05:30","counter":"a\"b","value":null,"error":"urn:countmill:problem:overflow","partial":false},` + "\n" +
			`{"time":"2026-11-23T00:00:00+05:30","counter":"a\"b","value":-30,"partial":true}]`,
		"text/csv": "time,counter,value,partial\n2026-11-22T00:00:00+05:30,\"a\"\"b\",overflow,false\n2026-11-23T00:00:00+05:30,\"a\"\"b\",-30,true",
	} {
		status, text, header := call(t, http.MethodGet, srv.URL+"/v1/series?counter=a", "", "Accept", accept)
		if status != 200 || text != want {
			t.Errorf("as %q: got %d\n%s\nwant\n%s", accept, status, text, want)
		}
		if accept == "" {
			apitest.Load(t).CheckAnswer(t, http.MethodGet, "/v1/series", status, header, []byte(text))
		}
	}
}

func TestSeriesProblems(t *testing.T) {
	t.Parallel()
	f := &fakeReader{series: twoRows(t)}
	srv, _ := start(t, f, api.Config{})
	for query, field := range map[string]string{
		"counter=a&step=7m":      "step",
		"counter=a&compare=x":    "compare",
		"counter=a&tz=Local":     "tz",
		"counter=a&tz=":          "tz",
		"counter=a&tz=../passwd": "tz",
		"counter=a&from=noon":    "from",
		"counter=a&to=2026-13-1": "to",
	} {
		status, text, _ := call(t, http.MethodGet, srv.URL+"/v1/series?"+query, "")
		if status != 400 || !strings.Contains(text, `"field":"`+field+`"`) || !strings.Contains(text, `"limit":`) {
			t.Errorf("%q: got %d %s, want 400 about %s with its limit", query, status, text, field)
		}
	}
	for _, tt := range []struct {
		err    error
		status int
		want   string
	}{
		{&reader.NoSeriesError{Counter: "a"}, 404, "urn:countmill:problem:no-series"},
		{countmill.ErrUnavailable, 503, "urn:countmill:problem:unavailable"},
		{&countmill.FieldError{Field: "step", Problem: "gives too many rows", Limit: "10000 rows"}, 400, `"field":"step"`},
	} {
		f.seriesErr = tt.err
		if status, text, _ := call(t, http.MethodGet, srv.URL+"/v1/series?counter=a", ""); status != tt.status || !strings.Contains(text, tt.want) {
			t.Errorf("%v: got %d %s", tt.err, status, text)
		}
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 23, 10, 2, 0, 0, time.UTC)
	f := &fakeAdmin{settings: store.Settings{Version: 4, Rules: &store.Rules{Series: []store.Rule{
		{Pattern: "page:*", Keep: store.Retention{Minutes: 6 * time.Hour, Quarters: 400 * 24 * time.Hour}, Since: began},
		{Pattern: "b", Keep: store.Retention{Quarters: 30 * 24 * time.Hour}, Since: began, Ended: began.Add(time.Hour), Filled: store.Period{From: began.AddDate(-1, 0, 0), To: began}},
	}, Journal: []store.Rule{{Pattern: "billing:*", Keep: store.Retention{Entries: 400 * 24 * time.Hour, Paged: true}, Since: began}}}}}
	doc := apitest.Load(t)
	const shown = `{"version":4,"series":[{"pattern":"page:*","keep":"1m:6h,15m:400d","begin":"2026-11-23T10:02:00Z","ended":null,"filled_from":null,"filled_to":null},` +
		`{"pattern":"b","keep":"15m:30d","begin":"2026-11-23T10:02:00Z","ended":"2026-11-23T11:02:00Z","filled_from":"2025-11-23T10:02:00Z","filled_to":"2026-11-23T10:02:00Z"}],` +
		`"journal":[{"pattern":"billing:*","keep":"400d,paged","begin":"2026-11-23T10:02:00Z","ended":null,"filled_from":null,"filled_to":null}]}` + "\n"
	for _, tt := range []struct{ method, target, body, asked string }{
		{http.MethodGet, "/v1/rules", "", "rules"},
		{http.MethodPost, "/v1/rules/series", `{"pattern":"page:*","keep":"1m:6h,15m:400d"}`, `add series "page:*" 1m:6h,15m:400d`},
		{http.MethodDelete, "/v1/rules/series?pattern=" + url.QueryEscape("page:*"), "", `remove series "page:*"`},
		{http.MethodPost, "/v1/rules/series/filled", `{"pattern":"page:*","from":"2026-01-01T01:00:00+01:00","to":"2026-02-01T00:00:00.5Z"}`,
			`fill "page:*" 2026-01-01 00:00:00 +0000 UTC 2026-02-01 00:00:00 +0000 UTC`},
		{http.MethodPost, "/v1/rules/journal", `{"pattern":"billing:*","keep":"400d,paged"}`, `add journal "billing:*" 400d,paged`},
		{http.MethodDelete, "/v1/rules/journal?pattern=" + url.QueryEscape("billing:*"), "", `remove journal "billing:*"`},
	} {
		rec := change(t, f, doc, tt.method, tt.target, tt.body)
		if rec.Code != 200 || rec.Body.String() != shown || f.asked != tt.asked {
			t.Errorf("%s %s: got %d %s, asked %s, want %s", tt.method, tt.target, rec.Code, rec.Body, f.asked, tt.asked)
		}
	}
	for _, tt := range []struct{ method, target, body, want string }{
		{http.MethodPost, "/v1/rules/series", `{"pattern":"page:*","keep":"1h:6h"}`, `"field":"keep"`},
		{http.MethodPost, "/v1/rules/series/filled", `{"pattern":"a","from":"2026-01-01","to":"2026-02-01T00:00:00Z"}`, `"field":"from"`},
		{http.MethodPost, "/v1/rules/journal", `{"pattern":"page:*","keep":"1h"}`, `"field":"keep"`},
	} {
		if rec := change(t, f, doc, tt.method, tt.target, tt.body); rec.Code != 400 || !strings.Contains(rec.Body.String(), tt.want) {
			t.Errorf("%s %s %s: got %d %s", tt.method, tt.target, tt.body, rec.Code, rec.Body)
		}
	}
	if rec := change(t, &fakeAdmin{settings: store.Settings{Version: 1}}, doc, http.MethodGet, "/v1/rules", ""); rec.Body.String() != `{"version":1,"series":[],"journal":[]}`+"\n" {
		t.Errorf("without rules: got %d %s", rec.Code, rec.Body)
	}
	f.err = store.ErrNoRule
	if rec := change(t, f, doc, http.MethodDelete, "/v1/rules/series?pattern=a", ""); rec.Code != 404 || !strings.Contains(rec.Body.String(), "no-rule") {
		t.Errorf("a rule that does not exist: got %d %s", rec.Code, rec.Body)
	}
	for err, want := range map[error]struct {
		status int
		says   string
	}{countmill.ErrUnavailable: {503, ":unavailable"}, countmill.ErrOutcomeUnknown: {504, "maybe done: repeat it"}} {
		f.err = fmt.Errorf("change the rules: %w", err)
		for _, r := range [][3]string{
			{http.MethodDelete, "/v1/rules/series?pattern=a", ""}, {http.MethodPost, "/v1/rules/series", `{"pattern":"a","keep":"15m:30d"}`},
			{http.MethodPost, "/v1/rules/series/filled", `{"pattern":"a","from":"2026-01-01T00:00:00Z","to":"2026-02-01T00:00:00Z"}`},
			{http.MethodDelete, "/v1/rules/journal?pattern=a", ""}, {http.MethodPost, "/v1/rules/journal", `{"pattern":"a","keep":"30d"}`},
		} {
			if rec := change(t, f, doc, r[0], r[1], r[2]); rec.Code != want.status || !strings.Contains(rec.Body.String(), want.says) {
				t.Errorf("%s %s, %v: got %d %s, want %d and %s", r[0], r[1], f.err, rec.Code, rec.Body, want.status, want.says)
			}
		}
	}
}
