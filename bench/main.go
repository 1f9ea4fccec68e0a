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
//	go run . counters                      what a counter costs, with 1 and 10 million of them
//	go run . hour                          an hour at an even rate, with series of 10 million counters
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
	"github.com/countmill/countmill/bench/internal/command"
	"github.com/countmill/countmill/bench/internal/counters"
	"github.com/countmill/countmill/bench/internal/hour"
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
	"counters":  counters.Run,
	"hour":      hour.Run,
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
	return compare(ctx, cfg, stdout, stderr)
}

// A config is the command line.
type config struct {
	*command.Flags
	only, loads     []string
	rounds          int
	goal            load.Goal
	names, distinct int
	list            bool
	before          string
}

func parse(args []string, stderr io.Writer) (config, error) {
	c := config{Flags: command.NewFlags("", 12*time.Hour, stderr)}
	var only, loads string
	var seconds, most float64
	c.StringVar(&only, "only", "", "measure systems whose names begin with one of these, separated by commas")
	c.StringVar(&loads, "loads", "", "measure on these loads only, separated by commas: hot, zipf, uniform, distinct")
	c.IntVar(&c.rounds, "rounds", 5, "how often each system is measured on each load")
	c.Float64Var(&seconds, "seconds", 60, "a measurement lasts at least this long")
	c.Int64Var(&c.goal.Increments, "increments", 40_000_000, "a measurement has at least this many increments")
	c.Float64Var(&most, "most", 0, "a measurement ends after so many seconds even if it has fewer increments (default twice -seconds)")
	c.IntVar(&c.names, "names", 1_000_000, "counters of the loads zipf and uniform")
	c.IntVar(&c.distinct, "distinct", 50_000, "counters of the load distinct, a multiple of 10,000")
	c.BoolVar(&c.list, "list", false, "list the systems and end")
	c.StringVar(&c.before, "before", "", "path of an earlier countmill: http/ndjson is measured with it too, and must not have become slower")
	quick := map[string]string{"rounds": "1", "seconds": "0.5", "increments": "1000", "names": "10000", "distinct": "20000"}
	if err := c.Parse(args, quick); err != nil {
		return c, fmt.Errorf("%w; the commands are %s", err, strings.Join(slices.Sorted(maps.Keys(commands)), ", "))
	}
	c.only, c.loads = split(only), split(loads)
	if most == 0 {
		most = 2 * seconds
	}
	c.goal.Least, c.goal.Most = time.Duration(seconds*float64(time.Second)), time.Duration(most*float64(time.Second))
	if c.rounds < 1 || c.goal.Increments < 1 || c.names < 2 || c.distinct < 10_000 || c.distinct%10_000 != 0 || c.goal.Least <= 0 || c.goal.Most < c.goal.Least {
		return c, errors.New("-rounds and -increments must be at least 1, -names at least 2, -distinct a multiple of 10000, -seconds positive, and -most no less")
	}
	return c, nil
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
	ctx, site, err := cfg.Open(ctx)
	if err != nil {
		return err
	}
	defer site.Close()
	missing, err := printHeader(stdout, cfg, plan)
	if err != nil {
		return err
	}
	results := newMeasurer(site, cfg, stderr).all(ctx, plan, missing)
	if err := printTables(stdout, plan, results); err != nil {
		return err
	}
	return errors.Join(context.Cause(ctx), failures(results), slower(plan, results))
}
