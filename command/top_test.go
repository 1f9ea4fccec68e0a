package command

import (
	"strings"
	"testing"
)

const topAnswer = `{"top":[{"counter":"page:a","total":1234,"rank":1},{"counter":"page:b","total":-5,"rank":2},{"counter":"page:c","total":-5,"rank":2},{"counter":"page:d","total":-6,"rank":4}],` +
	`"complete_as_of":"2026-11-25T10:00:00.000000Z","partial":true}` + "\n"

const complete = "complete as of 2026-11-25T10:00:00.000000Z\n"

func TestTop(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, answer(200, topAnswer))
	got := try(t, nil, "top", "sites", "-n", "7", "--window", "today", "--tz", "Asia/Kolkata", "--of", "groups", "--server", f.URL)
	want := result{0, "  1  1234  page:a\n  2    -5  page:b\n  2    -5  page:c\n  4    -6  page:d\n", complete +
		"increments of the window are missing: it began before its rule for series, or no rule keeps the overflow group\n"}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if f.paths[0] != "/v1/top?index=sites&n=7&of=groups&tz=Asia%2FKolkata&window=today" {
		t.Errorf("asked %q", f.paths)
	}
	f = newFakeServer(t, answer(200, strings.Replace(topAnswer, `"partial":true`, `"partial":false`, 1)))
	if got := try(t, nil, "top", "sites", "--server", f.URL); got.errOut != complete || f.paths[0] != "/v1/top?index=sites&n=10" {
		t.Errorf("totals: got %+v, asked %q", got, f.paths)
	}
	f = newFakeServer(t, answer(200, topAnswer))
	if got := try(t, nil, "top", "sites", "--json", "--server", f.URL); got.out != topAnswer || got.errOut != "" {
		t.Errorf("--json: got %+v", got)
	}
	empty := `{"top":[],"complete_as_of":"2026-11-25T10:00:00.000000Z","partial":false}`
	f = newFakeServer(t, answer(200, strings.Replace(topAnswer, `"complete_as_of"`, `"overflowed":["page:huge"],"complete_as_of"`, 1)))
	if got := try(t, nil, "top", "sites", "--server", f.URL); !strings.HasPrefix(got.errOut, "these have no place, because their totals do not fit 64 bits: \"page:huge\"\n") {
		t.Errorf("a counter without a total: got %+v", got)
	}
	f = newFakeServer(t, answer(200, empty))
	for _, tt := range []struct {
		want string
		args []string
	}{
		{"no counters counted in this window\n", []string{"--window", "1h"}},
		{"no groups counted in this window\n", []string{"--window", "1h", "--of", "groups"}},
		{"no counters of the index have a total\n", nil},
	} {
		args := append([]string{"top", "sites", "--server", f.URL}, tt.args...)
		if got := try(t, nil, args...); got != (result{0, "", tt.want + complete}) {
			t.Errorf("an empty board: got %+v, want %q on standard error", got, tt.want)
		}
	}
	for _, args := range [][]string{{"top", "sites"}, {"rank", "sites", "a"}} {
		try(t, nil, append(args, "--tz", "UTC")...).wantError(t, 2, "--tz is given without --window (limit: with --window today, this-week or this-month)")
	}
	try(t, nil, "top", "sites", "--server", newFakeServer(t, answer(200, "{}")).URL).wantError(t, 1, "is that a countmill?")
	try(t, nil, "top").wantError(t, 2, "name one INDEX")
	try(t, nil, "top", "sites", "-n", "1001").wantError(t, 2, "1001")
	try(t, nil, "top", "sites", "--window", "tomorrow").wantError(t, 2, "--window")
}

func TestRank(t *testing.T) {
	t.Parallel()
	const rank = `{"counter":"page:b","total":40,"rank":2,"of":9,"complete_as_of":"2026-11-25T10:00:00.000000Z","partial":false}` + "\n"
	f := newFakeServer(t, answer(200, rank))
	got := try(t, nil, "rank", "sites", "page:b", "--window", "1h", "--server", f.URL)
	if want := (result{0, "2 of 9\t40\tpage:b\n", complete}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if f.paths[0] != "/v1/rank?counter=page%3Ab&index=sites&tz=UTC&window=1h" {
		t.Errorf("asked %q", f.paths)
	}
	f = newFakeServer(t, answer(200, rank))
	if got := try(t, nil, "rank", "sites", "--group", "site:s1", "--server", f.URL); got.code != 0 || f.paths[0] != "/v1/rank?counter=%3Dsite%3As1&index=sites" {
		t.Errorf("--group: got %+v, asked %q", got, f.paths)
	}
	try(t, nil, "rank", "sites", "a", "--group", "b").wantError(t, 2, `name one INDEX and one COUNTER or --group, got "sites" "a" "=b"`)
	try(t, nil, "rank", "--group", "b", "--group", "c").wantError(t, 2, "name one INDEX")
	f = newFakeServer(t, answer(200, strings.Replace(rank, `"rank":2`, `"rank":null`, 1)))
	try(t, nil, "rank", "sites", "page:b", "--server", f.URL).wantError(t, 1, "has no place")
	try(t, nil, "rank", "sites").wantError(t, 2, "COUNTER")
}
