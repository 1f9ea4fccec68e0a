package api_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
)

// seriesOf are two days of Kolkata. The second is not over.
func seriesOf(t *testing.T) *fakeReader {
	t.Helper()
	kolkata, err := time.LoadLocation("Asia/Kolkata")
	if err != nil {
		t.Fatal(err)
	}
	day := func(d int) time.Time { return time.Date(2026, 11, d, 0, 0, 0, 0, kolkata) }
	return &fakeReader{series: reader.Series{
		Rows: []reader.Row{
			{Counter: `a"b`, Time: day(22), End: day(23), Value: 86400},
			{Counter: `a"b`, Time: day(23), End: day(24), Value: -30, Partial: true},
		},
		AsOf: day(23).Add(time.Minute), Begin: day(1).UTC(), Unbucketed: int128.Of(12),
	}}
}

func TestSeries(t *testing.T) {
	t.Parallel()
	f := seriesOf(t)
	s := ask(t, api.Services{Reader: f}, api.Config{})
	const path = "/v1/series?counter=a%22b&step=1d&tz=Asia/Kolkata&from=2026-11-22&to=2026-11-23T00:01:00%2B05:30"
	wants := func(query, accept, want string) {
		t.Helper()
		status, text, header := s.call(t, "GET", path+query, "", "Accept", accept)
		if status != 200 || text != want {
			t.Errorf("%s as %q: got %d\n%s\nwant\n%s", query, accept, status, text, want)
		}
		for name, want := range map[string]string{
			"Countmill-As-Of": "2026-11-22T18:31:00.000000Z", "Countmill-Begin": "2026-10-31T18:30:00Z", "Countmill-Without-Curve": "12", "Vary": "Accept",
		} {
			if got := header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", query, name, got, want)
			}
		}
	}
	const head = `[{"time":"2026-11-22T00:00:00+05:30","counter":"a\"b","value":`
	const second = `{"time":"2026-11-23T00:00:00+05:30","counter":"a\"b","value":-30,"partial":true}]`
	const csv, csvSecond = "time,counter,value,partial\n2026-11-22T00:00:00+05:30,\"a\"\"b\",", ",false\n2026-11-23T00:00:00+05:30,\"a\"\"b\",-30,true"
	wants("", "", head+`86400,"partial":false},`+"\n"+second)
	wants("&format=string", "application/json", head+`"86400","partial":false},`+"\n"+strings.Replace(second, "-30", `"-30"`, 1))
	wants("", "text/html, text/csv;q=0.5", csv+"86400"+csvSecond)
	f.series.Rows[0].Value, f.series.Rows[0].Overflow = 0, true // the others have their values
	wants("", "", head+`null,"error":"urn:countmill:problem:overflow","partial":false},`+"\n"+second)
	wants("", "text/csv", csv+"overflow"+csvSecond)
	f.err = &reader.NoSeriesError{Counter: "a"}
	s.want(t, "GET", path, "", 404, "urn:countmill:problem:no-series")
}

// A date is the first moment of its day, also where the clock skips midnight or shows it twice.
func TestDatesOfSeries(t *testing.T) {
	t.Parallel()
	f := seriesOf(t)
	s := ask(t, api.Services{Reader: f}, api.Config{})
	for query, want := range map[string][2]string{
		"tz=America/Havana&from=2026-03-08&to=2026-03-09":                {"2026-03-08T01:00:00-04:00", "2026-03-09T00:00:00-04:00"},
		"tz=America/Havana&from=2026-03-07&to=2026-03-08":                {"2026-03-07T00:00:00-05:00", "2026-03-08T01:00:00-04:00"},
		"tz=Asia/Amman&from=2020-10-30&to=2020-10-31":                    {"2020-10-30T00:00:00+03:00", "2020-10-31T00:00:00+02:00"},
		"tz=Asia/Kolkata&from=2026-11-22&to=2026-11-23T00:01:00%2B05:30": {"2026-11-22T00:00:00+05:30", "2026-11-23T00:01:00+05:30"},
	} {
		s.want(t, "GET", "/v1/series?counter=a&"+query, "", 200, "")
		if got := [2]string{f.query.From.Format(time.RFC3339), f.query.To.Format(time.RFC3339)}; got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	s.want(t, "GET", "/v1/series?counter=a", "", 200, "")
	if q := f.query; q.To.Sub(q.From) != 24*time.Hour || time.Since(q.To) > time.Minute || q.From.Location() != time.UTC {
		t.Errorf("without parameters: from %s to %s", q.From, q.To)
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 23, 10, 2, 0, 0, time.UTC)
	f := &fakeAdmin{settings: store.Settings{Version: 4, Rules: &store.Rules{Series: []store.Rule{
		{Pattern: "page:*", Keep: store.Retention{Minutes: 6 * time.Hour, Quarters: 400 * 24 * time.Hour}, Since: began},
		{Pattern: "b", Keep: store.Retention{Quarters: 30 * 24 * time.Hour}, Since: began, Ended: began.Add(time.Hour), Filled: store.Period{From: began.AddDate(-1, 0, 0), To: began}},
	}, Journal: []store.Rule{{Pattern: "billing:*", Keep: store.Retention{Entries: 400 * 24 * time.Hour, Paged: true}, Since: began}}}}}
	s := ask(t, api.Services{Admin: f}, api.Config{})
	const shown = `{"version":4,"series":[{"pattern":"page:*","keep":"1m:6h,15m:400d","begin":"2026-11-23T10:02:00Z","ended":null,"filled_from":null,"filled_to":null},` +
		`{"pattern":"b","keep":"15m:30d","begin":"2026-11-23T10:02:00Z","ended":"2026-11-23T11:02:00Z","filled_from":"2025-11-23T10:02:00Z","filled_to":"2026-11-23T10:02:00Z"}],` +
		`"journal":[{"pattern":"billing:*","keep":"400d,paged","begin":"2026-11-23T10:02:00Z","ended":null,"filled_from":null,"filled_to":null}]}`
	for _, tt := range []struct{ method, target, body, asked string }{
		{"GET", "/v1/rules", "", "rules"},
		{"POST", "/v1/rules/series", `{"pattern":"page:*","keep":"1m:6h,15m:400d"}`, `add series "page:*" 1m:6h,15m:400d`},
		{"DELETE", "/v1/rules/series?pattern=" + url.QueryEscape("page:*"), "", `remove series "page:*"`},
		{"POST", "/v1/rules/series/filled", `{"pattern":"page:*","from":"2026-01-01T01:00:00+01:00","to":"2026-02-01T00:00:00.5Z"}`,
			`fill "page:*" 2026-01-01 00:00:00 +0000 UTC 2026-02-01 00:00:00 +0000 UTC`},
		{"POST", "/v1/rules/journal", `{"pattern":"billing:*","keep":"400d,paged"}`, `add journal "billing:*" 400d,paged`},
		{"DELETE", "/v1/rules/journal?pattern=" + url.QueryEscape("billing:*"), "", `remove journal "billing:*"`},
	} {
		if s.want(t, tt.method, tt.target, tt.body, 200, shown); f.asked != tt.asked {
			t.Errorf("%s %s: asked %s, want %s", tt.method, tt.target, f.asked, tt.asked)
		}
	}
	s.wantProblems(t, 400, map[string]string{
		`POST /v1/rules/series {"pattern":"page:*","keep":"1h:6h"}`:                                    `"field":"keep"`,
		`POST /v1/rules/series/filled {"pattern":"a","from":"2026-01-01","to":"2026-02-01T00:00:00Z"}`: `"field":"from"`,
		`POST /v1/rules/journal {"pattern":"page:*","keep":"1h"}`:                                      `"field":"keep"`,
	})
	f.err = store.ErrNoRule
	s.want(t, "DELETE", "/v1/rules/series?pattern=a", "", 404, "no-rule")
	ask(t, api.Services{Admin: &fakeAdmin{settings: store.Settings{Version: 1}}}, api.Config{}).want(t, "GET", "/v1/rules", "", 200, `{"version":1,"series":[],"journal":[]}`)
}
