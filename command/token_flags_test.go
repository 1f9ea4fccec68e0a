package command

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

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
