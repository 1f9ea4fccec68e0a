package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/client"
)

// The answer to a mistyped command shows the right one.
func TestHints(t *testing.T) {
	t.Parallel()
	plainServer := newFakeServer(t, answer(200, "{}"))
	tls := strings.Replace(plainServer.URL, "http://", "https://", 1)
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"a port without a host": {[]string{"up", "--listen", "28080"}, `write 127.0.0.1:28080`},
		"an origin of all":      {[]string{"up", "--cors-origin", "http://*"}, `* stands for all origins, and only alone`},
		"a file that is not":    {[]string{"import", filepath.Join(t.TempDir(), "nofile")}, "no such file"},
		"https for http":        {[]string{"get", "a", "--server", tls}, "answers without TLS: write http://"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr strings.Builder
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			code := run(ctx, host{argv: tt.args, stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr})
			if code == 0 || !strings.Contains(stderr.String(), tt.want) {
				t.Errorf("exit %d, %q; want an error with %q", code, stderr.String(), tt.want)
			}
		})
	}
}

func TestAServerSaysThatItTakesNoToken(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it starts, and stops at once
	var stdout, stderr strings.Builder
	run(ctx, host{
		argv:    []string{"up", "--listen", "127.0.0.1:0", "--data", t.TempDir()},
		environ: []string{"COUNTMILL_TOKEN=x"}, stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr,
	})
	if !strings.Contains(stderr.String(), "COUNTMILL_TOKENS") {
		t.Errorf("COUNTMILL_TOKEN for a server: %s", stderr.String())
	}
}

func TestNamesThatATerminalWouldNotPrint(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"totals":[{"counter":"a\u202eb","total":7},{"counter":"y日本","total":1}],"overflowed":["z\u200d"]}`))
	}))
	defer srv.Close()
	var stdout, stderr strings.Builder
	run(t.Context(), host{argv: []string{"ls", "--server", srv.URL}, stdout: &stdout, stderr: &stderr})
	if want := "7\ta\\u202Eb\n1\ty日本\noverflow\tz\\u200D\n"; stdout.String() != want {
		t.Errorf("got %q, want %q (%s)", stdout.String(), want, stderr.String())
	}
}

func TestAgeOf(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 15, 4, 6, 0, time.UTC)
	for answer, want := range map[string]string{
		`{"totals":[{"as_of":"2026-01-02T15:04:05Z"}],"lag":0.25}`: "as of 2026-01-02T15:04:05Z, 1.0s ago; lag 0.2s",
		`{"totals":[{"as_of":"2026-01-02T15:04:07Z"}],"lag":null}`: "as of 2026-01-02T15:04:07Z, 0.0s ago; lag unknown: no aggregator has reported lately",
	} {
		var totals client.Totals
		if err := json.Unmarshal([]byte(answer), &totals); err != nil {
			t.Fatal(err)
		}
		if got := ageOf(&totals, now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// An error names a flag, a variable or an argument as the caller gave it, and says what to do.
func TestErrorsInTheWordsOfTheCaller(t *testing.T) {
	t.Parallel()
	problem := func(status int, kind, more string) string {
		return newFakeServer(t, answer(status, `{"type":"urn:countmill:problem:`+kind+`","status":1,`+more+`}`)).URL
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("cmtok_secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	unknown := problem(401, "unauthorized", `"detail":"this token is not known"`)
	const those = `"countmill token list" shows the tokens of the server's file`
	for name, tt := range map[string]struct {
		env  string
		args []string
		want string
	}{
		"a token of a flag":         {"", []string{"get", "a", "--token", "cmtok_x", "--server", unknown}, "not known (HTTP 401); it is that of --token; " + those},
		"a token of a variable":     {"COUNTMILL_TOKEN=cmtok_x", []string{"get", "a", "--server", unknown}, "it is that of COUNTMILL_TOKEN; " + those},
		"a token of a file":         {"", []string{"incr", "a", "--token-file", file, "--server", unknown}, "it is that of --token-file " + file + "; " + those},
		"a token of a file by name": {"COUNTMILL_TOKEN_FILE=" + file, []string{"get", "a", "--server", unknown}, "it is that of COUNTMILL_TOKEN_FILE " + file},
		"no token":                  {"", []string{"get", "a", "--server", unknown}, "give one with --token-file or COUNTMILL_TOKEN"},
		"a token in the clear":      {"COUNTMILL_TOKEN_FILE=" + file, []string{"get", "a", "--server", "http://192.0.2.1:1"}, "COUNTMILL_TOKEN_FILE: is not sent to 192.0.2.1:1"},
		"a server of a variable":    {"COUNTMILL_SERVER=ftp://x", []string{"get", "a"}, "countmill: COUNTMILL_SERVER: must be http://HOST:PORT"},
		"a directory":               {"", []string{"up", "--listen", "127.0.0.1:0", "--data", file}, "countmill: --data: data directory " + file + " cannot be made, because a file has that name: name another directory\n"},
		"a directory of a variable": {"COUNTMILL_DATA=" + file, []string{"up", "--listen", "127.0.0.1:0"}, "countmill: COUNTMILL_DATA: data directory"},
		"an unknown index":          {"", []string{"top", "a", "--server", problem(404, "no-index", `"detail":"no index \"a\""`)}, `no index "a" (HTTP 404); "countmill index list" shows the indexes`},
		"a zone":                    {"", []string{"top", "a", "--window", "today", "--tz", "x", "--server", problem(400, "invalid", `"detail":"tz is not a time zone","field":"tz"`)}, "countmill: --tz is not a time zone"},
		"a field of two words":      {"", []string{"get", "a", "--min-as-of", "2026-01-02T15:04:05Z", "--server", problem(400, "invalid", `"detail":"min_as_of is wrong","field":"min_as_of"`)}, "countmill: --min-as-of is wrong"},
		"the name of an index":      {"", []string{"index", "create", "A", "--match", "a", "--group", "b", "--server", problem(400, "invalid", `"detail":"name has the character \"A\"","field":"name"`)}, `countmill: NAME has the character "A"`},
		"a repeat of a sequence": {"", []string{"next", "a", "--id", "x", "--count", "4", "--server", problem(409, "other-count", `"detail":"this id got 1 value before","field":"count","limit":"1"`)},
			"this id got 1 value before (HTTP 409); repeat it with --count 1, or give another --id"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := try(t, strings.Fields(tt.env), tt.args...)
			if got.code == 0 || !strings.Contains(got.errOut, tt.want) || strings.Contains(got.errOut, "secret") {
				t.Errorf("got exit %d, %q; want an error with %q", got.code, got.errOut, tt.want)
			}
		})
	}
}

// 0 is also the total of a mistyped name: standard error says that no counter has it.
func TestNamesThatDoNotExist(t *testing.T) {
	t.Parallel()
	const no, at = `,"exists":false`, `,"as_of":"2026-01-02T03:04:05.000000Z"`
	for _, test := range []struct{ args, answer, out, errOut string }{
		{"get a", `{"totals":[{"counter":"a","total":0` + no + `}]}`, "0\n", "no counter is named \"a\"\n"},
		{"get a b", `{"totals":[{"counter":"a","total":0,"exists":true},{"counter":"b","total":0` + no + `}]}`, "0\ta\n0\tb\n", "no counter is named \"b\"\n"},
		{"get --group a", `{"totals":[{"counter":"=a","total":0` + no + `}]}`, "0\n", "no counter is in a group named \"a\"; \"countmill index list\" shows how groups are named\n"},
		{"reset a", `{"counter":"a","removed":0` + at + no + `}`, "0\n", "no counter is named \"a\"\n"},
		{"reset a", `{"counter":"a","removed":5` + at + `,"exists":true}`, "5\n", ""},
		{"delete a", `{"counter":"a","removed":null,"removed_exact":"18446744073709551616","overflow":true` + at + `,"exists":true}`, "18446744073709551616\n", ""},
		{"delete a", `{"counter":"a","removed":0` + at + no + `}`, "0\n", "no counter is named \"a\"\n"},
		{"shards a", `{"counter":"a"` + no + `,"shards":0,"counts":[]}`, "", "no counter is named \"a\"\n"},
		{"shards a", `{"counter":"a","exists":true,"shards":1,"counts":[]}`, "", ""},
	} {
		f := newFakeServer(t, answer(200, test.answer))
		args := append(strings.Fields(test.args), "--server", f.URL)
		want := test.errOut
		if want != "" {
			want = "countmill: " + want
		}
		if got := try(t, nil, args...); got != (result{0, test.out, want}) {
			t.Errorf("%s: got %+v, want %q and %q", test.args, got, test.out, want)
		}
		if got := try(t, nil, append(args, "--json")...); got != (result{0, test.answer, want}) {
			t.Errorf("%s --json: got %+v, want the answer and %q", test.args, got, want)
		}
	}
}

// A watch says it once, and goes on: the counter may come.
func TestAWatchOfANameThatDoesNotExist(t *testing.T) {
	t.Parallel()
	const none = `{"counter":"a","total":0,"exists":false}`
	events := "event: totals\ndata: {\"totals\":[" + none + `,{"counter":"b","total":2,"exists":true}]}` + "\n\n" +
		"event: totals\ndata: {\"totals\":[{\"counter\":\"a\",\"total\":1,\"exists\":true}]}\n\n" +
		"event: totals\ndata: {\"totals\":[" + none + "]}\n\n"
	stream := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, events)
	}
	got := try(t, nil, "watch", "a", "b", "--server", newFakeServer(t, stream, answer(403, "{}")).URL)
	if want := "countmill: no counter is named \"a\"\n"; strings.Count(got.errOut, want) != 1 || !strings.HasPrefix(got.out, "0\ta\n2\tb\n1\ta\n0\ta\n") {
		t.Errorf("got %+v, want %q once, and the totals", got, want)
	}
}

// recountAnswer is the answer about one range without findings.
func recountAnswer(counters, buckets, opened int, notCovered string) string {
	return fmt.Sprintf(`{"findings":[],"counters":%d,"buckets":%d,"entries":9,"opened":%d,"not_covered":{%s},"not_covered_names":[],"done":1000}`+"\n",
		counters, buckets, opened, notCovered)
}

// A recount that compares nothing fails. A recount that writes opening balances has done its work.
func TestRecountOfNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args   []string
		answer string
		code   int
		want   string // the last line
	}{
		{[]string{"billing:"}, recountAnswer(1, 0, 0, ""), 0, "1 counter and 0 buckets compared"},
		{[]string{"nope:"}, recountAnswer(0, 0, 0, ""), 3, `countmill: nothing was compared: no name begins with "nope:"`},
		{[]string{"nope:", "--json"}, recountAnswer(0, 0, 0, ""), 3, `countmill: nothing was compared: no name begins with "nope:"`},
		{[]string{"billing:*"}, recountAnswer(0, 0, 0, ""), 3, `countmill: nothing was compared: no name begins with "billing:*"; a PREFIX has no * behind it: write "billing:"`},
		{nil, recountAnswer(0, 0, 0, ""), 3, "countmill: nothing was compared: there are no counters"},
		{[]string{"billing:"}, recountAnswer(0, 0, 0, `"no rule":2`), 3, "countmill: nothing was compared"},
		{[]string{"--opening"}, recountAnswer(0, 0, 0, ""), 0, "0 opening balances written"},
		{[]string{"--opening"}, recountAnswer(0, 0, 1, ""), 0, "1 opening balance written"},
		{[]string{"--opening"}, recountAnswer(0, 0, 0, `"no rule":2`), 3, "countmill: nothing was compared"},
		{[]string{"--opening", "billing:*"}, recountAnswer(0, 0, 0, ""), 3, `countmill: nothing was compared: no name begins with "billing:*"; a PREFIX has no * behind it: write "billing:"`},
		{[]string{"billing:", "--opening"}, recountAnswer(0, 0, 2, `"no opening balance until now":2`), 0, "2 not compared: no opening balance until now"},
	} {
		f := newFakeServer(t, answer(200, tt.answer))
		got := try(t, nil, append(append([]string{"recount"}, tt.args...), "--server", f.URL)...)
		lines := strings.Split(strings.TrimSpace(got.errOut), "\n")
		if got.code != tt.code || lines[len(lines)-1] != tt.want {
			t.Errorf("recount %q: got %+v, want code %d and %s", tt.args, got, tt.code, tt.want)
		}
	}
}

// Names may have a *, so a pattern in place of a prefix is no mistake of the command line. Each command reports that it found nothing.
func TestPrefixesThatMatchNothing(t *testing.T) {
	t.Parallel()
	const nothing = `no name begins with "page:*"; a PREFIX has no * behind it: write "page:"`
	tokens := filepath.Join(t.TempDir(), "tokens")
	for _, tt := range []struct {
		args   []string
		answer string
		code   int
		want   string // in standard error
	}{
		{[]string{"ls", "page:*"}, `{"totals":[],"as_of":"2026-11-25T10:00:00Z"}`, 0, nothing},
		{[]string{"ls"}, `{"totals":[],"as_of":"2026-11-25T10:00:00Z"}`, 0, ""},
		{[]string{"verify", "page:*"}, `{"problems":[],"shards":0,"groups":0}`, 3, `nothing was checked: no shard and no group has a name that begins with "page:*"; a PREFIX has no * behind it: write "page:"`},
		{[]string{"verify", "=site:"}, `{"problems":[],"shards":0,"groups":3}`, 0, "3 groups"}, // built from counters, and not incremented since
		{[]string{"verify"}, `{"problems":[],"shards":0}`, 0, "0 shards"},
		{[]string{"verify", "page:"}, `{"problems":[],"shards":1}`, 0, "1 shard "},
		{[]string{"export", "page:"}, `{"totals":[{"counter":"page:a","total":0}],"overflowed":[],"as_of":"2026-11-25T10:00:00Z"}`, 0, "1 left out as their total is 0"},
		{[]string{"export", "page:*"}, `{"totals":[],"overflowed":[],"as_of":"2026-11-25T10:00:00Z"}`, 0, nothing},
		{[]string{"rule", "add", "series", "p*ge:=1m:6h,15m:400d"}, `{"series":[],"journal":[]}`, 0, `"p*ge:" is of names that have this *`},
		{[]string{"rule", "add", "series", "page:*=1m:6h,15m:400d"}, `{"series":[],"journal":[]}`, 0, "no rules"},
		{[]string{"token", "new", "web", "--scope", "read", "--prefix", "page:*", "--file", tokens}, "", 0, `the prefix "page:*" is of names that have this *; for all that begin with "page:" leave the * out`},
		{[]string{"token", "new", "all", "--scope", "read", "--prefix", "page:", "--file", tokens}, "", 0, ""},
		{[]string{"share", "page:*"}, "", 0, `the prefix "page:*" is of names`},
		{[]string{"watch", "--prefix", "page:*"}, "", 1, `the prefix "page:*" is of names`},
	} {
		f := newFakeServer(t, answer(200, tt.answer))
		args := tt.args
		if args[0] != "token" {
			args = append(args, "--server", f.URL)
		}
		got := try(t, nil, args...)
		if got.code != tt.code || !strings.Contains(got.errOut, tt.want) || tt.want == "" && got.errOut != "" || strings.Contains(got.errOut, "no name begins") != strings.Contains(tt.want, "no name begins") || strings.Contains(got.errOut, "*") != strings.Contains(tt.want, "*") {
			t.Errorf("%q: got %+v, want code %d and %q", tt.args, got, tt.code, tt.want)
		}
	}
}

// A token may be for other names.
func TestPrefixesThatMatchNothingOfAToken(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, answer(200, `{"totals":[],"as_of":"2026-11-25T10:00:00Z"}`))
	got := try(t, []string{"COUNTMILL_TOKEN=cmtok_x"}, "ls", "p*", "--server", f.URL)
	if want := (result{0, "", "countmill: no name that this token may read begins with \"p*\"; a PREFIX has no * behind it: write \"p\"\n"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// An export of nothing says which counters it looked for.
func TestJournalExportOfNothing(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"billing:":  `has no entries of the counter "billing:" in this period; for all counters that begin so, write "billing:*"`,
		"billing:*": `has no entries of counters that begin with "billing:" in this period`,
		"":          "0 entries\n",
	} {
		page := `{"records":[],"entries":[],"settled_until":"2030-01-01T00:00:00Z"}`
		args := []string{"journal", "export", "--from", "2026-11-01", "--to", "2026-11-02", "--server", newFakeServer(t, answer(200, page)).URL}
		if name != "" {
			args = append(args, name)
		}
		if got := try(t, nil, args...); got.code != 0 || !strings.Contains(got.errOut, want) || name == "" && strings.Contains(got.errOut, "no entries") {
			t.Errorf("%q: got %+v, want %s", name, got, want)
		}
	}
}
