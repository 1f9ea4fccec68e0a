package app

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// lookupIn is an environment for tests.
func lookupIn(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) { v, ok := env[name]; return v, ok }
}

func find(t *testing.T, settings []Setting, name string) Setting {
	t.Helper()
	i := slices.IndexFunc(settings, func(s Setting) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no setting %q in %v", name, settings)
	}
	return settings[i]
}

// other is a valid value of each flag that is not its default. A new flag needs one.
var other = map[string]string{
	"listen": "127.0.0.1:1", "data": "d", "bus": "b:", "store": "s:", "cache": "c:", "create": "true", "tokens": "t", "insecure": "true", "cors-origin": "https://a.example,http://b:1", "shards": "7",
	"backup-root": "b", "max-shards": "200", "shard-rate": "2.5",
	"dedup-window": "24h", "linger": "3ms", "open-entries": "5000", "open-bytes": "2MiB", "min-free": "2GiB", "window-linger": "4ms", "count-within": "3s",
	"window-messages": "11", "window-counters": "12", "window-memory": "128KiB", "commits": "3",
	"commit-timeout": "9s", "dead-letter-rate": "8", "worker-id": "w", "max-staleness": "5s", "connections": "13",
	"request-timeout": "6s", "shutdown-timeout": "7s", "log-level": "debug", "log-format": "json",
}

func TestEveryFlagHasAVariableThatTheFlagWinsOver(t *testing.T) {
	t.Parallel()
	for _, o := range options {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			value, shown := other[o.name], o.name
			want := value
			if o.name == "data" {
				shown, want = "store", "pebble:d"
			}
			env := map[string]string{Env(o.name): value}
			_, byDefault := parsed(t, nil, nil)
			_, byEnv := parsed(t, nil, env)
			_, byFlag := parsed(t, []string{"--" + o.name + "=" + value}, map[string]string{Env(o.name): "nonsense"})
			_, byEmpty := parsed(t, nil, map[string]string{Env(o.name): ""})
			if got := find(t, byDefault, shown); got.From != FromDefault || got.Value == want {
				t.Errorf("unset: got %+v, want a default that is not %q", got, want)
			}
			if got := find(t, byEnv, shown); got.From != FromEnv || got.Value != want {
				t.Errorf("by variable: got %+v, want %q from env", got, want)
			}
			if got := find(t, byFlag, shown); got.From != FromFlag || got.Value != want {
				t.Errorf("by flag: got %+v, want %q from flag", got, want)
			}
			if diff := cmp.Diff(byDefault, byEmpty); diff != "" {
				t.Errorf("an empty variable changes something:\n%s", diff)
			}
			if o.help == "" || !strings.Contains(FlagHelp(o.roles), "["+Env(o.name)+"]") {
				t.Errorf("help does not say what --%s and %s are", o.name, Env(o.name))
			}
		})
	}
}

func parsed(t *testing.T, args []string, env map[string]string) (Config, []Setting) {
	t.Helper()
	cfg, settings, err := Parse(Up, args, lookupIn(env))
	if err != nil {
		t.Fatalf("Parse(%q, %q): %v", args, env, err)
	}
	return cfg, settings
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args []string
		env  map[string]string
		want string // in the error
	}{
		{[]string{"--colour", "red"}, nil, "unknown flag: --colour"},
		{[]string{"--listen"}, nil, "--listen"},
		{[]string{"--listen", ""}, nil, "--listen: must not be empty"},
		{[]string{"extra"}, nil, `"extra"`},
		{[]string{"--shards", "0"}, nil, "--shards: must be an integer from 1 to 999, or auto"},
		{[]string{"--shards", "1000"}, nil, "from 1 to 999"},
		{[]string{"--max-shards", "auto"}, nil, "--max-shards: must be an integer from 1 to 999, got"},
		{[]string{"--shard-rate", "0"}, nil, "--shard-rate: must be a number from 0.1 to 1000, or auto, or off"},
		{[]string{"--shard-rate", "NaN"}, nil, "from 0.1"},
		{[]string{"--dedup-window", "8d"}, nil, "--dedup-window: must be a duration"},
		{[]string{"--dedup-window", "1m"}, nil, "from 1h to"},
		{[]string{"--linger", "-1s"}, nil, "--linger"},
		{[]string{"--count-within", "99ms"}, nil, "--count-within: must be a duration such as 250ms or 2h from 100ms to 1m, or none"},
		{[]string{"--count-within", "61s"}, nil, "from 100ms to 1m, or none"},
		{[]string{"--count-within", "0s"}, nil, "from 100ms to 1m, or none"},
		{[]string{"--window-memory", "1GB"}, nil, "--window-memory: must be a size such as"},
		{[]string{"--window-memory", "4294967295GiB"}, nil, "--window-memory"},
		{[]string{"--log-level", "loud"}, nil, "must be one of debug, info, warn, error"},
		{[]string{"--data", "d", "--store", "pebble:e"}, nil, "--data DIR is short for --store"},
		{nil, map[string]string{"COUNTMILL_DATA": "d", "COUNTMILL_STORE": "pebble:e"}, "COUNTMILL_DATA is short for"},
		{nil, map[string]string{"COUNTMILL_SHARDS": "x", "COUNTMILL_LINGER": "y"}, "COUNTMILL_LINGER: must be"},
		{nil, map[string]string{"COUNTMILL_SHARDS": "x", "COUNTMILL_LINGER": "y"}, "COUNTMILL_SHARDS: must be"},
	} {
		_, _, err := Parse(Up, test.args, lookupIn(test.env))
		if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Parse(%q, %q): got error %v, want a usage error with %q", test.args, test.env, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("Parse(%q, %q): error has several lines: %v", test.args, test.env, err)
		}
	}
}

func TestEverythingWrongIsNamedAtOnce(t *testing.T) {
	t.Parallel()
	_, _, err := Parse(Up, []string{"--shards", "0", "--dedup-window=1s"}, lookupIn(map[string]string{"COUNTMILL_COMMITS": "x"}))
	want := `--shards: must be an integer from 1 to 999, or auto, got "0"; ` +
		`--dedup-window: must be a duration such as 250ms or 2h from 1h to 8784h, or auto, got "1s"; ` +
		`COUNTMILL_COMMITS: must be an integer from 1 to 1024, or auto, got "x"`
	if !errors.Is(err, ErrUsage) || err.Error() != want {
		t.Errorf("Parse: got error %v, want %s", err, want)
	}
	err = Config{Listen: "x", Bus: "y:", Store: "pebble:", Cache: "z:"}.Check()
	for _, flag := range []string{"--listen: ", "--bus: ", "--store: ", "--cache: "} {
		if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), flag) {
			t.Errorf("Check: got error %v, want a usage error that names %s", err, flag)
		}
	}
}

// verbose is an error like Pebble's.
type verbose struct{}

func (verbose) Error() string              { return "no space" }
func (verbose) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte("no space\nstack trace")) }

func TestLogsAreForPeople(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		var b strings.Builder
		log := NewLogger(Config{LogFormat: format, LogLevel: "info"}.withDefaults(), &b)
		log.Error("x", "err", verbose{}, "took", 25*time.Second)
		if got := b.String(); strings.Contains(got, "stack trace") || !strings.Contains(got, "no space") || !strings.Contains(got, "25s") {
			t.Errorf("%s: want the error's one line and 25s, got %s", format, got)
		}
	}
}

func TestDataFlagWinsOverStoreVariable(t *testing.T) {
	t.Parallel()
	cfg, _ := parsed(t, []string{"--data", "a?b%c"}, map[string]string{"COUNTMILL_STORE": "pebble:e"})
	c, err := chooseStore(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if dir, err := c.url.Dir(); dir != "a?b%c" || err != nil {
		t.Errorf("got directory %q (error %v), want a?b%%c", dir, err)
	}
}

func TestSingleRolesHaveTheirFlagsOnly(t *testing.T) {
	t.Parallel()
	for role, flag := range map[Roles]string{Publisher: "--data", Aggregator: "--cache", Reader: "--bus"} {
		_, _, err := Parse(role, []string{flag, "x:"}, lookupIn(nil))
		if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), "unknown flag: "+flag) {
			t.Errorf("%s %s: got error %v, want unknown flag", role, flag, err)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		cfg  Config
		want string
	}{
		{Config{Bus: "kafka:"}, `--bus: unknown scheme in "kafka:" (valid: inproc:, pubsub://PROJECT/TOPIC?subscription=NAME)`},
		{Config{Bus: "loopback"}, "--bus: unknown scheme"},
		{Config{Bus: "inproc:?x=1"}, `unknown parameter "x" of inproc: (valid: none)`},
		{Config{Bus: "inproc:x"}, "takes nothing after the colon"},
		{Config{Store: "redis:x"}, "(valid: pebble:DIR, datastore://PROJECT[/DATABASE][?namespace=NS])"},
		{Config{Bus: "pubsub:p/t?subscription=s"}, `--bus: "pubsub:p/t" is not of the form pubsub://PROJECT/TOPIC?subscription=NAME`},
		{Config{Bus: "pubsub://p?subscription=s"}, "is not of the form pubsub://PROJECT/TOPIC"},
		{Config{Bus: "pubsub://p/t/x?subscription=s"}, "is not of the form pubsub://PROJECT/TOPIC"},
		{Config{Bus: "pubsub://p//?subscription=s"}, "is not of the form pubsub://PROJECT/TOPIC"},
		{Config{Bus: "pubsub://p/t"}, "names no subscription to take batches from; write pubsub://p/t?subscription=NAME"},
		{Config{Bus: "pubsub://p/t?subscription="}, "names no subscription"},
		{Config{Roles: Publisher, Bus: "pubsub://p/t?subscription="}, "names no subscription"},
		{Config{Bus: "pubsub://p/t?sub=s"}, `unknown parameter "sub" of pubsub: (valid: subscription, dead_letter)`},
		{Config{Bus: "pubsub://p/t?subscription=s&dead_letter="}, "parameter dead_letter must name the subscription"},
		{Config{Bus: "pubsub://p/t?subscription=s&dead_letter=s"}, "parameter dead_letter must name the subscription"},
		{Config{Bus: "pubsub://p/t?subscription=s&dead_letter=t"}, "parameter dead_letter must name the subscription"},
		{Config{Store: "datastore:p"}, "is not of the form datastore://PROJECT[/DATABASE]"},
		{Config{Store: "datastore://"}, "is not of the form datastore://PROJECT[/DATABASE]"},
		{Config{Store: "datastore://p/"}, "is not of the form datastore://PROJECT[/DATABASE]"},
		{Config{Store: "datastore://p/d/x"}, "is not of the form datastore://PROJECT[/DATABASE]"},
		{Config{Store: "datastore://p?ns=x"}, `unknown parameter "ns" of datastore: (valid: namespace)`},
		{Config{Store: "pebble:"}, "names no directory"},
		{Config{Store: "pebble://host/dir"}, "names a host"},
		{Config{Store: "pebble:%zz"}, "--store: invalid URL escape"},
		{Config{Store: "pebble:d?nmespace=a"}, `unknown parameter "nmespace" of pebble: (valid: namespace)`},
		{Config{Store: "pebble:d?namespace=a&namespace=b"}, "given 2 times"},
		{Config{Cache: "redis://h:1"}, `--cache: unknown scheme in "redis://h:1" (valid: memory:, memcached://HOST:PORT[,HOST:PORT...])`},
		{Config{Cache: "memcached:h:1"}, "names no server"},
		{Config{Cache: "memcached://"}, "names no server"},
		{Config{Cache: "memcached://h"}, `a server is HOST:PORT, got "h"`},
		{Config{Cache: "memcached://h:1,"}, `a server is HOST:PORT, got ""`},
		{Config{Cache: "memcached://h:1,h:0"}, `port is 1 to 65535, got "h:0"`},
		{Config{Cache: "memcached://h:1/"}, `port is 1 to 65535, got "h:1/"`},
		{Config{Cache: "memcached://h:1,h:1"}, `"h:1" is given twice`},
		{Config{Cache: "memcached://h:1?x=1"}, `unknown parameter "x" of memcached: (valid: none)`},
		{Config{Cache: "memory:?totals=0"}, "parameter totals must be an integer from 1"},
		{Config{CountWithin: time.Second}, "--count-within: with --bus inproc: an increment is in the total before its caller is answered"},
		{Config{Bus: "pubsub://p/t?subscription=s", CountWithin: 2501 * time.Millisecond}, "must be at most a quarter of --request-timeout, which is 2.5s, got 2.501s"},
		{Config{Roles: Publisher, Bus: "pubsub://p/t", CountWithin: 2 * time.Second, RequestTimeout: 7 * time.Second}, "which is 1.75s, got 2s"},
		{Config{Listen: "localhost"}, "--listen: must be HOST:PORT"},
		{Config{Listen: ":99999"}, "--listen: must be HOST:PORT"},
		{Config{Roles: Publisher}, "use `countmill up`"},
		{Config{Roles: Aggregator}, "use `countmill up`"},
		{Config{Roles: Reader}, "use `countmill up`"},
	} {
		err := test.cfg.Check()
		if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Check(%+v): got error %v, want a usage error with %q", test.cfg, err, test.want)
		}
	}
}

func TestUnknownVariables(t *testing.T) {
	t.Parallel()
	got := UnknownEnv([]string{
		"COUNTMILL_LISTN=x", "COUNTMILL_LISTEN=x", "COUNTMILL_SERVER=x", "COUNTMILL_TIMEOUT=1s", "PATH=x",
		"COUNTMILL_SERVICE_HOST=10.0.0.1", "COUNTMILL_PORT=tcp://10.0.0.1:80", "COUNTMILL_READER_SERVICE_PORT=80",
	})
	if diff := cmp.Diff([]string{"COUNTMILL_LISTN"}, got); diff != "" {
		t.Errorf("unknown variables (-want +got):\n%s", diff)
	}
}

// Within one process nothing is gained by waiting; elsewhere messages and entities cost.
func TestLingersSuitTheBus(t *testing.T) {
	t.Parallel()
	here, there := Config{}.withDefaults().resolve(), Config{Bus: "elsewhere:"}.withDefaults().resolve()
	if here.Linger >= 0 || here.WindowLinger >= 0 {
		t.Errorf("inproc: got lingers %s and %s, want none", here.Linger, here.WindowLinger)
	}
	if there.Linger != 250*time.Millisecond || there.WindowLinger != 100*time.Millisecond {
		t.Errorf("elsewhere: got lingers %s and %s, want 250ms and 100ms", there.Linger, there.WindowLinger)
	}
	chosen, _ := parsed(t, []string{"--linger", "0s", "--window-linger", "5ms"}, nil)
	if got := chosen.resolve(); got.Linger >= 0 || got.WindowLinger != 5*time.Millisecond {
		t.Errorf("chosen: got lingers %s and %s, want none and 5ms", got.Linger, got.WindowLinger)
	}
}

// With a budget of staleness the roles have their parts of it, where nobody chose a linger.
func TestABudgetDecidesLingers(t *testing.T) {
	t.Parallel()
	bus := []string{"--bus", "pubsub://p/t?subscription=s", "--count-within", "2s"}
	for name, c := range map[string]struct {
		args           []string
		linger, window string
	}{
		"alone":               {nil, "auto", "auto"},
		"beside a linger":     {[]string{"--linger", "3s"}, "3s", "auto"},
		"beside a window's":   {[]string{"--window-linger", "0s"}, "auto", "0s"},
		"taken back":          {[]string{"--count-within", "none"}, "250ms", "100ms"},
		"longer, with linger": {[]string{"--count-within", "1m", "--linger", "1s"}, "1s", "auto"},
	} {
		cfg, settings := parsed(t, append(slices.Clone(bus), c.args...), nil)
		if err := cfg.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := find(t, settings, "linger").Value; got != c.linger {
			t.Errorf("%s: linger %s, want %s", name, got, c.linger)
		}
		if got := find(t, settings, "window-linger").Value; got != c.window {
			t.Errorf("%s: window's linger %s, want %s", name, got, c.window)
		}
	}
	a := &App{cfg: Config{CountWithin: time.Second}, backends: &backends{}, metrics: newMetrics(), log: NewLogger(Config{}, io.Discard)}
	if got := a.publisherConfig(); got.CountWithin != time.Second {
		t.Errorf("the publisher has a budget of %s, want 1s", got.CountWithin)
	}
	if got := a.aggregatorConfig(); got.CountWithin != time.Second {
		t.Errorf("the aggregator has a budget of %s, want 1s", got.CountWithin)
	}
}
