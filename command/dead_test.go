package command

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// person runs the command line with somebody who types answer.
func person(t *testing.T, answer string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	code := run(t.Context(), host{argv: args, person: strings.NewReader(answer), stdout: &out, stderr: &errOut})
	return result{code, out.String(), errOut.String()}
}

const twoDeadLetters = `{"dead_letters":[{"key":"k1","source":"s","at":"2026-11-21T04:04:03.120000Z","reason":"bad\u001b[31m","applied":"no","bytes":12},` +
	`{"key":"k2","source":"s","at":"2026-11-21T04:04:04.000000Z","reason":"old","applied":"unknown","bytes":3456,"replay_asked":true}]}` + "\n"

func TestDeadList(t *testing.T) {
	t.Parallel()
	first := strings.Replace(twoDeadLetters, "]}", `],"next_page_token":"t/1"}`, 1)
	f := newFakeServer(t, answer(200, first), answer(200, strings.ReplaceAll(twoDeadLetters, `:"k`, `:"other:k`)))
	got := try(t, nil, "dead", "list", "--server", f.URL)
	want := "KEY                               SET ASIDE             APPLIED     BYTES  REASON\n" +
		"k1                                2026-11-21T04:04:03Z  no             12  bad\\u001B[31m\n" +
		"k2                                2026-11-21T04:04:04Z  unknown      3456  (replay asked for) old\n" +
		"other:k1                          2026-11-21T04:04:03Z  no             12  bad\\u001B[31m\n" +
		"other:k2"
	if got.code != 0 || !strings.HasPrefix(got.out, want) {
		t.Errorf("got %d %s\n%s\nwant\n%s", got.code, got.errOut, got.out, want)
	}
	if fmt.Sprint(f.paths) != "[/v1/dead-letters?limit=100 /v1/dead-letters?limit=100&page_token=t%2F1]" {
		t.Errorf("asked %q", f.paths)
	}
	f = newFakeServer(t, answer(200, first))
	if got := try(t, nil, "dead", "list", "--json", "--limit", "2", "--server", f.URL); got != (result{0, first, ""}) || f.paths[0] != "/v1/dead-letters?limit=2" {
		t.Errorf("--json --limit 2: got %+v, asked %q", got, f.paths)
	}
	none := newFakeServer(t, answer(200, `{"dead_letters":[]}`))
	if got := try(t, nil, "dead", "list", "--server", none.URL); got != (result{0, "", "no dead letters\n"}) {
		t.Errorf("none: got %+v", got)
	}
	html := newFakeServer(t, answer(200, "<html>"))
	try(t, nil, "dead", "list", "--server", html.URL).wantError(t, 1, "is that a countmill?")
}

// --all of none is done, whether or not somebody would have been asked first.
func TestDeadAllOfNone(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, answer(200, `{"dead_letters":[]}`))
	want := result{0, "", "no dead letters\n"}
	for _, verb := range []string{"replay", "discard"} {
		if got := try(t, nil, "dead", verb, "--all", "--yes", "--server", f.URL); got != want {
			t.Errorf("%s: got %+v", verb, got)
		}
		if got := person(t, "", "dead", verb, "--all", "--server", f.URL); got != want {
			t.Errorf("%s, somebody there: got %+v", verb, got)
		}
	}
}

func TestDeadShow(t *testing.T) {
	t.Parallel()
	const letter = `{"key":"k","source":"s","at":"2026-01-02T03:04:05.000000Z","reason":"r","applied":"no","bytes":1,"replay":`
	for holds, want := range map[string]string{
		`"as_new","why":"old","batch":{"time":"2026-01-02T03:04:05.000000Z","parts":[{"id":"ab","kind":"head","entries":[{"counter":"a b","delta":-9223372036854775808}]}]}}`: "with --as-new: old\n\npart ab, head\n-9223372036854775808\ta b\n",
		`"never","why":"bad","json":{"counter":"a","delta":0}}`: "no: bad\n\n{\"counter\":\"a\",\"delta\":0}\n",
		`"ids","base64":"AAA="}`:                                "yes, under its own ids\n\nbase64 AAA=\n",
	} {
		f := newFakeServer(t, answer(200, letter+holds))
		if got := try(t, nil, "dead", "show", "k", "--server", f.URL); got.code != 0 || !strings.HasSuffix(got.out, want) || f.paths[0] != "/v1/dead-letters/k" {
			t.Errorf("got %+v, want an end of %q", got, want)
		}
		if got := try(t, nil, "dead", "show", "k", "--json", "--server", f.URL); got != (result{0, letter + holds, ""}) {
			t.Errorf("--json: got %+v", got)
		}
	}
	gone := newFakeServer(t, answer(404, `{"detail":"there is no such dead letter"}`))
	try(t, nil, "dead", "show", "k", "--server", gone.URL).wantError(t, 1, "no such dead letter")
}

func TestDeadReplay(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, answer(200, `{"dead_letters":[{"key":"k1","result":"asked"},{"key":"k2","result":"gone"}]}`))
	got := try(t, nil, "dead", "replay", "k1", "k2", "--server", f.URL)
	if got.code != 0 || got.out != "k1\tasked\nk2\tgone: it was counted or discarded, or never there\n" || !strings.HasPrefix(got.errOut, "1 to be counted by an aggregator") {
		t.Errorf("got %+v", got)
	}
	if f.paths[0] != "/v1/dead-letters/replay" || f.bodies[0] != `{"keys":["k1","k2"]}` {
		t.Errorf("asked %s with %s", f.paths[0], f.bodies[0])
	}
	refused := newFakeServer(t, answer(200, `{"dead_letters":[{"key":"k1","result":"refused","why":"too old"}]}`))
	got = try(t, nil, "dead", "replay", "k1", "--server", refused.URL)
	if got.code != 1 || got.out != "k1\trefused: too old\n" || !strings.Contains(got.errOut, "1 of 1 letters cannot be replayed like that") {
		t.Errorf("refused: got %+v", got)
	}
}

func TestDeadAsksAPerson(t *testing.T) {
	t.Parallel()
	done := answer(200, `{"dead_letters":[{"key":"k1","result":"asked"},{"key":"k2","result":"asked","as_new":true}]}`)
	f := newFakeServer(t, answer(200, twoDeadLetters))
	got := person(t, "\n", "dead", "replay", "--all", "--as-new", "--server", f.URL)
	if got.code != 1 || !strings.Contains(got.errOut, "1 of them were maybe counted (applied: unknown). Those whose ids are forgotten or lost may then count twice. Replay 2 dead letters? [y/N]") ||
		!strings.Contains(got.errOut, "nothing was done") || len(f.paths) != 1 {
		t.Errorf("no: got %+v, asked %q", got, f.paths)
	}
	f = newFakeServer(t, answer(200, twoDeadLetters), answer(200, twoDeadLetters), done)
	got = person(t, "y\n", "dead", "replay", "--all", "--as-new", "--server", f.URL)
	if got.code != 0 || len(f.bodies) != 3 || f.bodies[2] != `{"as_new":true,"keys":["k1","k2"]}` {
		t.Errorf("yes: got %+v, sent %q", got, f.bodies)
	}
	f = newFakeServer(t, answer(200, twoDeadLetters), done)
	if got := try(t, nil, "dead", "replay", "--all", "--yes", "--server", f.URL); got.code != 0 || len(f.bodies) != 2 || f.bodies[1] != `{"keys":["k1","k2"]}` {
		t.Errorf("--yes: got %+v, sent %q", got, f.bodies)
	}
	for _, args := range [][]string{{"discard", "k"}, {"discard", "--all"}, {"replay", "--all"}, {"replay", "k", "--as-new"}} {
		try(t, nil, append(append([]string{"dead"}, args...), "--server", f.URL)...).wantError(t, 2, "say --yes")
	}
	one := newFakeServer(t, answer(200, `{"key":"k","at":"2026-01-02T03:04:05.000000Z","applied":"no"}`), answer(200, `{"dead_letters":[{"key":"k","result":"discarded"}]}`))
	if got := person(t, "yes", "dead", "discard", "k", "--server", one.URL); got.code != 0 || got.out != "k\tdiscarded\n" || one.paths[1] != "/v1/dead-letters/discard" {
		t.Errorf("discard: got %+v, asked %q", got, one.paths)
	}
}

// An error on the way says how far it came, and that it may be repeated.
func TestDeadInLots(t *testing.T) {
	t.Parallel()
	keys := strings.Fields(strings.Repeat("k ", 250))
	lot := `{"dead_letters":[` + strings.TrimSuffix(strings.Repeat(`{"key":"k","result":"discarded"},`, 100), ",") + `]}`
	f := newFakeServer(t, answer(200, lot), answer(200, lot), answer(503, `{"detail":"away"}`))
	got := try(t, nil, append([]string{"dead", "discard", "--yes", "--server", f.URL}, keys...)...)
	if got.code != 1 || !strings.Contains(got.errOut, "after 200 letters: away (HTTP 503); repeat it") || strings.Count(f.bodies[2], `"k"`) != 50 {
		t.Errorf("got exit %d, %s; the last of %d lots is %s", got.code, got.errOut, len(f.bodies), f.bodies[len(f.bodies)-1])
	}
}

func TestDeadArguments(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                   "say what to do: list, show, replay, discard",
		"lst":                `unknown "lst"; did you mean list?`,
		"list k":             `the command takes no arguments, got "k" (see countmill help dead list)`,
		"list --all":         "unknown flag: --all",
		"list --limit -1":    "--limit: must be an integer from 0 to",
		"show":               "name one KEY",
		"show a b":           "name one KEY",
		"replay":             "KEY is missing; --all for every dead letter",
		"replay k --all":     "--all takes no KEY",
		"replay k --limit 3": "unknown flag: --limit",
		"discard k --as-new": "unknown flag: --as-new",
		"discard k --colour": "unknown flag: --colour",
		"list --limit x":     "--limit: must be",
	} {
		try(t, nil, append([]string{"dead"}, strings.Fields(args)...)...).wantError(t, 2, want)
	}
}

// The output says which letters may count twice, and which may still be counted.
func TestDeadSaysWhatIsNotCertain(t *testing.T) {
	t.Parallel()
	for args, c := range map[string]struct{ answer, want string }{
		"replay k --as-new": {`{"key":"k","result":"asked","as_new":true}`, "k\tasked: as new\n"},
		"replay l --as-new": {`{"key":"l","result":"asked","as_new":true,"maybe_counted_before":true}`, "l\tasked: as new; it may have been counted before, and would count twice\n"},
		"discard k":         {`{"key":"k","result":"removed","why":"an aggregator had taken it"}`, "k\tremoved: an aggregator had taken it\n"},
		"discard l":         {`{"key":"l","result":"discarded"}`, "l\tdiscarded\n"},
	} {
		f := newFakeServer(t, answer(200, `{"dead_letters":[`+c.answer+`]}`))
		got := try(t, nil, append(append([]string{"dead"}, strings.Fields(args)...), "--yes", "--server", f.URL)...)
		if got.code != 0 || got.out != c.want {
			t.Errorf("dead %s: got %+v, want %q", args, got, c.want)
		}
	}
}
