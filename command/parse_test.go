package command

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/app"
)

// lookupIn is an environment for tests.
func lookupIn(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

func setting(t *testing.T, settings []Setting, name string) Setting {
	t.Helper()
	i := slices.IndexFunc(settings, func(s Setting) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no setting %q in %v", name, settings)
	}
	return settings[i]
}

// other is a valid value of each flag that is not its default. A new flag needs one.
var otherValue = map[string]string{
	"listen": "127.0.0.1:1", "data": "d", "bus": "b:", "store": "s:", "cache": "c:", "create": "true", "tokens": "t", "insecure": "true", "cors-origin": "https://a.example,http://b:1",
	"journal-prefixes": "b*", "backup-root": "b", "backup-every": "15m", "backup-keep": "168h", "shard-rate": "2.5",
	"dedup-window": "24h", "memory": "64MiB", "min-free": "2GiB", "count-within": "3s", "max-staleness": "5s", "board-rate": "15",
	"request-timeout": "6s", "index-rate": "15", "shutdown-timeout": "7s", "pprof": "127.0.0.1:2", "log-level": "debug", "log-format": "json",
}

func TestEveryFlagHasAVariableThatTheFlagWinsOver(t *testing.T) {
	t.Parallel()
	cfg, help := app.Defaults(app.Up), try(t, nil, "help", "up").out
	for _, o := range roleFlags(&cfg) {
		t.Run(o.Name, func(t *testing.T) {
			t.Parallel()
			value, shown := otherValue[o.Name], o.Name
			variable := "COUNTMILL_" + strings.ToUpper(strings.ReplaceAll(o.Name, "-", "_"))
			want := value
			if o.Name == "data" {
				shown, want = "store", "pebble:d"
			}
			env := map[string]string{variable: value}
			byDefault := parsed(t, nil, nil)
			byEnv := parsed(t, nil, env)
			byFlag := parsed(t, []string{"--" + o.Name + "=" + value}, map[string]string{variable: "nonsense"})
			byEmpty := parsed(t, nil, map[string]string{variable: ""})
			if got := setting(t, byDefault, shown); got.From != cli.FromDefault || got.Value == want {
				t.Errorf("unset: got %+v, want a default that is not %q", got, want)
			}
			if got := setting(t, byEnv, shown); got.From != cli.FromEnv || got.Value != want {
				t.Errorf("by variable: got %+v, want %q from env", got, want)
			}
			if got := setting(t, byFlag, shown); got.From != cli.FromFlag || got.Value != want {
				t.Errorf("by flag: got %+v, want %q from flag", got, want)
			}
			for i, s := range byFlag { // the default of --max-staleness depends on the store
				if s.Name != shown && s.Name != "max-staleness" && s.Value != byDefault[i].Value {
					t.Errorf("it sets --%s too: %q", s.Name, s.Value)
				}
			}
			if diff := cmp.Diff(byDefault, byEmpty); diff != "" {
				t.Errorf("an empty variable changes something:\n%s", diff)
			}
			if !strings.Contains(help, "["+variable+"]") {
				t.Errorf("help does not say what --%s and %s are", o.Name, variable)
			}
		})
	}
}

func parsed(t *testing.T, args []string, env map[string]string) []Setting {
	t.Helper()
	settings, err := Settings("up", args, lookupIn(env))
	if settings == nil {
		t.Fatalf("Settings(%q, %q): %v", args, env, err)
	}
	return settings
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		env  map[string]string
		want string // in the error
	}{
		{[]string{"--listen"}, nil, "--listen"},
		{[]string{"--listen", ""}, nil, "--listen: must not be empty"},
		{[]string{"extra"}, nil, `"extra"`},
		{[]string{"--index-rate", "0"}, nil, "--index-rate: must be an integer from 1 to 100000000, got"},
		{[]string{"--board-rate", "1000001"}, nil, "from 0 to 1000000"},
		{[]string{"--shard-rate", "0"}, nil, "--shard-rate: must be a number from 0.1 to 1000, or auto, or off"},
		{[]string{"--dedup-window", "8w"}, nil, "--dedup-window: must be a duration"},
		{[]string{"--dedup-window", "1m"}, nil, "from 1h to"},
		{[]string{"--count-within", "99ms"}, nil, "--count-within: must be a duration such as 250ms, 2h or 8d from 100ms to 1m, or none"},
		{[]string{"--memory", "1GB"}, nil, "--memory: must be a size such as 65536 or 64MiB from 16MiB to 16GiB"},
		{[]string{"--log-level", "loud"}, nil, "must be one of debug, info, warn, error"},
		{[]string{"--data", "d", "--store", "pebble:e"}, nil, "--data and --store: give one of them: --data DIR is short for --store"},
		{nil, map[string]string{"COUNTMILL_DATA": "d", "COUNTMILL_STORE": "pebble:e"}, "COUNTMILL_DATA and COUNTMILL_STORE: set one of them"},
		{nil, map[string]string{"COUNTMILL_MEMORY": "x", "COUNTMILL_INDEX_RATE": "y"}, "COUNTMILL_INDEX_RATE: must be"},
		{nil, map[string]string{"COUNTMILL_MEMORY": "x", "COUNTMILL_INDEX_RATE": "y"}, "COUNTMILL_MEMORY: must be"},
	} {
		_, err := Settings("up", test.args, lookupIn(test.env))
		if !errors.Is(err, cli.ErrUsage) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Settings(%q, %q): got error %v, want a usage error with %q", test.args, test.env, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("Settings(%q, %q): error has several lines: %v", test.args, test.env, err)
		}
	}
}

func TestSingleRolesHaveTheirFlagsOnly(t *testing.T) {
	t.Parallel()
	for role, flags := range map[string]string{
		"publisher": "--data", "aggregator": "--cache --data --min-free --backup-root --backup-every", "reader": "--bus --data --backup-root --backup-keep",
	} {
		for flag := range strings.FieldsSeq(flags) {
			_, err := Settings(role, []string{flag, "x:"}, lookupIn(nil))
			if !errors.Is(err, cli.ErrUsage) || !strings.Contains(err.Error(), "unknown flag: "+flag) {
				t.Errorf("%s %s: got error %v, want unknown flag", role, flag, err)
			}
		}
	}
}

// All web pages may call if callers have tokens, or if the operator says so.
func TestAnyOriginNeedsTokens(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args string
		want string
	}{
		{"--cors-origin *", "--cors-origin *: any web page"},
		{"--cors-origin https://a.example --cors-origin *", "--cors-origin *: any web page"},
		{"--cors-origin https://a.example,*", "--cors-origin *: any web page"},
		{"--cors-origin * --tokens t", ""},
		{"--cors-origin * --insecure", ""},
		{"--cors-origin https://a.example --cors-origin http://b", ""},
		{"--cors-origin https://a.example/", "--cors-origin: must be an origin"},
	} {
		_, err := Settings("up", strings.Fields(tc.args), lookupIn(nil))
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %q", tc.args, err, tc.want)
		}
	}
}
