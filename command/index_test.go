package command

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func indexAnswer(state string, done int) string {
	return `{"version":3,"indexes":[{"name":"sites","match":"page:{site}:*","group":"site:{site}","state":"` + state + `","ranges":4,"ranges_done":` + string(rune('0'+done)) +
		`,"shards_read":100,"corrected":0,"since":"2026-11-25T10:00:00.000000Z","serving_at":null,"checked_at":null,"ended_at":null}]}` + "\n"
}

const noIndexes = `{"version":4,"indexes":[]}` + "\n"

func TestIndexCommands(t *testing.T) {
	t.Parallel()
	create := []string{"index", "create", "sites", "--match", "page:{site}:*", "--group", "site:{site}", "--server"}
	f := newFakeServer(t, answer(200, indexAnswer("building", 1)))
	got := try(t, nil, append(create, f.URL)...)
	if want := "INDEX  STATE          MATCH          GROUP        CHECKED\nsites  building 25 %  page:{site}:*  site:{site}  \n"; got != (result{0, want, ""}) {
		t.Errorf("create: got %+v, want\n%s", got, want)
	}
	if f.paths[0] != "/v1/indexes" || !strings.Contains(f.bodies[0], `{"group":"site:{site}","match":"page:{site}:*","name":"sites"}`) {
		t.Errorf("create asked %q %q", f.paths, f.bodies)
	}
	f = newFakeServer(t, answer(200, indexAnswer("deleting", 0)))
	if got := try(t, nil, "index", "delete", "sites", "--json", "--server", f.URL); got.out != indexAnswer("deleting", 0) || f.paths[0] != "/v1/indexes?name=sites" {
		t.Errorf("delete: got %+v, asked %q", got, f.paths)
	}
	if got := try(t, nil, "index", "list", "--server", newFakeServer(t, answer(200, noIndexes)).URL); got != (result{0, "", "no indexes\n"}) {
		t.Errorf("list of none: got %+v", got)
	}
	if got := try(t, []string{"COUNTMILL_TOKEN=cmtok_x"}, "index", "list", "--server", newFakeServer(t, answer(200, noIndexes)).URL); got.errOut != "no indexes whose groups this token may read\n" {
		t.Errorf("list of none with a token: got %+v", got)
	}
	try(t, nil, "index", "list", "--server", newFakeServer(t, answer(200, "{}")).URL).wantError(t, 1, "is that a countmill?")
	try(t, nil, "index", "create", "sites").wantError(t, 2, "--match and --group are needed")
	try(t, nil, "index", "create", "--match", "a{b}", "--group", "c{b}").wantError(t, 2, "name one index, got none")
	try(t, nil, "index", "delete", "a", "b").wantError(t, 2, "name one index")
	try(t, nil, "index", "work", "--store", "pebble:x").wantError(t, 2, "use `countmill up`")
}

// A command that waits ends with the work, over a time without a server, and at a refusal.
func TestIndexCommandsWait(t *testing.T) {
	t.Parallel()
	away := answer(503, `{"type":"urn:countmill:problem:unavailable","status":503,"title":"unavailable"}`)
	f := newFakeServer(t, answer(200, indexAnswer("building", 0)), answer(200, indexAnswer("building", 2)), away, answer(200, indexAnswer("serving", 4)))
	got := try(t, nil, "index", "create", "sites", "--match", "page:{site}:*", "--group", "site:{site}", "--wait", "--server", f.URL)
	if got.code != 0 || !strings.Contains(got.out, "sites  serving") || len(f.paths) != 4 || !strings.Contains(got.errOut, "waiting: unavailable") {
		t.Errorf("create --wait: got %+v, asked %q", got, f.paths)
	}
	f = newFakeServer(t, answer(200, indexAnswer("deleting", 0)), answer(200, indexAnswer("deleting", 2)), answer(200, noIndexes))
	if got := try(t, nil, "index", "delete", "sites", "--wait", "--server", f.URL); got.code != 0 || len(f.paths) != 3 {
		t.Errorf("delete --wait: got %+v, asked %q", got, f.paths)
	}
	f = newFakeServer(t, answer(200, indexAnswer("building", 0)), answer(200, noIndexes))
	try(t, nil, "index", "create", "sites", "--match", "page:{site}:*", "--group", "site:{site}", "--wait", "--server", f.URL).wantError(t, 1, `index "sites" is gone`)
	f = newFakeServer(t, answer(200, indexAnswer("building", 0)), answer(403, `{"type":"urn:countmill:problem:forbidden","status":403,"detail":"needs the scope read"}`))
	try(t, nil, "index", "create", "sites", "--match", "page:{site}:*", "--group", "site:{site}", "--wait", "--server", f.URL).wantError(t, 1, "needs the scope read")
}

// The command says how long nothing is removed, and that its own end is not that of the deletion.
func TestIndexDeleteSaysWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	for since, want := range map[string]string{"2026-11-25T10:00:00.000000Z": "1m", "2026-11-25T10:05:30.000000Z": "5m30s"} {
		deleting := strings.NewReplacer(`"ended_at":null`, `"ended_at":"2026-11-25T10:00:00.000000Z"`, "2026-11-25T10:00:00.000000Z", since).Replace(indexAnswer("deleting", 0))
		ctx, cancel := context.WithCancel(t.Context())
		f := newFakeServer(t, answer(200, deleting), func(http.ResponseWriter, *http.Request) { cancel() })
		var out, errOut bytes.Buffer
		code := run(ctx, host{argv: []string{"index", "delete", "sites", "--wait", "--server", f.URL}, stdout: &out, stderr: &errOut})
		if code != 1 || out.Len() > 0 || errOut.String() != "countmill: "+want+" after the deletion began no process uses the index any more: its groups are removed then\n"+
			"countmill: stopped; the deletion goes on, and \"countmill index list\" shows it\n" {
			t.Errorf("got exit %d, %q, %q", code, &out, &errOut)
		}
	}
}

func TestGroupFlag(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, answer(200, `{"totals":[{"counter":"a","total":1},{"counter":"=site:a","total":2}],"lag":0}`))
	if got := try(t, nil, "get", "a", "--group", "site:a", "--server", f.URL); got.out != "1\ta\n2\t=site:a\n" || !strings.Contains(f.bodies[0], `["a","=site:a"]`) {
		t.Errorf("get: got %+v, asked %q", got, f.bodies)
	}
	f = newFakeServer(t, answer(200, twoRows))
	if got := try(t, nil, "series", "--group", "site:a", "--server", f.URL); got.code != 0 || !strings.HasPrefix(f.paths[0], "/v1/series?counter=%3Dsite%3Aa&") {
		t.Errorf("series: got %+v, asked %q", got, f.paths)
	}
	for _, verb := range []string{"get", "watch", "series"} {
		try(t, nil, verb, "--group", "=site:a").wantError(t, 2, `--group: "=site:a" is empty or begins with = (limit: the name of a group without its =)`)
		try(t, nil, verb, "--group", "").wantError(t, 2, `--group: "" is empty or begins with =`)
	}
	try(t, nil, "incr", "=site:a").wantError(t, 2, "begins with =, as groups do")
	try(t, nil, "watch", "--prefix", "a", "--group", "b").wantError(t, 2, "--prefix and NAME exclude each other")
}

const seriesRules = `{"version":3,"series":[{"pattern":"page:*","keep":"15m:400d","begin":"2026-11-25T10:00:00Z","ended":null},
{"pattern":"=site:*","keep":"15m:8d","begin":"2026-11-25T10:00:00Z","ended":"2026-11-26T10:00:00Z"}],"journal":[]}`

// One command adds the rules and then the index for the top of a day. A mistake is found before the first change.
func TestIndexCreateWithSeries(t *testing.T) {
	t.Parallel()
	create := func(f *fakeServer, keep string) result {
		return try(t, nil, "index", "create", "sites", "--match", "page:{site}:*", "--group", "site:{site}", "--series", keep, "--server", f.URL)
	}
	f := newFakeServer(t, answer(200, seriesRules), answer(200, seriesRules), answer(200, seriesRules), answer(200, indexAnswer("building", 1)))
	if got := create(f, "15m:400d"); got.code != 0 || !strings.Contains(got.out, "building 25 %") {
		t.Errorf("got %+v", got)
	}
	if diff := cmp.Diff([]string{"/v1/rules", "/v1/rules/series", "/v1/rules/series", "/v1/indexes"}, f.paths); diff != "" {
		t.Errorf("the calls (-want +got):\n%s", diff)
	}
	if want := `{"keep":"15m:400d","pattern":"page:*"}`; !strings.Contains(f.bodies[1], want) {
		t.Errorf("the first rule is %s, want %s", f.bodies[1], want)
	}
	if want := `{"keep":"15m:400d","pattern":"=site:*"}`; !strings.Contains(f.bodies[2], want) {
		t.Errorf("the second rule is %s, want %s", f.bodies[2], want)
	}
	f = newFakeServer(t, answer(200, seriesRules))
	create(f, "15m:2d").wantError(t, 2, `--series: the rule for "page:*" keeps 15m:400d; give that, or change it with countmill rule add series 'page:*=15m:2d'`)
	if len(f.paths) != 1 {
		t.Errorf("a refused command called %q", f.paths)
	}
	f = newFakeServer(t)
	create(f, "15m").wantError(t, 2, `--series "15m": keep is not how long a series stays`)
	try(t, nil, "index", "create", "sites", "--match", "page:{a}", "--group", "{b}", "--series", "15m:2d", "--server", f.URL).wantError(t, 2, "group has the variable {b}")
	if len(f.paths) != 0 {
		t.Errorf("a mistaken command called %q", f.paths)
	}
}
