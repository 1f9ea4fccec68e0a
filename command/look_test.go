package command

import (
	"fmt"
	"strings"
	"testing"
)

func TestLs(t *testing.T) {
	t.Parallel()
	first := `{"totals":[{"counter":"a b","total":9223372036854775807},{"counter":"c","total":-1}],"overflowed":["aa","d"],"next_page_token":"x"}` + "\n"
	second := `{"totals":[{"counter":"e","total":0}]}` + "\n"
	f := newFakeServer(t, answer(200, first), answer(200, second))
	got := try(t, nil, "ls", "a:", "--server", f.URL)
	if want := (result{0, "9223372036854775807\ta b\noverflow\taa\n-1\tc\noverflow\td\n0\te\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if fmt.Sprint(f.paths) != "[/v1/counters?limit=1000&prefix=a%3A /v1/counters?limit=1000&page_token=x&prefix=a%3A]" {
		t.Errorf("asked %q", f.paths)
	}
	f = newFakeServer(t, answer(200, first), answer(200, second))
	if got := try(t, nil, "ls", "--json", "--limit", "5", "--server", f.URL); got != (result{0, first + second, ""}) || f.paths[1] != "/v1/counters?limit=1&page_token=x" {
		t.Errorf("--json --limit 5: got %+v, asked %q", got, f.paths)
	}
	f = newFakeServer(t, answer(200, first))
	if got := try(t, nil, "ls", "--limit", "4", "--server", f.URL); got.code != 0 || len(f.paths) != 1 {
		t.Errorf("--limit 4: got %+v, asked %q", got, f.paths)
	}
	try(t, nil, "ls", "--server", newFakeServer(t, answer(200, "<html>")).URL).wantError(t, 1, "is that a countmill?")
	try(t, nil, "ls", "a", "b").wantError(t, 2, "too many arguments")
	try(t, nil, "ls", "--limit", "-1").wantError(t, 2, "--limit: must be an integer from 0 to")
}

const fourShards = `{"counter":"a/b","as_of":"2026-11-21T04:04:03.120000Z","exists":true,"shards":3,"counts":[{"shard":0,"count":30,"updated":"2026-11-21T04:03:03.120000Z"},` +
	`{"shard":1,"count":-1},{"shard":2,"count":null},{"shard":7,"count":15,"problem":"beyond"}]}` + "\n"

func TestShards(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, answer(200, fourShards))
	got := try(t, nil, "shards", "a/b", "--server", f.URL)
	if want := (result{0, "0\t30\t2026-11-21T04:03:03Z\n1\t-1\n2\toverflow\n7\t15\t\tbeyond\n", ""}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if f.paths[0] != "/v1/shards?counter=a%2Fb" {
		t.Errorf("asked %s", f.paths[0])
	}
	if got := try(t, nil, "shards", "a/b", "--json", "--server", f.URL); got.out != fourShards {
		t.Errorf("--json: got %+v", got)
	}
	try(t, nil, "shards", "--server", f.URL).wantError(t, 2, "NAME is missing")
	try(t, nil, "shards", "a", "b", "--server", f.URL).wantError(t, 2, "too many arguments")
	try(t, nil, "shards", "a", "--server", newFakeServer(t, answer(200, "<html>")).URL).wantError(t, 1, "is that a countmill?")
}

func TestVerify(t *testing.T) {
	t.Parallel()
	bad := `{"problems":[{"kind":"beyond","counter":"a","shard":4,"detail":"holds 5"},{"kind":"group","counter":"=b","detail":"holds 7"}],"shards":9,"groups":1,"next_page_token":"t"}` + "\n"
	good := `{"problems":[],"shards":1}` + "\n"
	f := newFakeServer(t, answer(200, bad), answer(200, good))
	got := try(t, nil, "verify", "a:", "--server", f.URL)
	want := result{3, "beyond\ta\tshard 4\tholds 5\ngroup\t=b\tholds 7\n",
		"10 shards and 1 group checked\ncountmill: 2 problems, 0 fixed\n"}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if fmt.Sprint(f.paths) != "[/v1/verify?prefix=a%3A /v1/verify?page_token=t&prefix=a%3A]" {
		t.Errorf("asked %q", f.paths)
	}
	f = newFakeServer(t, answer(200, bad), answer(200, good))
	if got := try(t, nil, "verify", "--json", "--server", f.URL); got.code != 3 || got.out != bad+good {
		t.Errorf("--json: got %+v", got)
	}
	mended := strings.ReplaceAll(bad, `"detail"`, `"fixed":true,"detail"`)
	f = newFakeServer(t, answer(200, mended), answer(200, good))
	if got := try(t, nil, "verify", "--fix", "--server", f.URL); got.code != 0 || !strings.Contains(got.out, "holds 5\tfixed\n") || f.bodies[1] != `{"page_token":"t","prefix":""}` {
		t.Errorf("--fix: got %+v, sent %q", got, f.bodies)
	}
	away := newFakeServer(t, answer(200, bad), answer(503, `{"detail":"away"}`))
	if got := try(t, nil, "verify", "--server", away.URL); got.code != 1 || !strings.Contains(got.errOut, "away (HTTP 503)") {
		t.Errorf("away: got %+v, want exit 1", got)
	}
	try(t, nil, "verify", "a", "b").wantError(t, 2, "too many arguments")
	try(t, nil, "verify", "--server", newFakeServer(t, answer(200, "<html>")).URL).wantError(t, 1, "is that a countmill?")
}

func TestReady(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"status":"ready"}`:                       "ready\n",
		`{"status":"degraded","reason":"no milk"}`: "degraded: no milk\n",
	} {
		f := newFakeServer(t, answer(200, body))
		if got := try(t, nil, "ready", "--server", f.URL); got != (result{0, want, ""}) {
			t.Errorf("%s: got %+v, want %q", body, got, want)
		}
		if f.paths[0] != "/readyz" {
			t.Errorf("asked %s, want /readyz", f.paths[0])
		}
		if got := try(t, []string{"COUNTMILL_SERVER=" + f.URL}, "ready", "--json"); got != (result{0, body, ""}) {
			t.Errorf("%s --json: got %+v", body, got)
		}
	}
	away := newFakeServer(t, answer(503, `{"title":"not ready","detail":"store is away"}`))
	try(t, nil, "ready", "--server", away.URL).wantError(t, 1, "store is away (HTTP 503)")
	for _, other := range []string{"<html>", "{}", `{"status":"UP"}`} {
		f := newFakeServer(t, answer(200, other))
		try(t, nil, "ready", "--server", f.URL).wantError(t, 1, "is that a countmill?")
		try(t, nil, "ready", "--server", f.URL, "--json").wantError(t, 1, "is that a countmill?")
	}
	try(t, nil, "ready", "now").wantError(t, 2, `takes no arguments, got "now"`)
	try(t, nil, "ready", "--server", "127.0.0.1:1").wantError(t, 1, "nothing answers")
}
