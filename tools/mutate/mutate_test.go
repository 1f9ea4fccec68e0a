package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const fixture = "testdata/fixture"

// wanted returns the verdicts in the comments of the fixture's files: "fixture.go:12 < -> <=" ->
// verdict.
func wanted(t *testing.T, files ...string) map[string]string {
	t.Helper()
	want := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(fixture, file))
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if _, comment, ok := strings.Cut(line, " // "); ok && strings.Contains(comment, ": ") {
				for m := range strings.SplitSeq(comment, "; ") {
					kind, verdict, _ := strings.Cut(m, ": ")
					want[fmt.Sprintf("%s:%d %s", file, i+1, kind)] = verdict
				}
			}
		}
	}
	return want
}

// verdicts returns the verdicts of a results file in the form of wanted; the last line of a mutant
// counts.
func verdicts(t *testing.T, results string) (got map[string]string, lines int) {
	t.Helper()
	text, err := os.ReadFile(results)
	if err != nil {
		t.Fatal(err)
	}
	got = map[string]string{}
	for line := range strings.Lines(string(text)) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		place, kind, _ := strings.Cut(r.ID, " ")
		if r.Then != "" && r.Verdict == killed {
			r.Verdict = "second"
		}
		got[place[:strings.LastIndexByte(place, ':')]+" "+kind] = r.Verdict
		lines++
	}
	return got, lines
}

// mutate runs the command on the fixture and returns its output.
func mutate(t *testing.T, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	args = append([]string{"-C", fixture, "-timeout", "5s"}, args...)
	if err := run(t.Context(), args, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func compare(t *testing.T, got, want map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] == "" {
			t.Errorf("%s: no such mutant, want %s", name, want[name])
		} else if got[name] != want[name] {
			t.Errorf("%s: got %s, want %s", name, got[name], want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if want[name] == "" {
			t.Errorf("%s: got %s, want no such mutant", name, got[name])
		}
	}
}

// A whole run: the tests alone, then a second command for the survivors, then again with nothing left
// to do.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the fixture a hundred times")
	}
	results := filepath.Join(t.TempDir(), "results.ndjson")
	want := wanted(t, "fixture.go", "compare.go")
	alone := maps.Clone(want)
	survivors := 0
	for name, verdict := range alone {
		if verdict == "second" {
			alone[name] = survived
		}
		if alone[name] == survived {
			survivors++
		}
	}

	mutate(t, "-results", results, "-workers", "2", ".")
	got, lines := verdicts(t, results)
	compare(t, got, alone)
	if lines != len(want) {
		t.Errorf("tests alone: got %d verdicts, want %d", lines, len(want))
	}

	second := []string{"-results", results, "-workers", "2", "-then", "go test -overlay {overlay} ./slow", "."}
	out := mutate(t, second...)
	got, lines = verdicts(t, results)
	compare(t, got, want)
	if lines != len(want)+survivors {
		t.Errorf("second command: got %d verdicts in all, want %d and one for each of %d survivors", lines, len(want), survivors)
	}
	if n := strings.Count(out, "\nsurvived: "); n != survivors-1 {
		t.Errorf("got %d survivors listed, want %d:\n%s", n, survivors-1, out)
	}

	if again := mutate(t, second...); again != out {
		t.Errorf("resumed: got\n%s\nwant\n%s", again, out)
	}
	if _, again := verdicts(t, results); again != lines {
		t.Errorf("resumed: got %d verdicts, want the %d of before", again, lines)
	}
}

func TestFurtherTestsAndExplanations(t *testing.T) {
	t.Parallel()
	explained := filepath.Join(t.TempDir(), "explained")
	text := `# a comment
. CompareUntested#1: a <= b | <= -> < | nobody asks
. Compare: a <= c | <= -> < | stale
. Compare#2: a <= b | <= -> < | there is one only
`
	if err := os.WriteFile(explained, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	results := filepath.Join(t.TempDir(), "results.ndjson")
	out := mutate(t, "-results", results, "-ignore", explained, "-tests", ".=slow", "-exclude", "a (==|!=|>|>=) b", "compare.go")
	got, _ := verdicts(t, results)
	want := map[string]string{}
	for name, verdict := range wanted(t, "compare.go") {
		if strings.HasSuffix(name, " < -> <=") || strings.HasSuffix(name, " <= -> <") && verdict == killed {
			want[name] = killed // one of them by the tests of slow
		}
	}
	compare(t, got, want)
	for _, line := range []string{"explained: compare.go:", "\tnobody asks\n", ":3: explains 0 mutants, not one: . Compare: a <= c | <= -> <\n", ":4: explains 0 mutants"} {
		if !strings.Contains(out, line) {
			t.Errorf("got\n%s\nwant a line with %q", out, line)
		}
	}
}

// The explained mutants of the product exist, and each line names one.
func TestExplanationsHold(t *testing.T) {
	t.Parallel()
	if err := run(t.Context(), []string{"-C", "../..", "-check", "-ignore", "explained.txt"}, io.Discard, t.Output()); err != nil {
		t.Error(err)
	}
}

// The text of -list and of the report identifies one mutant, and -check finds all other lines.
func TestCheckExplanations(t *testing.T) {
	t.Parallel()
	explained := filepath.Join(t.TempDir(), "explained")
	check := func(text string) error {
		if err := os.WriteFile(explained, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return run(t.Context(), []string{"-C", fixture, "-check", "-ignore", explained}, io.Discard, t.Output())
	}
	var all strings.Builder
	for line := range strings.Lines(mutate(t, "-list", ".")) {
		if strings.HasSuffix(line, " | WHY\n") {
			all.WriteString(line)
		}
	}
	if n := len(wanted(t, "fixture.go", "compare.go")); strings.Count(all.String(), "\n") != n {
		t.Errorf("got %d lines for explanations, want %d", strings.Count(all.String(), "\n"), n)
	}
	if err := check(all.String()); err != nil {
		t.Error(err)
	}
	for _, line := range []string{
		". Compare: a <= c | <= -> <",             // no such expression
		". Gone: a <= b | <= -> <",                // no such function
		". Compare: a <= b | < -> <=",             // no such change
		". LiteralsUntested: n < 0 | negate if",   // of another function
		". Sign: limit = 1<<4 - 1 | n -> n+1",     // of none
		". (*Tape).Send: t.sent <- | remove send", // methods have other names
	} {
		if err := check(all.String() + line + " | WHY\n"); err == nil || !strings.Contains(err.Error(), "explains 0 mutants, not one: "+line) {
			t.Errorf("%s: got %v", line, err)
		}
	}
	if err := check(". Fails: return 2, err | n -> n+1 | WHY\n. Fails: return 2, err | n -> n+1 | WHY\n"); err == nil {
		t.Error("one mutant is explained twice")
	}
}

func TestListIsTheSameEachTimeAndHasTheSamples(t *testing.T) {
	t.Parallel()
	all := mutate(t, "-list", "fixture.go")
	if again := mutate(t, "-list", "fixture.go"); again != all {
		t.Errorf("got two lists:\n%s\n%s", all, again)
	}
	ids := func(list string) (ids []string) {
		for line := range strings.Lines(list) {
			if line[0] != '\t' {
				ids = append(ids, line)
			}
		}
		return ids
	}
	if got, want := len(ids(all)), len(wanted(t, "fixture.go")); got != want {
		t.Errorf("got %d mutants, want %d:\n%s", got, want, all)
	}
	five, ten := ids(mutate(t, "-list", "-sample", "5", ".")), ids(mutate(t, "-list", "-sample", "10", "."))
	if len(five) != 5 || len(ten) != 10 {
		t.Errorf("got samples of %d and %d, want 5 and 10", len(five), len(ten))
	}
	for _, id := range five {
		if !slices.Contains(ten, id) {
			t.Errorf("%q is in the sample of 5, not of 10: a longer run would begin anew", id)
		}
	}
	if got := ids(mutate(t, "-list", "-run", `compare.go:\d+:\d+ < -> <=$`, ".")); len(got) != 2 {
		t.Errorf("got %q by their names, want 2", got)
	}
	if other := ids(mutate(t, "-list", "-sample", "10", "-seed", "2", ".")); slices.Equal(other, ten) {
		t.Error("another seed took the same sample")
	}
}

func TestRefuses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "name files or packages"},
		{[]string{"-check"}, "in -ignore"},
		{[]string{"-workers", "0", "fixture.go"}, "-workers must be at least 1, got 0"},
		{[]string{"-then", "true", "fixture.go"}, "{overlay}"},
		{[]string{"nowhere"}, "neither a file nor a package"},
		{[]string{"nowhere.go"}, "no such file"},
		{[]string{"fixture_test.go"}, "or a test"},
		{[]string{"-flags", "-run=^$ -bogus", "fixture.go"}, "fail without a mutant"},
		{[]string{"-sample", "1", "-then", "false {overlay}", "fixture.go"}, "-then fails without a mutant"},
	} {
		err := run(t.Context(), append([]string{"-C", fixture}, tt.args...), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: got %v, want an error with %q", tt.args, err, tt.want)
		}
	}
}
