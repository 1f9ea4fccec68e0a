package command

import (
	"strings"
	"testing"
)

func TestRecount(t *testing.T) {
	t.Parallel()
	bad := `{"findings":[{"kind":"total","counter":"billing:a","stored":-5,"counted":7},{"kind":"bucket","counter":"b","time":"2026-11-25T12:00:00.000000Z","stored":"18446744073709551616","counted":2,"detail":"recount again"}],` +
		`"counters":2,"buckets":3,"entries":9,"opened":0,"not_covered":{},"not_covered_names":[],"done":500,"next":"ff"}` + "\n"
	good := `{"findings":[],"counters":1,"buckets":0,"entries":9,"opened":4,"not_covered":{"no rule":2},"not_covered_names":[{"counter":"other","reason":"no rule"}],"done":1000}` + "\n"
	f := newFakeServer(t, answer(200, bad), answer(200, good))
	got := try(t, nil, "recount", "billing:", "--server", f.URL)
	want := result{3, "total\tbilling:a\t-5, and the journal has 7\nbucket\tb\t2026-11-25T12:00:00.000000Z\t18446744073709551616, and the journal has 2\trecount again\n",
		"3 counters and 3 buckets compared\n2 not compared, such as other: no rule\ncountmill: 2 sums differ from the journal, 0 corrected\n"}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for i, part := range []string{`"prefix":"billing:"}`, `"range":"ff"`} {
		if !strings.Contains(f.bodies[i], part) || strings.Contains(f.bodies[i], "repair") {
			t.Errorf("sent %s, want %s", f.bodies[i], part)
		}
	}
	f = newFakeServer(t, answer(200, bad), answer(200, good))
	if got := try(t, nil, "recount", "--json", "--server", f.URL); got.code != 3 || got.out != bad+good {
		t.Errorf("--json: got %+v", got)
	}
	fixed := strings.ReplaceAll(strings.ReplaceAll(bad, `"counted":7`, `"counted":7,"fixed":true`), `"detail":"recount again"`, `"fixed":true`)
	f = newFakeServer(t, answer(200, fixed), answer(200, good))
	got = try(t, nil, "recount", "--repair", "--opening", "--server", f.URL)
	if got.code != 0 || !strings.Contains(got.out, "7\tcorrected\n") || !strings.Contains(got.errOut, "4 opening balances written") || !strings.Contains(f.bodies[0], `"prefix":"","repair":true,"opening":true`) {
		t.Errorf("--repair: got %+v, sent %q", got, f.bodies)
	}
	try(t, nil, "recount", "--server", newFakeServer(t, answer(200, "<html>")).URL).wantError(t, 1, "is that a countmill?")
	try(t, nil, "recount", "a", "b").wantError(t, 2, "too many arguments")
}
