package command

import (
	"context"
	"net/http"
	"net/http/httptest"
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
			code := run(ctx, call{args: tt.args, stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr})
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
	run(ctx, call{
		args:    []string{"up", "--listen", "127.0.0.1:0", "--data", t.TempDir()},
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
	run(t.Context(), call{args: []string{"ls", "--server", srv.URL}, stdout: &stdout, stderr: &stderr})
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
