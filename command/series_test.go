package command

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

const twoRows = `[{"time":"2026-11-23T00:00:00Z","counter":"a","value":5,"partial":false},` +
	`{"time":"2026-11-23T00:15:00Z","counter":"a","value":-1,"partial":true}]` + "\n"

func TestSeries(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, answer(200, twoRows))
	got := try(t, nil, "series", "a", "--last", "24h", "--server", f.URL)
	if want := (result{0, "2026-11-23T00:00:00Z\t5\twhole\ta\n2026-11-23T00:15:00Z\t-1\tpartial\ta\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if path := f.paths[0]; !strings.HasPrefix(path, "/v1/series?counter=a&from=") || !strings.Contains(path, "&step=15m&") || !strings.HasSuffix(path, "&tz=UTC") {
		t.Errorf("asked %q", f.paths)
	}
	f = newFakeServer(t, answer(200, twoRows))
	if got := try(t, nil, "series", "a", "b", "--json", "--step", "1d", "--tz", "Asia/Kolkata", "--server", f.URL); got.out != twoRows || !strings.Contains(f.paths[0], "counter=a&counter=b&") ||
		!strings.Contains(f.paths[0], "step=1d&") || !strings.HasSuffix(f.paths[0], "tz=Asia%2FKolkata") {
		t.Errorf("--json: got %+v, asked %q", got, f.paths)
	}
	// Minutes are not kept for that long: quarter hours are.
	f = newFakeServer(t, answer(400, `{"type":"urn:countmill:problem:invalid","status":400,"detail":"step is finer than what is kept"}`), answer(200, twoRows))
	if got := try(t, nil, "series", "a", "--last", "1h", "--server", f.URL); got.code != 0 || len(f.paths) != 2 || !strings.Contains(f.paths[1], "step=15m") {
		t.Errorf("got %+v, asked %q", got, f.paths)
	}
	for header, want := range map[string]string{"0": "", "42": "42 without a curve: counted without a rule\n"} {
		f = newFakeServer(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Countmill-Without-Curve", header)
			io.WriteString(w, twoRows)
		})
		if got := try(t, nil, "series", "a", "--server", f.URL); got.code != 0 || got.errOut != want {
			t.Errorf("header %q: got %+v, want %q", header, got, want)
		}
	}
	try(t, nil, "series", "a", "--server", newFakeServer(t, answer(200, "{}")).URL).wantError(t, 1, "is that a countmill?")
	try(t, nil, "series").wantError(t, 2, "NAME is missing")
	try(t, nil, "series", "a", "--last", "1s").wantError(t, 2, "--last: must be a duration")
}

func TestSeriesOfAPeriod(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--from 2026-11-01 --to 2026-11-03":                               "from=2026-11-01&step=1h&to=2026-11-03&tz=UTC",
		"--from 2026-11-01 --to 2026-11-03 --tz Asia/Kolkata --step 1d":   "from=2026-11-01&step=1d&to=2026-11-03&tz=Asia%2FKolkata",
		"--to 2026-11-03T12:00:00+01:00 --last 1h":                        "from=2026-11-03T10%3A00%3A00Z&step=1m&to=2026-11-03T12%3A00%3A00%2B01%3A00&tz=UTC",
		"--from 2026-11-01T10:00:00Z --to 2026-11-01T11:00:00Z --step 5m": "from=2026-11-01T10%3A00%3A00Z&step=5m&to=2026-11-01T11%3A00%3A00Z&tz=UTC",
	} {
		f := newFakeServer(t, answer(200, twoRows))
		got := try(t, nil, append([]string{"series", "a", "--server", f.URL}, strings.Fields(args)...)...)
		if got.code != 0 || f.paths[0] != "/v1/series?counter=a&"+want {
			t.Errorf("%s: got %+v, asked %q, want %q", args, got, f.paths, want)
		}
	}
	f := newFakeServer(t, answer(200, twoRows))
	if got := try(t, nil, "series", "a", "--to", "2026-11-03", "--last", "1d", "--tz", "Asia/Kolkata", "--server", f.URL); got.code != 0 || !strings.Contains(f.paths[0], "from=2026-11-01T18%3A30%3A00Z&step=15m&to=2026-11-03&") {
		t.Errorf("a day before a date: got %+v, asked %q", got, f.paths)
	}
	try(t, nil, "series", "a", "--from", "2026-11-01", "--last", "1h").wantError(t, 2, "--from and --last exclude each other")
	try(t, nil, "series", "a", "--from", "yesterday").wantError(t, 2, `--from: must be a time such as 2006-01-02T15:04:05Z, or a date such as 2006-01-02, got "yesterday"`)
	try(t, nil, "series", "a", "--from", "2026-11-02", "--to", "2026-11-02").wantError(t, 2, "--from: must be earlier than --to")
	try(t, nil, "series", "a", "--tz", "Nowhere").wantError(t, 2, "--tz: must be a time zone")
}

const rulesAnswer = `{"version":2,"series":[{"pattern":"page:*","keep":"1m:6h,15m:400d","begin":"2026-11-23T10:02:00Z","ended":null}]}` + "\n"

func TestRules(t *testing.T) {
	t.Parallel()
	const table = "RULE    PATTERN  KEEP            COMPLETE FROM         ENDED\nseries  page:*   1m:6h,15m:400d  2026-11-23T10:02:00Z  \n"
	for _, tt := range []struct {
		args []string
		path string
	}{
		{[]string{"rule", "add", "series", "page:*=1m:6h,15m:400d"}, "/v1/rules/series"},
		{[]string{"rule", "list"}, "/v1/rules"},
		{[]string{"rule", "remove", "series", "page:*"}, "/v1/rules/series?pattern=page%3A%2A"},
	} {
		f := newFakeServer(t, answer(200, rulesAnswer))
		got := try(t, nil, append(tt.args, "--server", f.URL)...)
		if got.code != 0 || got.out != table || f.paths[0] != tt.path {
			t.Errorf("%q: got %+v, asked %q", tt.args, got, f.paths)
		}
	}
	if got := try(t, nil, "rule", "list", "--json", "--server", newFakeServer(t, answer(200, rulesAnswer)).URL); got.out != rulesAnswer {
		t.Errorf("--json: got %+v", got)
	}
	try(t, nil, "rule", "add", "series", "page:*").wantError(t, 2, "has no =")
	try(t, nil, "rule", "add", "series", "page:*=1m:6h").wantError(t, 2, "keep")
	try(t, nil, "rule", "add", "page:*=1m:6h,15m:400d").wantError(t, 2, "name the kind of rule, series or journal")
	try(t, nil, "rule", "list", "x").wantError(t, 2, "takes no arguments")
}

// A sum that does not fit prints as overflow, and the command fails.
func TestSeriesWithAnOverflow(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, answer(200, `[{"time":"2026-01-02T00:00:00Z","counter":"a","value":7,"partial":false},`+
		`{"time":"2026-01-02T00:15:00Z","counter":"a","value":null,"error":"urn:countmill:problem:overflow","partial":false}]`))
	got := try(t, nil, "series", "a", "--server", f.URL)
	if want := "2026-01-02T00:00:00Z\t7\twhole\ta\n2026-01-02T00:15:00Z\toverflow\twhole\ta\n"; got.code != 1 || got.out != want || !strings.Contains(got.errOut, `does not fit 64 bits: counter "a" at 2026-01-02T00:15:00Z`) {
		t.Errorf("got %+v, want %q and an error", got, want)
	}
}
