package command

import (
	"strings"
	"testing"
)

func TestJournal(t *testing.T) {
	t.Parallel()
	const first = `{"entries":[{"key":"k1","time":"2026-11-25T10:00:00.000000Z","counter":"a","delta":5,"part":"p1","sender":"shop"}],"next":"k1","settled_until":"2026-11-25T10:00:01.000000Z"}` + "\n"
	const second = `{"entries":[{"key":"k2","time":"2026-11-25T10:00:00.000000Z","counter":"a","delta":-7,"part":"p2"}],"settled_until":"2026-11-25T10:00:01.000000Z"}` + "\n"
	f := newFakeServer(t, answer(200, first), answer(200, second))
	got := try(t, nil, "journal", "a", "--server", f.URL)
	if want := (result{0, "2026-11-25T10:00:00.000000Z\t5\tshop\tp1\tk1\n2026-11-25T10:00:00.000000Z\t-7\t-\tp2\tk2\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if want := []string{"/v1/journal?counter=a&limit=1000", "/v1/journal?after=k1&counter=a&limit=1000"}; strings.Join(f.paths, " ") != strings.Join(want, " ") {
		t.Errorf("asked %q, want %q", f.paths, want)
	}
	f = newFakeServer(t, answer(200, first))
	if got := try(t, nil, "journal", "a", "--json", "--limit", "1", "--id", "order 1", "--server", f.URL); got.out != first || f.paths[0] != "/v1/journal?counter=a&id=order+1&limit=1" {
		t.Errorf("--json: got %+v, asked %q", got, f.paths)
	}
	const none = `{"entries":[],"settled_until":"2026-11-25T10:00:01.000000Z"}` + "\n"
	if got := try(t, nil, "journal", "a", "--server", newFakeServer(t, answer(200, none)).URL); got.code != 0 || got.out != "" || !strings.HasPrefix(got.errOut, "no entries; ") {
		t.Errorf("of none: got %+v", got)
	}
	if got := try(t, nil, "journal", "a", "--json", "--server", newFakeServer(t, answer(200, none)).URL); got != (result{0, none, ""}) {
		t.Errorf("--json of none: got %+v", got)
	}
	try(t, nil, "journal").wantError(t, 2, "NAME is missing")
	try(t, nil, "journal", "a", "--server", newFakeServer(t, answer(200, "{}")).URL).wantError(t, 1, "is that a countmill?")
}

func TestRulesOfTheJournal(t *testing.T) {
	t.Parallel()
	const rules = `{"version":2,"series":[],"journal":[{"pattern":"billing:*","keep":"400d","begin":"2026-11-25T10:02:00Z","ended":null}]}` + "\n"
	const table = "RULE     PATTERN    KEEP  COMPLETE FROM         ENDED\njournal  billing:*  400d  2026-11-25T10:02:00Z  \n"
	for _, tt := range []struct {
		args []string
		path string
	}{
		{[]string{"rule", "add", "journal", "billing:*=400d"}, "/v1/rules/journal"},
		{[]string{"rule", "remove", "journal", "billing:*"}, "/v1/rules/journal?pattern=billing%3A%2A"},
	} {
		f := newFakeServer(t, answer(200, rules))
		if got := try(t, nil, append(tt.args, "--server", f.URL)...); got.code != 0 || got.out != table || f.paths[0] != tt.path {
			t.Errorf("%q: got %+v, asked %q", tt.args, got, f.paths)
		}
	}
	try(t, nil, "rule", "add", "journal", "billing:*").wantError(t, 2, "has no =")
	try(t, nil, "rule", "add", "journal", "billing:*=1h").wantError(t, 2, "keep")
}

func TestJournalErase(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, answer(200, `{"erased":3,"next":"k1","settled_until":"2026-11-25T10:00:00.000000Z"}`), answer(200, `{"erased":2,"settled_until":"2026-11-25T10:00:01.000000Z"}`))
	if got, want := try(t, nil, "journal", "erase", "user:42", "--yes", "--server", f.URL), (result{0, "5 entries erased, up to 2026-11-25T10:00:01.000000Z\n", ""}); got != want || len(f.paths) != 2 {
		t.Errorf("got %+v, want %+v; asked %q", got, want, f.paths)
	}
	f = newFakeServer(t, answer(200, `{"erased":0,"others":2,"settled_until":"2026-11-25T10:00:00.000000Z"}`))
	if got, want := try(t, nil, "journal", "erase", "user:42", "--yes", "--server", f.URL), (result{0, "0 entries erased, and 2 opening balances and corrections, up to 2026-11-25T10:00:00.000000Z\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	none := answer(200, `{"erased":0,"settled_until":"2026-11-25T10:00:00.000000Z"}`)
	try(t, nil, "journal", "erase", "user:42", "--yes", "--server", newFakeServer(t, none).URL).wantError(t, 1, `there was nothing to erase: the journal has no entries of the counter "user:42" up to 2026-11-25T10:00:00.000000Z, or no more of them`)
	try(t, nil, "journal", "erase", "billing:*", "--yes", "--server", newFakeServer(t, none).URL).wantError(t, 1, "no pattern")
	try(t, nil, "journal", "erase", "user:42").wantError(t, 2, "--yes")
	try(t, nil, "journal", "erase").wantError(t, 2, "NAME is missing")
}
