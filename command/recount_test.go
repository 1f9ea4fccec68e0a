package command

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/transfer"
)

func TestRecount(t *testing.T) {
	t.Parallel()
	bad := `{"findings":[{"kind":"total","counter":"billing:a","stored":-5,"counted":7},{"kind":"bucket","counter":"b","time":"2026-11-25T12:00:00.000000Z","stored":"18446744073709551616","counted":2,"detail":"recount again"}],` +
		`"counters":2,"buckets":3,"entries":9,"opened":0,"not_covered":{},"not_covered_names":[],"done":500,"next":"ff"}` + "\n"
	good := `{"findings":[],"counters":1,"buckets":0,"entries":9,"opened":4,"not_covered":{"no rule":2},"not_covered_names":[{"counter":"other","reason":"no rule"}],"done":1000}` + "\n"
	f := newFakeServer(t, answer(200, bad), answer(200, good))
	got := try(t, nil, "recount", "billing:", "--from", "2026-11-01", "--server", f.URL)
	want := result{3, "total\tbilling:a\t-5, and the journal has 7\nbucket\tb\t2026-11-25T12:00:00.000000Z\t18446744073709551616, and the journal has 2\trecount again\n",
		"3 buckets of 3 counters compared, and no totals\n2 not compared, such as other: no rule\ncountmill: 2 sums differ from the journal, 0 corrected\n"}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for i, part := range []string{`"prefix":"billing:","from":"2026-11-01T00:00:00Z","run":`, `"range":"ff"`} {
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

// Ranges are recounted at the same time, and together have every place.
func TestRecountInRanges(t *testing.T) {
	t.Parallel()
	done := answer(200, `{"findings":[],"counters":3,"buckets":1,"entries":9,"opened":0,"not_covered":{"no rule":1},"not_covered_names":[],"done":1000}`)
	f := newFakeServer(t, done, done, done)
	got := try(t, nil, "recount", "billing:", "--parallel", "3", "--server", f.URL)
	if want := (result{0, "", "9 counters and 3 buckets compared\n3 not compared: no rule\n"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	var ranges []string
	for _, b := range f.bodies {
		ranges = append(ranges, b[strings.Index(b, `"range":"`)+9:][:33])
	}
	slices.Sort(ranges)
	want := []string{"0000000000000000-5555555555555555", "5555555555555556-aaaaaaaaaaaaaaab", "aaaaaaaaaaaaaaac-ffffffffffffffff"}
	if !slices.Equal(ranges, want) {
		t.Errorf("recounted %q, want %q", ranges, want)
	}
	try(t, nil, "recount", "--parallel", "65", "--server", f.URL).wantError(t, 2, "--parallel")
}

// A recount that was stopped goes on behind the last range that has an answer.
func TestRecountGoesOn(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	first := `{"findings":[{"kind":"total","counter":"billing:a","stored":-5,"counted":7,"fixed":true}],"counters":2,"buckets":3,"entries":9,"opened":0,"not_covered":{"no rule":2},"not_covered_names":[{"counter":"other","reason":"no rule"}],"done":500,"next":"NEXT"}`
	last := `{"findings":[{"kind":"total","counter":"billing:b","stored":1,"counted":2,"detail":"recount again"}],"counters":1,"buckets":0,"entries":9,"opened":0,"not_covered":{},"not_covered_names":[],"done":1000}`
	args := []string{"recount", "billing:", "--repair", "--state", state, "--server"}
	f := newFakeServer(t, answer(200, first), answer(400, `{"type":"urn:countmill:problem:invalid","title":"no","status":400}`), answer(200, last))
	got := try(t, nil, append(args, f.URL)...)
	if got.code != 1 || !strings.Contains(got.out, "7\tcorrected") || !strings.Contains(got.errOut, "the same command goes on") {
		t.Errorf("stopped: got %+v", got)
	}
	try(t, nil, "recount", "other:", "--repair", "--state", state, "--server", f.URL).wantError(t, 2, "is of the recount")
	try(t, nil, append(args, newFakeServer(t).URL)...).wantError(t, 2, "is of the recount")
	got = try(t, nil, append(args, f.URL)...)
	want := result{3, "total\tbilling:b\t1, and the journal has 2\trecount again\n",
		"3 counters and 3 buckets compared\n2 not compared, such as other: no rule\ncountmill: 2 sums differ from the journal, 1 corrected\n"}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if len(f.bodies) != 3 || !strings.Contains(f.bodies[2], `"range":"NEXT"`) {
		t.Errorf("sent %q, want the range NEXT as the last", f.bodies)
	}
	if _, err := os.Stat(state); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the state of a recount that is over is there: %v", err)
	}
	if err := os.WriteFile(state, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	try(t, nil, append(args, f.URL)...).wantError(t, 2, "does not hold the state of a recount")
}

// A state is of one command at a time.
func TestTwoRecountsOfAState(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	release, err := transfer.Hold(state)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	try(t, nil, "recount", "--state", state, "--server", newFakeServer(t).URL).wantError(t, 1, "another command works with it")
}

// A recount goes on with any prefix.
func TestRecountOfAnyPrefixGoesOn(t *testing.T) {
	t.Parallel()
	state := filepath.Join(t.TempDir(), "state")
	refused := answer(400, `{"type":"urn:countmill:problem:invalid","title":"no","status":400}`)
	f := newFakeServer(t, refused, refused)
	for range 2 {
		try(t, nil, "recount", "a<b>&c", "--state", state, "--server", f.URL).wantError(t, 1, "the same command goes on")
	}
}
