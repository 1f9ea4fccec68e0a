package app

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/backend"
)

func TestCheckRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		cfg  Config
		want string
	}{
		{Config{Stores: []backend.Store{pebbleStore()}}, `--store: scheme "pebble" has two openers`},
		{Config{Stores: []backend.Store{{Scheme: "a:b", Open: pebbleStore().Open}}}, `--store: scheme "a:b" of another module must be a word`},
		{Config{Stores: []backend.Store{{Scheme: "other"}}}, `--store: scheme "other" of another module has no Open`},
		{Config{Buses: []backend.Bus{inprocBus()}}, `--bus: scheme "inproc" has two openers`},
		{Config{Bus: "kafka:"}, `--bus: unknown scheme in "kafka:" (valid: inproc:, nats://HOST:PORT[,HOST:PORT...]/STREAM, pubsub://PROJECT/TOPIC?subscription=NAME)`},
		{Config{Bus: "inproc:?x=1"}, `unknown parameter "x" of inproc: (valid: none)`},
		{Config{Bus: "inproc:x"}, "takes nothing after the colon"},
		{Config{Store: "redis:x"}, "(valid: pebble:DIR, postgres://[USER@]HOST[:PORT]/DATABASE[?schema=NAME], datastore://PROJECT[/DATABASE][?namespace=NS])"},
		{Config{Bus: "pubsub:p/t?subscription=s"}, `--bus: "pubsub:p/t" is not of the form pubsub://PROJECT/TOPIC?subscription=NAME`},
		{Config{Bus: "pubsub://p/t"}, "names no subscription to take batches from; write pubsub://p/t?subscription=NAME"},
		{Config{Roles: Publisher, Bus: "pubsub://p/t?subscription="}, "names no subscription"},
		{Config{Bus: "pubsub://p/t?sub=s"}, `unknown parameter "sub" of pubsub: (valid: subscription, dead_letter)`},
		{Config{Bus: "nats://h:1"}, `--bus: "nats://h:1" is not of the form nats://HOST:PORT[,HOST:PORT...]/STREAM`},
		{Config{Bus: "nats://h/s"}, `--bus: "h" is not HOST:PORT`},
		{Config{Bus: "nats://u:secret@h:1/s"}, `--bus: "h:1" has a user; name a file with USER:PASSWORD in the parameter credentials`},
		{Config{Bus: "nats://h:1/a.b"}, `--bus: the name of the stream must be 1 to 255 printable ASCII characters`},
		{Config{Bus: "nats://h:1/s?consumer=a*"}, `--bus: the name of the consumer must be`},
		{Config{Bus: "nats://h:1/s?replicas=6"}, `--bus: replicas must be from 1 to 5, got 6`},
		{Config{Bus: "nats://h:1/s?subscription=s"}, `unknown parameter "subscription" of nats: (valid: consumer, credentials, ca, replicas)`},
		{Config{Bus: "pubsub://p/t?subscription=s&dead_letter=t"}, "parameter dead_letter must name the subscription"},
		{Config{Store: "datastore:p"}, "is not of the form datastore://PROJECT[/DATABASE]"},
		{Config{Store: "datastore://p?ns=x"}, `unknown parameter "ns" of datastore: (valid: namespace)`},
		{Config{Store: "postgres://h1:5432,h2/d"}, "of several hosts the last needs a port if any has one"},
		{Config{Store: "postgres:db"}, "not of the form postgres://[USER@]HOST[:PORT]/DATABASE"},
		{Config{Store: "postgres://h/d?schma=x"}, `unknown parameter "schma" of postgres: (valid: schema, host, `},
		{Config{Store: "postgres://h/d?password=x"}, `unknown parameter "password" of postgres:`},
		{Config{Store: "pebble:"}, "names no directory"},
		{Config{Store: "pebble://host/dir"}, "names a host"},
		{Config{Store: "pebble:%zz"}, "--store: invalid URL escape"},
		{Config{Store: "pebble:d?nmespace=a"}, `unknown parameter "nmespace" of pebble: (valid: namespace)`},
		{Config{Store: "pebble:d?namespace=a&namespace=b"}, "given 2 times"},
		{Config{Cache: "redis://h:1"}, `--cache: unknown scheme in "redis://h:1" (valid: memory:, memcached://HOST:PORT[,HOST:PORT...])`},
		{Config{Cache: "memcached:h:1"}, "names no server"},
		{Config{Cache: "memcached://h"}, `a server is HOST:PORT, got "h"`},
		{Config{Cache: "memcached://h:1,h:0"}, `port is 1 to 65535, got "h:0"`},
		{Config{Cache: "memcached://h:1,h:1"}, `"h:1" is given twice`},
		{Config{Cache: "memcached://h:1?x=1"}, `unknown parameter "x" of memcached: (valid: none)`},
		{Config{Cache: "memory:?totals=0"}, "parameter totals must be an integer from 1"},
		{Config{CountWithin: time.Second}, "--count-within: with --bus inproc: an increment is in the total before its caller is answered"},
		{Config{Bus: "pubsub://p/t?subscription=s", CountWithin: 2501 * time.Millisecond}, "must be at most a quarter of --request-timeout, which is 2.5s, got 2.501s"},
		{Config{Roles: Publisher, Bus: "pubsub://p/t", CountWithin: 2 * time.Second, RequestTimeout: 7 * time.Second}, "which is 1.75s, got 2s"},
		{Config{Listen: "localhost"}, "--listen: must be HOST:PORT"},
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

// Within one process nothing is gained by waiting; elsewhere messages and entities cost.
func TestLingersSuitTheBus(t *testing.T) {
	t.Parallel()
	here, there := Config{}.withDefaults().Resolved(), Config{Bus: "elsewhere:"}.withDefaults().Resolved()
	if here.Publisher.Linger >= 0 || here.Aggregator.Linger >= 0 {
		t.Errorf("inproc: got lingers %s and %s, want none", here.Publisher.Linger, here.Aggregator.Linger)
	}
	if there.Publisher.Linger != 250*time.Millisecond || there.Aggregator.Linger != 100*time.Millisecond {
		t.Errorf("elsewhere: got lingers %s and %s, want 250ms and 100ms", there.Publisher.Linger, there.Aggregator.Linger)
	}
}

// Bounds follow Memory. With the default they are those that limits.md and package plan have.
func TestMemoryIsSplit(t *testing.T) {
	t.Parallel()
	for mib, want := range map[int][5]int{
		0:    {2_000_000, 256 << 20, 10_000, 100_000, 64 << 20},
		64:   {500_000, 64 << 20, 2500, 25_000, 16 << 20},
		5120: {40_000_000, 5 << 30, 200_000, 2_000_000, 1280 << 20},
	} {
		c := Config{Memory: mib << 20}.withDefaults()
		got := [5]int{c.Publisher.MaxEntries, c.Publisher.MaxBytes, c.Aggregator.WindowMessages, c.Aggregator.WindowCounters, c.Aggregator.WindowMemory}
		if got != want {
			t.Errorf("%d MiB: got %v, want %v", mib, got, want)
		}
	}
}

// The roles have the budget of staleness.
func TestRolesHaveTheBudget(t *testing.T) {
	t.Parallel()
	cfg := Config{CountWithin: time.Second, Logger: NewLogger(Config{}, io.Discard)}
	if got := publisherConfig(cfg, &backends{}, nil); got.CountWithin != time.Second {
		t.Errorf("the publisher has a budget of %s, want 1s", got.CountWithin)
	}
	if got := aggregatorConfig(cfg, &backends{}, foldDurations()); got.CountWithin != time.Second {
		t.Errorf("the aggregator has a budget of %s, want 1s", got.CountWithin)
	}
}

func TestCheckNamesEverythingWrong(t *testing.T) {
	t.Parallel()
	err := Config{Listen: "x", Bus: "y:", Store: "pebble:", Cache: "z:"}.Check()
	for _, flag := range []string{"--listen: ", "--bus: ", "--store: ", "--cache: "} {
		if !errors.Is(err, ErrUsage) || !strings.Contains(err.Error(), flag) {
			t.Errorf("Check: got error %v, want a usage error that names %s", err, flag)
		}
	}
}

// No message about a URL shows its password, however wrong the URL is.
func TestPasswordsAreNotShown(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	for _, text := range []string{
		"postgres://u:s3cret@127.0.0.1:1/d?connect_timeout=1", "postgresql://u:s3cret@127.0.0.1:1/d?sslmode=wrong", "postgre://u:s3cret@h/d", "postgres://u:s3cret%zz@h/d", "postgres://u:s3cret/@h/d",
		"postgres://u:s3cret@h:port/d", "postgres://u:s3cret@h/d?schma=x", "postgres://u:s3cret@h/d?schema=%zz", "postgres:u:s3cret@h/d", "postgres://h/d?password=s3cret", "x://h/d?password=s3cret&y=z",
		"postgres://u:12?s3cret@h/d", "postgres://u:12%s3cret@h/d", "postgres://u:12#s3cret@h/d", "postgres://u:12?a=s3cret&s3cret=b@h/d",
	} {
		var log strings.Builder
		cfg := Config{Listen: "127.0.0.1:0", Store: text, MinFree: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		r := &backend.Report{}
		exam := Examine(t.Context(), cfg, Exams{Store: true}, r)
		_, err := New(cfg)
		if err == nil {
			t.Errorf("%s: no error", text)
		}
		cfg.MinFree = 0
		_, err2 := New(cfg)
		if all := fmt.Sprint(cfg.Check(), err, err2, exam, *r, log.String(), backend.Shown(text)); strings.Contains(all, secret) {
			t.Errorf("%s: %s", text, all)
		}
	}
	for _, text := range []string{"nats://u:s3cret@h:1/s", "nats://u:a/s3cret@h:1/s", "nats://u:a@s3cret@h:1/s", "nats://u:a?s3cret@h:1/s", "nats://u:a,s3cret@h:1/s"} {
		if err := (Config{Listen: "127.0.0.1:0", Bus: text}).Check(); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
