// Command identifiers counts every identifier in the Go standard library's source twice: with a running
// countmill, one increment for each occurrence, and with a plain map. The two must agree on every name,
// even if countmill was killed in between.
//
// It uses package client, as any service would, and sends each request under an Idempotency-Key of its
// own. So the client can safely repeat a request whose answer was lost.
//
//	go run ./cmd/countmill up &
//	go run ./examples/identifiers
//
// With --kill it starts countmill itself, and kills it with SIGKILL while increments are being sent:
//
//	go build -o /tmp/countmill ./cmd/countmill
//	go run ./examples/identifiers --kill 5 --binary /tmp/countmill
//
// With --bus and --store as well, it starts a publisher, a reader and several aggregators as separate
// processes. It kills one of the aggregators again and again. Half way it restarts the memcached that
// the reader uses. When all aggregators have been idle for a while, it reads every total by its name; a
// test of this package lists the store's keys to show that there are no others. Bus and store must
// exist: `make identifiers-google` uses Google's emulators.
//
//	go run ./examples/identifiers --kill 5 --binary /tmp/countmill --memcached /usr/bin/memcached \
//	    --bus 'pubsub://PROJECT/TOPIC?subscription=NAME' --store datastore://PROJECT --aggregators 2
//
// A counter's name is id: and the identifier. Without the prefix some identifiers could not be
// counters: __spare__ has a reserved form.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/countmill/countmill/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case errors.Is(err, errUsage):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "identifiers:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage")

type config struct {
	server  string // URL of countmill; empty with kill
	source  string // the directory whose Go files are read
	prefix  string // of every counter
	limit   int    // identifiers to count; 0 for all
	batch   int    // increments of one request
	workers int    // concurrent requests
	kill    int    // how often countmill is killed
	binary  string // path of countmill, for kill
	data    string // directory of its data and its log

	// For roles as separate processes.
	bus, store  string // URLs in countmill's format
	memcached   string // path of the program that is started for the reader
	aggregators int
}

func parseFlags(args []string, stderr io.Writer) (config, error) {
	var c config
	flags := flag.NewFlagSet("identifiers", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&c.server, "server", "http://127.0.0.1:8080", "`URL` of a running countmill")
	flags.StringVar(&c.source, "source", "", "`directory` whose Go files are read; default src in the directory that go env GOROOT prints")
	flags.StringVar(&c.prefix, "prefix", "id:", "prefix of every counter's name")
	flags.IntVar(&c.limit, "limit", 0, "count only the first `N` identifiers; 0 for all")
	flags.IntVar(&c.batch, "batch", 5000, "increments of one request")
	flags.IntVar(&c.workers, "workers", 4, "requests at once")
	flags.IntVar(&c.kill, "kill", 0, "start countmill, and kill and restart it `N` times on the way; needs --binary")
	flags.StringVar(&c.binary, "binary", "", "`path` of countmill, for --kill")
	flags.StringVar(&c.data, "data", "", "`directory` of data and logs for --kill; default a temporary one, removed at the end")
	flags.StringVar(&c.bus, "bus", "", "`URL` of the bus, to run each role as a process; needs --kill, --store and --memcached")
	flags.StringVar(&c.store, "store", "", "`URL` of the store, for --bus")
	flags.StringVar(&c.memcached, "memcached", "", "`path` of memcached, which is started for the reader, for --bus")
	flags.IntVar(&c.aggregators, "aggregators", 2, "how many aggregators, for --bus")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return c, err
		}
		return c, errUsage
	}
	if err := c.check(flags.Args()); err != nil {
		fmt.Fprintln(stderr, err)
		return c, errUsage
	}
	return c, nil
}

func (c config) check(rest []string) error {
	var errs []error
	if c.limit < 0 || c.batch < 1 || c.workers < 1 || c.kill < 0 || c.aggregators < 1 {
		errs = append(errs, errors.New("--limit and --kill must not be negative, --batch, --workers and --aggregators must be at least 1"))
	}
	if (c.kill > 0) != (c.binary != "") {
		errs = append(errs, errors.New("--kill and --binary belong together"))
	}
	apart := c.bus != ""
	if apart != (c.store != "") || apart != (c.memcached != "") || apart && c.kill == 0 {
		errs = append(errs, errors.New("--bus, --store and --memcached belong together, and need --kill"))
	}
	if len(rest) > 0 {
		errs = append(errs, fmt.Errorf("unknown argument %q", rest[0]))
	}
	return errors.Join(errs...)
}

// run is the whole program. It also returns an error if the two counts differ.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	cfg, err := parseFlags(args, stderr)
	if err != nil {
		return err
	}
	if cfg.source == "" {
		goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
		if err != nil {
			return fmt.Errorf("go env GOROOT: %w", err)
		}
		cfg.source = filepath.Join(strings.TrimSpace(string(goroot)), "src")
	}
	want, increments, err := count(cfg)
	if err != nil {
		return fmt.Errorf("count %s: %w", cfg.source, err)
	}
	f, err := newFleet(cfg, increments)
	if err != nil {
		return err
	}
	defer func() {
		f.stop(err == nil)
		if err != nil && f.dir != "" {
			err = fmt.Errorf("%w\n(countmill's data and logs are in %s)", err, f.dir)
		}
	}()
	if err := f.start(ctx); err != nil {
		return err
	}
	if err := f.reader.mustBeEmpty(ctx, cfg.prefix); err != nil {
		return err
	}
	once, err := newRemote(f.reader.base, client.WithTries(1))
	if err != nil {
		return err
	}
	defer once.CloseIdleConnections()
	began := time.Now()
	s, w := newSender(cfg, f, newProgress(stderr, increments)), newWatcher(once, cfg.prefix, want)
	if err := sendWatched(ctx, cfg, s, w); err != nil {
		return err
	}
	r := report{
		increments: increments, names: len(want), requests: s.requests.Load(), repeats: s.repeats.Load(),
		reads: w.reads, refused: w.refused, took: time.Since(began),
	}
	last, got, err := settled(ctx, cfg, f, want)
	if err != nil {
		return fmt.Errorf("read the totals: %w", err)
	}
	r.settled, r.compared = last.Sub(began)-r.took, time.Since(last)
	if err := r.addMetrics(ctx, f); err != nil {
		return err
	}
	r.print(stdout)
	return compare(cfg.prefix, want, got)
}

// sendWatched sends everything. If the roles are separate, it reads totals meanwhile.
func sendWatched(ctx context.Context, cfg config, s *sender, w *watcher) error {
	if cfg.bus == "" {
		return s.send(ctx)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watched := make(chan error, 1)
	go func() { watched <- w.run(watching) }()
	err := s.send(ctx)
	stop()
	return errors.Join(err, <-watched)
}

// compare reports every name on which the two counts differ; it lists the first few.
func compare(prefix string, want, got map[string]int64) error {
	var differences []string
	for name, n := range want {
		if total, ok := got[prefix+name]; !ok || total != n {
			differences = append(differences, fmt.Sprintf("%s%s: countmill has %d, the map %d", prefix, name, total, n))
		}
	}
	for counter, total := range got {
		if _, ok := want[strings.TrimPrefix(counter, prefix)]; !ok {
			differences = append(differences, fmt.Sprintf("%s: countmill has %d, the map has no such name", counter, total))
		}
	}
	if len(differences) == 0 {
		return nil
	}
	shown := differences[:min(5, len(differences))]
	return fmt.Errorf("%d names differ:\n  %s", len(differences), strings.Join(shown, "\n  "))
}
