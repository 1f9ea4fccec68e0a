package command

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/countmill/countmill/internal/testing/emulator"
)

// Pebble leaves a goroutine behind when a directory cannot be opened, as its lock is
// held; the process ends then.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(emulator.Around(m),
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"), // begun by Google's libraries as they load
		goleak.IgnoreAnyFunction("github.com/cockroachdb/pebble/v2/vfs.(*diskHealthCheckingFS).startTickerLocked.func1"),
		goleak.Cleanup(func(code int) {
			if binaryDir != "" {
				os.RemoveAll(binaryDir)
			}
			os.Exit(code)
		}))
}

// A result is how a command ended.
type result struct {
	code        int
	out, errOut string
}

// try runs the command line in this process.
func try(t *testing.T, env []string, args ...string) result {
	t.Helper()
	var out, errOut bytes.Buffer
	code := run(t.Context(), host{argv: args, environ: env, stdout: &out, stderr: &errOut})
	return result{code, out.String(), errOut.String()}
}

func (r result) wantError(t *testing.T, code int, text string) {
	t.Helper()
	if r.code != code || !strings.Contains(r.errOut, text) {
		t.Errorf("got exit %d, standard error %q; want exit %d and %q", r.code, r.errOut, code, text)
	}
	if n := strings.Count(r.errOut, "\n"); n != 1 {
		t.Errorf("standard error has %d lines, want 1:\n%s", n, r.errOut)
	}
	if r.out != "" {
		t.Errorf("standard output is %q, want nothing", r.out)
	}
}

func TestUsageErrors(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 501)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"incrr"}, `unknown command "incrr"; did you mean incr? (see countmill help)`},
		{[]string{"increment", "a"}, `unknown command "increment"; did you mean incr?`},
		{[]string{"read", "a"}, `unknown command "read"; did you mean get?`},
		{[]string{"index", "remove", "a"}, `unknown "remove"; did you mean delete?`},
		{[]string{"top", "a", "-n", "0"}, `-n: must be an integer from 1 to 1000, got "0"`},
		{[]string{"top", "a", "-x", "0"}, "unknown shorthand flag: 'x' in -x (see countmill help top)"},
		{[]string{"help", "frobnicate"}, `unknown command "frobnicate" (try one of: up, publisher, `},
		{[]string{"up", "extra"}, `takes no arguments, got "extra"`},
		{[]string{"config", "--bus", "x:"}, "--bus: unknown scheme"},
		{[]string{"version", "x"}, `the command takes no arguments, got "x"`},
		{[]string{"up", "--memory", "x", "--log-level", "y"}, `got "x"; --log-level: must be`},
		{[]string{"get", "a", "--timeout", "x"}, `--timeout: must be a duration such as 250ms, 2h or 8d from 1ms to 720h, got "x"`},
		{[]string{"get", "a", "--json=x"}, `--json: must be true or false, got "x"`},
		{[]string{"incr"}, "NAME is missing"},
		{[]string{"incr", "-3"}, "is given where NAME is expected"},
		{[]string{"incr", ""}, `NAME "": counter is empty`},
		{[]string{"incr", long}, `NAME "` + long[:60] + `"... of 501 bytes: counter is too long (limit: 1 to 500 bytes)`},
		{[]string{"incr", "a", "0"}, "delta is 0 (limit: not 0)"},
		{[]string{"incr", "a", "1.5"}, "is not an integer"},
		{[]string{"incr", "a", "9007199254740992"}, "out of range"},
		{[]string{"incr", "a", "1", "2"}, "too many arguments"},
		{[]string{"incr", "a", "--id", ""}, "--id is empty"},
		{[]string{"incr", "a", "--key", strings.Repeat("k", 129)}, "--key is too long"},
		{[]string{"incr", "a", "--time", "yesterday"}, "--time: must be like"},
		{[]string{"incr", "a", "--server", "ftp://x"}, "--server: must be http://HOST:PORT"},
		{[]string{"get", "a", "b "}, `NAME "b "`},
		{[]string{"get", "a", "--max-staleness", "-1s"}, "--max-staleness: must be a duration such as 250ms, 2h or 8d from 0s to 1h"},
		{append([]string{"get"}, strings.Split(strings.Repeat("a,", 1001), ",")[:1001]...), "1001 names are too many (limit: 1000)"},
		{[]string{"watch"}, "NAME is missing, or --prefix"},
		{[]string{"watch", "a", "--prefix", "b"}, "--prefix and NAME exclude each other"},
		{[]string{"watch", "a", "--limit", "5"}, "--limit needs --prefix"},
		{[]string{"grow", "a"}, "name one NAME and its SHARDS"},
		{[]string{"grow", "a", "0"}, "must be a number from 1 to 999"},
		{[]string{"grow", "a ", "5"}, `NAME "a "`},
		{[]string{"reset", "a", "b"}, "too many arguments"},
		{[]string{"reset", "a", "--id", ""}, "--id is empty"},
		{[]string{"delete"}, "NAME is missing"},
		{append([]string{"watch"}, strings.Split(strings.Repeat("a,", 101), ",")[:101]...), "101 names are too many (limit: 100)"},
	} {
		t.Run(strings.Join(test.args[:min(len(test.args), 4)], " "), func(t *testing.T) {
			t.Parallel()
			try(t, nil, test.args...).wantError(t, 2, test.want)
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	if got := try(t, nil); got.code != 2 || !strings.Contains(got.errOut, "countmill up") {
		t.Errorf("no arguments: got exit %d and %q, want 2 and the overview", got.code, got.errOut)
	}
	for _, args := range [][]string{{"help"}, {"--help"}, {"-h"}, {"help", "--help"}} {
		if got := try(t, nil, args...); got.code != 0 || !strings.Contains(got.out, "Usage: countmill COMMAND") {
			t.Errorf("%q: got exit %d and %q, want the overview", args, got.code, got.out)
		}
	}
	for _, cmd := range append(program().Commands, program().Families...) {
		words := strings.Fields(cmd.Path)
		for _, args := range [][]string{append([]string{"help"}, words...), append(words, "--help")} {
			got := try(t, nil, args...)
			if got.code != 0 || !strings.HasPrefix(got.out, "Usage: countmill "+cmd.Path) || got.errOut != "" {
				t.Errorf("%q: got exit %d, %q, %q; want help", args, got.code, got.out, got.errOut)
			}
		}
	}
}

func TestConfigShowsWhereSettingsComeFrom(t *testing.T) {
	t.Parallel()
	got := try(t, []string{"COUNTMILL_LISTEN=127.0.0.1:1"}, "config", "--data", "x")
	for _, want := range [][]string{
		{"listen", "127.0.0.1:1", "env", "COUNTMILL_LISTEN"},
		{"store", "pebble:x", "flag", "COUNTMILL_STORE"},
		{"shutdown-timeout", "25s", "default", "COUNTMILL_SHUTDOWN_TIMEOUT"},
	} {
		found := false
		for line := range strings.Lines(got.out) {
			found = found || strings.Join(strings.Fields(line), " ") == strings.Join(want, " ")
		}
		if !found {
			t.Errorf("no line %q in:\n%s", want, got.out)
		}
	}
	asJSON := try(t, nil, "config", "--json")
	if asJSON.code != 0 || !strings.Contains(asJSON.out, `"from": "default"`) {
		t.Errorf("--json: got exit %d and %s", asJSON.code, asJSON.out)
	}
	if secret := try(t, []string{"COUNTMILL_STORE=postgres://u:s3cret@h/d"}, "config"); secret.code != 0 || strings.Contains(secret.out, "s3cret") {
		t.Errorf("a password: exit %d and %s", secret.code, secret.out)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if got := try(t, nil, "version"); got.code != 0 || !strings.HasPrefix(got.out, "countmill ") {
		t.Errorf("got exit %d and %q", got.code, got.out)
	}
	if got := try(t, nil, "--version"); got.code != 0 || !strings.HasPrefix(got.out, "countmill ") {
		t.Errorf("--version: got exit %d and %q", got.code, got.out)
	}
	if got := try(t, nil, "version", "--json"); got.code != 0 || !strings.Contains(got.out, `"go": "go1.`) {
		t.Errorf("--json: got exit %d and %q", got.code, got.out)
	}
}

func TestInterruptedCommandEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var errOut bytes.Buffer
	code := run(ctx, host{argv: []string{"get", "a"}, stdout: &errOut, stderr: &errOut})
	if code != 1 {
		t.Errorf("got exit %d, want 1", code)
	}
}
