// Package billion sends a great many increments through `countmill up`, which is killed every few
// seconds meanwhile, and compares every total with the sent increments.
//
// An increment is one line of an NDJSON body, {"counter":"..."}, with a delta of 1: nothing is added up
// before countmill has it. Each body has an Idempotency-Key of its own. It is sent again under the same
// key until the answer is 202, because nobody knows the increments that a killed process had counted. The library
// cannot do this: a publisher in this process has no `up` to kill, and a killed process loses the
// increments that its publisher has not sent.
package billion

import (
	"context"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countmill/countmill/bench/internal/command"
	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/bench/internal/report"
	"github.com/countmill/countmill/bench/internal/server"
	"github.com/countmill/countmill/bench/internal/system"
)

type config struct {
	*command.Flags
	increments         int64
	names, body, conns int
	kill               time.Duration
	seed               uint64
}

// A result is a run.
type result struct {
	Increments int64
	Names      int
	Seconds    float64 // from the first request to the last 202
	Rate       float64
	Kills      []float64 // at which second
	Away       float64
	Resends    int64
	Peak       int64
	Disk       int64
	Checked    float64
}

// A sample is the progress of the run at one moment.
type sample struct {
	Seconds    float64
	Increments int64
	RSS        int64 // of up, 0 while it does not run
}

// Run is the command.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c, err := parse(args, stderr)
	if err != nil {
		return err
	}
	ctx, site, err := c.Open(ctx)
	if err != nil {
		return err
	}
	defer site.Close()
	r := &result{Increments: c.increments, Names: c.names}
	if err := report.Head(stdout, c.Quick); err != nil {
		return err
	}
	if err := c.count(ctx, site, r, stdout); err != nil {
		return err
	}
	r.print(stdout, c)
	return nil
}

func parse(args []string, stderr io.Writer) (*config, error) {
	c := &config{Flags: command.NewFlags("billion", time.Hour, stderr)}
	increments := c.String("increments", "1e9", "how many increments, as 1e9 or 1000000000")
	c.IntVar(&c.names, "names", 1_000_000, "counters")
	c.IntVar(&c.body, "body", 50_000, "increments in a request")
	c.IntVar(&c.conns, "conns", 8, "connections")
	c.DurationVar(&c.kill, "kill", 5*time.Second, "kill up after half to one and a half of this, again and again; 0 for never")
	c.Uint64Var(&c.seed, "seed", 1, "of the draws")
	// Enough increments for several kills, also on a machine that is a few times as fast.
	if err := c.Parse(args, map[string]string{"increments": "5e6", "names": "10000", "body": "5000", "kill": "700ms"}); err != nil {
		return nil, err
	}
	n, err := strconv.ParseFloat(*increments, 64)
	if err != nil || n < 1 || n > 1e15 || n != math.Trunc(n) {
		return nil, fmt.Errorf("-increments must be a whole number, got %q", *increments)
	}
	c.increments = int64(n)
	if c.names < 2 || c.body < 1 || c.body > 200_000 || c.conns < 1 || c.kill < 0 {
		return nil, fmt.Errorf("-names must be at least 2, -body 1 to 200000, -conns at least 1, -kill not negative; got %d, %d, %d, %s", c.names, c.body, c.conns, c.kill)
	}
	return c, nil
}

// count sends everything, kills, and checks.
func (c *config) count(ctx context.Context, site *command.Site, r *result, out io.Writer) error {
	data := filepath.Join(site.Dir, "data")
	up, err := newUp(site, data)
	if err != nil {
		return err
	}
	if err := up.start(ctx); err != nil {
		return err
	}
	defer up.stop()
	s, err := newSender(c, up.addr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	sending, sent := context.WithCancel(ctx)
	begin := time.Now()
	group.Go(func() error { return up.killEvery(sending, c.kill, begin) })
	group.Go(func() error { s.watch(sending, up, begin, out); return nil })
	group.Go(func() error {
		defer sent()
		err := s.send(ctx)
		r.Seconds = time.Since(begin).Seconds()
		return err
	})
	if err := group.Wait(); err != nil {
		return err
	}
	r.Rate, r.Resends = float64(c.increments)/r.Seconds, s.resends.Load()
	r.Kills, r.Away, r.Peak = up.kills, up.away.Seconds(), max(up.peak, up.memory("VmHWM"))
	// The check covers the data on disk, not the memory of a process.
	if err := up.restart(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	begin = time.Now()
	if r.Disk, err = server.DirSize(data, func(string) bool { return true }); err != nil {
		return err
	}
	err = load.Check(context.WithoutCancel(ctx), load.Names(c.names), s.bodies.Want(), func(ctx context.Context, names []string) ([]int64, error) {
		return system.Totals(ctx, up.addr, names)
	})
	r.Checked = time.Since(begin).Seconds()
	return err
}

func (r *result) print(out io.Writer, c *config) {
	fmt.Fprintf(out, "\nexact: %d increments over %d counters, every total as sent\n", r.Increments, r.Names)
	fmt.Fprintf(out, "%.1f s, %s increments a second, in requests of %d on %d connections\n", r.Seconds, report.Short(r.Rate), c.body, c.conns)
	fmt.Fprintf(out, "killed %d times, down for %.1f s in all; %d requests were sent again\n", len(r.Kills), r.Away, r.Resends)
	fmt.Fprintf(out, "up took %s of memory at most (RSS), and has %s on disk; totals were read in %.1f s\n", mib(r.Peak), mib(r.Disk), r.Checked)
}

func mib(bytes int64) string { return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20)) }
