package command

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/auth"
)

// madeToken is the token and the line that were printed.
func madeToken(t *testing.T, args ...string) (secret, line string) {
	t.Helper()
	got := try(t, nil, append([]string{"token", "new"}, args...)...)
	secret, line, ok := strings.Cut(strings.TrimSuffix(got.out, "\n"), "\n")
	if got.code != 0 || got.errOut != "" || !ok || !strings.HasPrefix(secret, "cmtok_") {
		t.Fatalf("%q: got %+v, want a token and a line", args, got)
	}
	return secret, line
}

func TestTokenNew(t *testing.T) {
	t.Parallel()
	secret, line := madeToken(t, "web", "--scope", "read,publish", "--prefix", "page:", "--prefix=a,b", "--expires", "2031-01-02T04:04:05+01:00")
	const want = `"scopes":["read","publish"],"prefixes":["page:","a,b"],"expires":"2031-01-02T03:04:05Z"}`
	if !strings.HasPrefix(line, `{"name":"web","hash":"sha256:`) || !strings.HasSuffix(line, want) {
		t.Errorf("got %s, want the name, a hash, and %s", line, want)
	}
	_, limited := madeToken(t, "web", "--scope", "publish", "--increments-per-second", "1000", "--bytes-per-second", "65536", "--new-counters-per-hour", "50")
	const limits = `"scopes":["publish"],"increments_per_second":1000,"bytes_per_second":65536,"new_counters_per_hour":50}`
	if !strings.HasSuffix(limited, limits) {
		t.Errorf("got %s, want %s", limited, limits)
	}
	if strings.Contains(line, secret) {
		t.Errorf("the line holds the token: %s", line)
	}
	path := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := auth.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := tokens.Authenticate(secret); err != nil || c.Name != "web" || !c.Has(auth.Publish) || c.Check("shop:x") == nil {
		t.Errorf("got %+v, %v", c, err)
	}
}

func TestTokenNewAppends(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	first := try(t, nil, "token", "new", "a", "--scope", "read", "--file", path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append([]byte("# by hand\n"), text[:len(text)-1]...), 0o600); err != nil { // without an end of its last line
		t.Fatal(err)
	}
	second := try(t, nil, "token", "new", "b", "--scope", "admin", "--file", path)
	tokens, err := auth.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for want, got := range map[string]result{"a": first, "b": second} {
		if c, err := tokens.Authenticate(strings.TrimSuffix(got.out, "\n")); err != nil || c.Name != want {
			t.Errorf("%s: printed %q; got %+v, %v", want, got.out, c, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(path, []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	try(t, nil, "token", "new", "c", "--scope", "read", "--file", path).wantError(t, 1, "tokens: line 1: is not a JSON object")
	if text, err := os.ReadFile(path); err != nil || string(text) != "nonsense\n" {
		t.Errorf("a bad file was written to: %q, %v", text, err)
	}
	try(t, nil, "token", "new", "c", "--scope", "read", "--file", path+"/x").wantError(t, 1, "tokens/x")
}

func TestTokenRefuses(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ args, want string }{
		{"token", "say what to do: new, list, remove"},
		{"token new", "name one NAME: countmill token new"},
		{"token old a", `unknown "old"`},
		{"token new a b --scope read", "name one NAME: countmill token new"},
		{"token new a", "--scope: the list is empty (limit: publish, read, metrics, admin)"},
		{"token new a --scope write", `--scope: "write" is not a scope (limit: publish, read, metrics, admin)`},
		{"token new a --scope metrics,reed", `--scope: "reed" is not a scope (limit: publish, read, metrics, admin); did you mean read?`},
		{"token new a/b --scope read", "NAME: has other characters than A-Z a-z 0-9 . _ -"},
		{"token new " + strings.Repeat("a", 65) + " --scope read", "NAME: is too long (limit: 1 to 64 bytes)"},
		{"token new a --scope read --prefix=", "--prefix: number 1 is empty; leave the flag out"},
		{"token new a --scope read --expires 2001-01-01T00:00:00Z", "--expires: must be a time to come"},
		{"token new a --scope read --expires -3h", "--expires: must be"},
		{"token new a --scope publish --increments-per-second -1", "--increments-per-second: must be an integer from 1 to"},
		{"token new a --scope publish --bytes-per-second 1TiB", "--bytes-per-second"},
		{"token new a --scope publish --new-counters-per-hour 10000001", "--new-counters-per-hour: must be an integer from 1 to 10000000"},
		{"token new a --scope read --increments-per-second 7", "--increments-per-second: limits counting, but the scopes lack publish"},
		{"token new a --scope read --colour", "unknown flag: --colour"},
	} {
		try(t, nil, strings.Fields(tc.args)...).wantError(t, 2, tc.want)
	}
}

func TestParseExpiry(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 2, 28, 12, 0, 0, 5, time.FixedZone("", 3600))
	for text, want := range map[string]string{
		"1d":                   "2026-03-01T11:00:00Z",
		"1.5d":                 "2026-03-01T23:00:00Z",
		"90m":                  "2026-02-28T12:30:00Z",
		"2026-02-28T11:00:01Z": "2026-02-28T11:00:01Z",
	} {
		if got, err := parseExpiry(text, now); err != nil || got.Format(time.RFC3339Nano) != want {
			t.Errorf("%s: got %v, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"0d", "999999d", "0s", "-1h", "tomorrow", "2026-02-28T10:59:59Z"} {
		if got, err := parseExpiry(text, now); err == nil {
			t.Errorf("%s: got %v, want an error", text, got)
		}
	}
}

func TestTokenList(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	for _, args := range []string{"web --scope publish --prefix page: --increments-per-second 50", "web --scope publish,read", "old --scope read --expires 2031-01-02T03:04:05Z"} {
		if got := try(t, nil, strings.Fields("token new "+args+" --file "+path)...); got.code != 0 {
			t.Fatal(got)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	entries := auth.Entries(text)
	got := try(t, nil, "token", "list", "--file", path)
	want := "NAME  ID        SCOPES        COUNTERS  EXPIRES               LIMITS\n" +
		"web   " + entries[0].Token.ID() + "  publish       page:*    never                 50 increments/s\n" +
		"web   " + entries[1].Token.ID() + "  publish,read  all       never                 none\n" +
		"old   " + entries[2].Token.ID() + "  read          all       2031-01-02T03:04:05Z  none\n"
	if got != (result{0, want, ""}) {
		t.Errorf("got %+v, want\n%s", got, want)
	}
	if err := os.WriteFile(path, append([]byte("nonsense\n"), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := try(t, nil, "token", "list", "--file", path); got.code != 1 || got.out != want || !strings.Contains(got.errOut, "line 1: is not a JSON object") {
		t.Errorf("with a bad line: got %+v, want all tokens, and the mistake", got)
	}
}

func TestTokenRemove(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	var secrets []string
	for _, name := range []string{"web", "web", "shop"} {
		secrets = append(secrets, strings.TrimSpace(try(t, nil, "token", "new", name, "--scope", "read", "--file", path).out))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := auth.Entries(text)[0].Token.ID()
	try(t, nil, "token", "remove", "web", "--file", path).wantError(t, 1, "2 tokens have this name: name the ID of one, such as ")
	try(t, nil, "token", "remove", "nobody", "--file", path).wantError(t, 1, `no token is named "nobody"; "countmill token list" shows all`)
	try(t, nil, "token", "remove", "cmtok_secret", "--file", path).wantError(t, 1, `no token is named "cmtok_`+"...")
	try(t, nil, "token", "remove", "--file", path).wantError(t, 2, "name one NAME")
	try(t, nil, "token", "remove", "web").wantError(t, 2, "--file is missing")
	if got := try(t, nil, "token", "remove", "web", first, "--file", path); got != (result{0, "removed web " + first + "\n", ""}) {
		t.Errorf("got %+v", got)
	}
	if got := try(t, nil, "token", "remove", "shop", "--file", path); got.code != 0 {
		t.Errorf("got %+v", got)
	}
	tokens, err := auth.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, true, false} {
		if _, err := tokens.Authenticate(secrets[i]); (err == nil) != want {
			t.Errorf("token %d: got %v, want it taken: %t", i, err, want)
		}
	}
	broken, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append([]byte("nonsense\n"), broken...), 0o600); err != nil {
		t.Fatal(err)
	}
	got := try(t, nil, "token", "remove", "web", "--file", path)
	if text, _ := os.ReadFile(path); got.code != 1 || !strings.Contains(got.errOut, "servers still take the token: line 1") || string(text) != "nonsense\n" {
		t.Errorf("from a file with a mistake: got %+v, and the file %q", got, text)
	}
}

// A tokenServer remembers what Authorization it was sent.
func tokenServer(t *testing.T) (url string, sent func() []string) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	f := newFakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, strings.Join(r.Header["Authorization"], "|"))
		if strings.HasPrefix(r.URL.Path, "/readyz") {
			answer(200, `{"status":"ready"}`)(w, r)
			return
		}
		answer(200, `{"totals":[{"counter":"a","total":1}]}`)(w, r)
	})
	return f.URL, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func TestVerbsSendTheToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte("cmtok_file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		env  string
		args string
		want string
	}{
		{"", "", ""},
		{"", "--token cmtok_flag", "Bearer cmtok_flag"},
		{"", "--token-file " + file, "Bearer cmtok_file"},
		{"COUNTMILL_TOKEN=cmtok_env", "", "Bearer cmtok_env"},
		{"COUNTMILL_TOKEN=", "", ""},
		{"COUNTMILL_TOKEN_FILE=" + file, "", "Bearer cmtok_file"},
		{"COUNTMILL_TOKEN=cmtok_env", "--token cmtok_flag", "Bearer cmtok_flag"},
		{"COUNTMILL_TOKEN=cmtok_env", "--token-file " + file, "Bearer cmtok_file"},
		{"COUNTMILL_TOKEN_FILE=" + file, "--token cmtok_flag", "Bearer cmtok_flag"},
	} {
		for _, verb := range []string{"get a", "incr a", "watch a", "ready", "backup /x"} {
			url, sent := tokenServer(t)
			args := append(strings.Fields(verb+" "+tc.args), "--server", url)
			got := try(t, []string{tc.env}, args...)
			if all := sent(); len(all) == 0 || all[0] != tc.want {
				t.Errorf("%s %q: sent %q, want %q (%+v)", tc.env, args, all, tc.want, got)
			}
		}
	}
}

// A token goes to other machines by https alone, and is in no error.
func TestTokenIsNotSentInTheClear(t *testing.T) {
	t.Parallel()
	const refused = "is not sent to "
	for _, tc := range []struct {
		server, flags string
		refused       bool
	}{
		{"http://192.0.2.1:1", "", true},
		{"192.0.2.1:1", "", true},
		{"http://localhost.example:1", "", true},
		{"http://127.0.0.1.example:1", "", true},
		{"http://[2001:db8::1]:1", "", true},
		{"http://127.0.0.1:1", "", false},
		{"http://localhost:1", "", false},
		{"http://[::1]:1", "", false},
		{"https://192.0.2.1:1", "", false},
		{"http://192.0.2.1:1", "--insecure", false},
	} {
		for _, verb := range []string{"get a", "incr a", "watch a", "ready", "backup /x"} {
			args := append(strings.Fields(verb+" --timeout 50ms --server "+tc.server+" "+tc.flags), "--token", "cmtok_secret")
			got := try(t, nil, args...)
			if is := strings.Contains(got.errOut, refused); is != tc.refused || is && got.code != 2 {
				t.Errorf("%q: got exit %d, %q; want it refused: %t", args, got.code, got.errOut, tc.refused)
			}
			if strings.Contains(got.errOut, "secret") {
				t.Errorf("%q: the error shows the token: %s", args, got.errOut)
			}
			if tc.refused {
				withEnv := try(t, []string{"COUNTMILL_TOKEN=cmtok_secret"}, args[:len(args)-2]...)
				withEnv.wantError(t, 2, refused)
			}
		}
	}
	// Nor on the way: a redirect is not followed.
	var followed bool
	to := newFakeServer(t, func(w http.ResponseWriter, r *http.Request) { followed = true })
	from := newFakeServer(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, to.URL, http.StatusTemporaryRedirect)
	})
	try(t, nil, "get", "a", "--token", "cmtok_x", "--server", from.URL).wantError(t, 1, "HTTP 307")
	if followed {
		t.Error("a redirect was followed with the token")
	}
}

func TestTokenFlagsRefuse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("cmtok_a\n{\"name\":\"secret\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		env  []string
		args string
		code int
		want string
	}{
		{nil, "--token a --token-file b", 2, "--token and --token-file: give one of them: both name"},
		{[]string{"COUNTMILL_TOKEN=a", "COUNTMILL_TOKEN_FILE=b"}, "", 2, "COUNTMILL_TOKEN and COUNTMILL_TOKEN_FILE: set one of them"},
		{nil, "--token=", 2, "--token: is not a token"},
		{[]string{"COUNTMILL_TOKEN=a secret"}, "", 2, "COUNTMILL_TOKEN: is not a token"},
		{nil, "--token-file " + bad, 1, "--token-file: " + bad + " must hold a token alone"},
		{nil, "--token-file " + dir + "/none", 1, "--token-file: open "},
		{[]string{"COUNTMILL_TOKEN_FILE=" + bad}, "", 1, "COUNTMILL_TOKEN_FILE: "},
		{nil, "--server http://me:secret@127.0.0.1:1", 2, "--server: must hold no name and no password"},
	} {
		got := try(t, tc.env, append([]string{"get", "a"}, strings.Fields(tc.args)...)...)
		got.wantError(t, tc.code, tc.want)
		if strings.Contains(got.errOut, "secret") {
			t.Errorf("%q %s: the error shows a secret: %s", tc.env, tc.args, got.errOut)
		}
	}
}

func TestVerbsSayHowToGiveAToken(t *testing.T) {
	t.Parallel()
	f := newFakeServer(t, answer(401, `{"detail":"this call needs a token"}`))
	try(t, nil, "get", "a", "--server", f.URL).wantError(t, 1, "needs a token (HTTP 401); give one with --token-file or COUNTMILL_TOKEN")
	got := try(t, nil, "incr", "a", "--server", f.URL)
	got.wantError(t, 1, "not counted: this call needs a token")
	if len(f.paths) != 2 {
		t.Errorf("it asked %d times, want once each", len(f.paths))
	}
	// An argument in the wrong place is not written to the terminal's log.
	try(t, nil, "get", "a", "--"+"cmtok_abcdefgh").wantError(t, 2, "cmtok_...")
}
