// Command bench gives the same counting work to countmill and to the systems that people would use
// instead, one after the other on this machine, checks that each has counted all that it
// acknowledged, and prints a table. docs/evidence/benchmarks.md says how to read it.
//
//	go run . -quick                        does everything work here?
//	go run .                               all measurements; takes hours
//	go run . -only countmill,redis -loads hot -rounds 3 -seconds 10
//	go run . -only http/ndjson -before OLD  beside an earlier program, in turns
//
// Further commands measure other things; each has -h, -quick, and a make target:
//
//	go run . staleness                     from Publish to the total that shows it
//	go run . memory                        an aggregator's memory, bytes on disk
//	go run . billion                       10^9 increments through up, which is killed meanwhile
//
// It starts every server itself on loopback in a temporary directory, and removes all of them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/countmill/countmill/bench/internal/billion"
	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/bench/internal/memory"
	"github.com/countmill/countmill/bench/internal/staleness"
	"github.com/countmill/countmill/bench/internal/system"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// commands measure other things than rates of systems.
var commands = map[string]func(ctx context.Context, args []string, stdout, stderr io.Writer) error{
	"billion":   billion.Run,
	"memory":    memory.Run,
	"staleness": staleness.Run,
}

// run also runs the servers that this program starts as copies of itself.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 3 {
		switch args[0] {
		case "serve-http":
			return system.ServeHTTP(ctx, args[1], args[2])
		case "serve-nats":
			return system.ServeNATS(ctx, args[1], args[2])
		}
	}
	if len(args) > 0 {
		if command := commands[args[0]]; command != nil {
			return command(ctx, args[1:], stdout, stderr)
		}
	}
	cfg, err := parse(args, stderr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.timeout, fmt.Errorf("-timeout %s has passed", cfg.timeout))
	defer cancel()
	return compare(ctx, cfg, stdout, stderr)
}

// A config is the command line.
type config struct {
	only, loads     []string
	rounds          int
	goal            load.Goal
	names, distinct int
	quick, list     bool
	timeout         time.Duration
	dir             string
	countmill       string
	before          string
}

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	var only, loads string
	var seconds, most float64
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&only, "only", "", "measure systems whose names begin with one of these, separated by commas")
	flags.StringVar(&loads, "loads", "", "measure on these loads only, separated by commas: hot, zipf, uniform, distinct")
	flags.IntVar(&c.rounds, "rounds", 5, "how often each system is measured on each load")
	flags.Float64Var(&seconds, "seconds", 60, "a measurement lasts at least this long")
	flags.Int64Var(&c.goal.Increments, "increments", 40_000_000, "a measurement has at least this many increments")
	flags.Float64Var(&most, "most", 0, "a measurement ends after so many seconds even if it has fewer increments (default twice -seconds)")
	flags.IntVar(&c.names, "names", 1_000_000, "counters of the loads zipf and uniform")
	flags.IntVar(&c.distinct, "distinct", 50_000, "counters of the load distinct, a multiple of 10,000")
	flags.BoolVar(&c.quick, "quick", false, "one round of a moment each, over fewer counters: shows that everything works; the figures are useless")
	flags.BoolVar(&c.list, "list", false, "list the systems and end")
	flags.DurationVar(&c.timeout, "timeout", 12*time.Hour, "end everything after this time")
	flags.StringVar(&c.dir, "dir", "", "keep the servers' data below this directory, on the disk to measure (default the system's temporary one)")
	flags.StringVar(&c.countmill, "countmill", "", "path of countmill (default: built from this tree)")
	flags.StringVar(&c.before, "before", "", "path of an earlier countmill: http/ndjson is measured with it too, and must not have become slower")
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 {
		return c, fmt.Errorf("unexpected argument %q; the commands are %s", flags.Arg(0), strings.Join(slices.Sorted(maps.Keys(commands)), ", "))
	}
	c.only, c.loads = split(only), split(loads)
	if c.quick {
		quicken(flags, &c, &seconds)
	}
	if most == 0 {
		most = 2 * seconds
	}
	c.goal.Least, c.goal.Most = time.Duration(seconds*float64(time.Second)), time.Duration(most*float64(time.Second))
	return c, c.validate()
}

// quicken makes every size small that the command line does not set.
func quicken(flags *flag.FlagSet, c *config, seconds *float64) {
	named := make(map[string]bool)
	flags.Visit(func(f *flag.Flag) { named[f.Name] = true })
	small := map[string]func(){
		"rounds":     func() { c.rounds = 1 },
		"seconds":    func() { *seconds = 0.5 },
		"increments": func() { c.goal.Increments = 1000 },
		"names":      func() { c.names = 10_000 },
		"distinct":   func() { c.distinct = 20_000 },
	}
	for name, set := range small {
		if !named[name] {
			set()
		}
	}
}

func (c config) validate() error {
	var errs []error
	atLeast := func(name string, got, least int64) {
		if got < least {
			errs = append(errs, fmt.Errorf("-%s must be at least %d, got %d", name, least, got))
		}
	}
	atLeast("rounds", int64(c.rounds), 1)
	atLeast("increments", c.goal.Increments, 1)
	atLeast("names", int64(c.names), 2)
	atLeast("distinct", int64(c.distinct), 10_000)
	if c.distinct%10_000 != 0 {
		errs = append(errs, fmt.Errorf("-distinct must be a multiple of 10000, got %d", c.distinct))
	}
	if c.goal.Least <= 0 || c.goal.Most < c.goal.Least {
		errs = append(errs, fmt.Errorf("-seconds must be positive and -most no less, got %s and %s", c.goal.Least, c.goal.Most))
	}
	return errors.Join(errs...)
}

func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

// compare measures and reports.
func compare(ctx context.Context, cfg config, stdout, stderr io.Writer) error {
	plan := choose(cfg, withBefore(system.All(), cfg.before))
	if len(plan) == 0 {
		return errors.New("-only and -loads leave nothing to measure; -list shows the names")
	}
	if cfg.list {
		return list(stdout, plan)
	}
	m, err := newMeasurer(ctx, cfg, stderr)
	if err != nil {
		return err
	}
	defer m.close()
	head := newHeader(cfg, plan)
	if err := head.print(stdout); err != nil {
		return err
	}
	results := m.all(ctx, plan, head.missing)
	if err := printTables(stdout, plan, results); err != nil {
		return err
	}
	return errors.Join(context.Cause(ctx), failures(results), slower(plan, results))
}
