package command

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
		`[]`: "age and lag are unknown",
	} {
		if got := ageOf([]byte(answer), now); got != want {
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
