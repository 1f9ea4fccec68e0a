package transfer

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
)

func columnsOf(t *testing.T, text string) Columns {
	t.Helper()
	c, err := ParseColumns(text)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// anyRow refuses no row.
func anyRow(countmill.Increment) error { return nil }

// rowsOf are the rows of a file as text, one a line, and bad ones by their errors.
func rowsOf(t *testing.T, text string, form Form) string {
	t.Helper()
	r, err := NewReader(strings.NewReader(text), form, anyRow)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for _, row := range readAll(t, r) {
		if row.Err != nil {
			fmt.Fprintf(&b, "line %d: %v\n", row.Line, row.Err)
			continue
		}
		b.Write(appendRow(nil, row.Inc))
	}
	return b.String()
}

// Every form of CSV that is recognised gives the same increments.
func TestForms(t *testing.T) {
	t.Parallel()
	const plain = "counter,delta\npage:/ä,5\npage:/b,-2\n"
	want := rowsOf(t, plain, Form{Format: CSV})
	hits := Form{Format: CSV, Prefix: "page:", Columns: columnsOf(t, "counter=path,delta=hits")}
	for name, tc := range map[string]struct {
		text string
		form Form
	}{
		"semicolon":          {"counter;delta\npage:/ä;5\npage:/b;-2\n", Form{Format: CSV}},
		"tab":                {"counter\tdelta\npage:/ä\t5\npage:/b\t-2\n", Form{Format: CSV}},
		"case":               {"Counter, DELTA \npage:/ä,5\npage:/b,-2\n", Form{Format: CSV}},
		"sign and .0":        {"counter,delta\npage:/ä,+5\npage:/b,-2.0\n", Form{Format: CSV}},
		"00005.0000":         {"counter,delta\npage:/ä,00005.0000\npage:/b,-2.00\n", Form{Format: CSV}},
		"prefix":             {"counter,delta\n/ä,5\n/b,-2\n", Form{Format: CSV, Prefix: "page:"}},
		"columns":            {"rank,Hits,Path,title\n1,5,/ä,\"Home, sweet\"\n2,-2,/b,\n", hits},
		"columns, semicolon": {"path;title;hits\n/ä;a,b,c,d;5\n/b;;-2\n", hits},
		"comments":           {"# ------\n#\n# Pages\n\npath,hits\n/ä,5\n/b,-2\n", hits},
		"ndjson and prefix":  {"{\"counter\":\"/ä\",\"delta\":5}\n{\"counter\":\"/b\",\"delta\":-2}", Form{Format: NDJSON, Prefix: "page:"}},
	} {
		if diff := cmp.Diff(want, rowsOf(t, tc.text, tc.form)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestFormsThatAreRefused(t *testing.T) {
	t.Parallel()
	csv := Form{Format: CSV}
	hits := Form{Format: CSV, Columns: columnsOf(t, "counter=path,delta=hits")}
	for name, tc := range map[string]struct {
		text string
		form Form
		want string
	}{
		"another name":      {"path,hits\n", csv, `"path" is not the name of a column`},
		"no such column":    {"path;views\n", hits, `line 1: the header has no column "hits", got ["path" "views"]`},
		"a column twice":    {"path,hits,Hits\n", hits, "names the column hits twice"},
		"empty name":        {"path,hits\n,5\n", Form{Format: CSV, Prefix: "page:", Columns: hits.Columns}, "line 2: counter is empty"},
		"prefix too long":   {"counter,delta\n" + long(499) + ",1\n", Form{Format: CSV, Prefix: "page:"}, "line 2: counter is too long"},
		"not UTF-8":         {"counter,delta\n\xe4,1\n", csv, "line 2: counter is not valid UTF-8"},
		"comment afterward": {"counter,delta\n# a,1\n", csv, `{"counter":"# a","delta":1}`},
	} {
		if got := rowsOf(t, tc.text, tc.form); !strings.Contains(got, tc.want) {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

// Without a column of deltas each row counts 1.
func TestRowsThatCountOne(t *testing.T) {
	t.Parallel()
	form := Form{Format: CSV, Columns: columnsOf(t, "counter=url,time=at")}
	want := `{"counter":"/a","delta":1,"time":"2026-01-02T03:04:05Z"}` + "\n"
	if got := rowsOf(t, "url,at,delta\n/a,2026-01-02 03:04:05,7\n", form); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTimes(t *testing.T) {
	t.Parallel()
	const utc, berlin, paulo = "UTC", "Europe/Berlin", "America/Sao_Paulo"
	for _, tc := range []struct{ text, zone, want string }{
		{"2026-11-26T10:00:00Z", berlin, "2026-11-26T10:00:00Z"},
		{"2026-11-26T10:00:00.5+01:00", utc, "2026-11-26T09:00:00.5Z"},
		{"2026-11-26", utc, "2026-11-26T00:00:00Z"},
		{"2026-11-26", berlin, "2026-11-25T23:00:00Z"},
		{"20261126", berlin, "2026-11-25T23:00:00Z"},
		{"2026-11-26 10:00:00", utc, "2026-11-26T10:00:00Z"},
		{"2026-11-26 10:00:00.25", utc, "2026-11-26T10:00:00.25Z"},
		{"2026-11-26 10:00", berlin, "2026-11-26T09:00:00Z"},
		{"2026-07-26T10:00:00", berlin, "2026-07-26T08:00:00Z"},
		{"2026-11-26 10:00:00+01", utc, "2026-11-26T09:00:00Z"},
		{"2026-11-26 10:00:00 +0100", utc, "2026-11-26T09:00:00Z"},
		{"2026-11-26 10:00:00Z", berlin, "2026-11-26T10:00:00Z"},
		{"1795687200", berlin, "2026-11-26T10:00:00Z"},
		{"1795687200123", berlin, "2026-11-26T10:00:00.123Z"},
		{"2026-03-29 01:59", berlin, "2026-03-29T00:59:00Z"},
		{"2026-03-29 02:30", berlin, "does not exist in Europe/Berlin: its clocks never showed it"},
		{"2026-03-29 03:00", berlin, "2026-03-29T01:00:00Z"},
		{"2026-10-25 01:59", berlin, "2026-10-24T23:59:00Z"},
		{"2026-10-25 02:30", berlin, "is ambiguous: clocks of Europe/Berlin showed it twice"},
		{"2026-10-25 03:00", berlin, "2026-10-25T02:00:00Z"},
		{"2018-11-04", paulo, "2018-11-04T03:00:00Z"}, // it began at one o'clock
		{"2018-02-18", paulo, "2018-02-18T03:00:00Z"}, // the hour before it came twice
		{"2026-11-01", "America/Havana", "2026-11-01T04:00:00Z"},
		{"11/26/2026", utc, "is ambiguous: nothing says which is the day"},
		{"2026-02-30", utc, "is not a time"},
		{"179568720", utc, "is not a time"},
		{"10:00", utc, "is not a time"},
	} {
		zone, err := time.LoadLocation(tc.zone)
		if err != nil {
			t.Skip("no time zones here:", err)
		}
		at, err := parseTime(tc.text, zone)
		got := at.UTC().Format(time.RFC3339Nano)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tc.want) || err != nil && !at.IsZero() {
			t.Errorf("%s in %s: got %s, want %s", tc.text, tc.zone, got, tc.want)
		}
	}
}

func TestFlagsOfForms(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"counter=path,delta=hits": "", "delta=hits": "must name the column of the counter", "path": "must be like", "": "must be like",
		"counter=": "must be like", "count=path": "must be like", "counter=a,counter=b": "names the column of counter twice",
	} {
		_, err := ParseColumns(text)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("columns %q: got %v, want %q", text, err, want)
		}
	}
	// A value that looks like flags is none.
	a, b := Form{Format: CSV, Prefix: `a" --series`}, Form{Format: CSV, Prefix: "a", Series: true}
	if a.String() == b.String() {
		t.Errorf("two forms are both %s", a.String())
	}
	zone, err := time.LoadLocation("Asia/Kolkata")
	if err != nil {
		t.Skip("no time zones here:", err)
	}
	all := Form{CSV, columnsOf(t, "delta=hits,counter=path"), "page:", zone, true}
	if got, want := all.String(), `--format csv --columns "counter=path,delta=hits" --prefix "page:" --tz "Asia/Kolkata" --series`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
