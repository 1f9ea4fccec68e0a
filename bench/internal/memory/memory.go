// Package memory measures sizes: the memory of an aggregator that holds a great many counters
// uncommitted, and the bytes of a marker on disk in Pebble.
package memory

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/bench/internal/command"
	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/bench/internal/report"
	"github.com/countmill/countmill/bench/internal/server"
	"github.com/countmill/countmill/bench/internal/system"
)

type config struct {
	*command.Flags
	only     string
	counters int
}

// A result is one figure.
type result struct {
	What  string
	Value float64
	Unit  string
}

// Run is the command.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := &config{Flags: command.NewFlags("memory", time.Hour, stderr)}
	c.StringVar(&c.only, "only", "", "aggregator or disk (default: both)")
	c.IntVar(&c.counters, "counters", 1_000_000, "distinct counters in flight, and increments with ids")
	if err := c.Parse(args, map[string]string{"counters": "20000"}); err != nil {
		return err
	}
	parts := map[string]func(context.Context, *command.Site) ([]result, error){"aggregator": c.aggregator, "disk": c.disk}
	if c.only != "" && parts[c.only] == nil {
		return fmt.Errorf("-only is aggregator or disk, got %q", c.only)
	}
	ctx, site, err := c.Open(ctx)
	if err != nil {
		return err
	}
	defer site.Close()
	if err := report.Head(stdout, c.Quick); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "\n| | |\n| --- | ---: |\n")
	for _, name := range []string{"disk", "aggregator"} {
		if c.only != "" && c.only != name {
			continue
		}
		some, err := parts[name](ctx, site)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, r := range some {
			fmt.Fprintf(stdout, "| %s | %.1f %s |\n", r.What, r.Value, r.Unit)
		}
	}
	return nil
}

func mib(what string, bytes int64) result { return result{what, float64(bytes) / (1 << 20), "MiB"} }

// aggregator measures a process `countmill aggregator` with a window that holds all counters.
func (c *config) aggregator(ctx context.Context, site *command.Site) ([]result, error) {
	idle, err := c.idle(ctx, site)
	if err != nil {
		return nil, err
	}
	// Markers count like counters. The window lingers until every message is held.
	linger := time.Minute
	if c.Quick {
		linger = 10 * time.Second
	}
	early, held, wide, err := c.peaks(ctx, site, "--memory", "5GiB", "--count-within", linger.String())
	if err != nil {
		return nil, err
	}
	if early > 0 {
		return nil, fmt.Errorf("%d counters were folded before all were held: this machine does not send them in %s", early, linger)
	}
	about := fmt.Sprintf("RSS of an aggregator, %d distinct counters", c.counters)
	return []result{
		mib("RSS of an aggregator that has done nothing", idle),
		mib(about+" in one window, none committed, at most", held),
		mib(about+" in one window, until all are folded, at most", wide),
	}, nil
}

// open starts the emulators and one aggregator.
func open(ctx context.Context, site *command.Site, flags ...string) (*system.Google, error) {
	dir, err := site.Sub("aggregator")
	if err != nil {
		return nil, err
	}
	return system.OpenGoogle(ctx, system.Place{Dir: dir, Countmill: site.Countmill, Self: site.Self}, 1, flags...)
}

func (c *config) idle(ctx context.Context, site *command.Site) (int64, error) {
	g, err := open(ctx, site)
	if err != nil {
		return 0, err
	}
	defer g.Close()
	return g.Aggregators[0].Memory("VmRSS"), nil
}

// peaks returns the most memory of an aggregator until it has received every message, and until all are
// folded. It also returns how many counters were folded by the first moment.
func (c *config) peaks(ctx context.Context, site *command.Site, flags ...string) (early int, taken, folded int64, err error) {
	g, err := open(ctx, site, flags...)
	if err != nil {
		return 0, 0, 0, err
	}
	defer g.Close()
	process, pub := g.Aggregators[0], g.Publisher
	for _, name := range load.Names(c.counters) {
		if err := pub.Add(name, 1); err != nil {
			return 0, 0, 0, err
		}
	}
	if _, err := pub.Flush(ctx); err != nil {
		return 0, 0, 0, err
	}
	if early, err = g.Taken(ctx, int(pub.Stats().Messages)); err != nil {
		return 0, 0, 0, err
	}
	taken = process.Memory("VmHWM")
	if err := g.Folded(ctx, c.counters); err != nil {
		return 0, 0, 0, err
	}
	return early, taken, process.Memory("VmHWM"), g.CheckOnes(ctx, c.counters)
}

// disk writes increments with ids to Pebble through the pipeline. The size is that of
// the directory after it was closed and opened once more, which writes the data that is only in the
// log. The size of a directory with a single counter is subtracted.
func (c *config) disk(ctx context.Context, site *command.Site) ([]result, error) {
	name := load.Names(1)[0]
	base, err := diskSize(ctx, site, func(e *system.Embedded) error { return e.Add(name, 1) })
	if err != nil {
		return nil, err
	}
	ids, err := diskSize(ctx, site, func(e *system.Embedded) error { return publishIDs(ctx, e, name, c.counters) })
	if err != nil {
		return nil, err
	}
	return []result{{fmt.Sprintf("on disk for an increment with an id, of %d on one counter", c.counters), float64(ids-base) / float64(c.counters), "bytes"}}, nil
}

func publishIDs(ctx context.Context, e *system.Embedded, name string, n int) error {
	const some = 1000
	incs := make([]countmill.Increment, 0, some)
	for i := range n {
		incs = append(incs, countmill.Increment{Counter: name, Delta: 1, ID: fmt.Sprintf("id-%d", i)})
		if len(incs) == some || i == n-1 {
			if err := e.Publish(ctx, incs...); err != nil {
				return err
			}
			incs = incs[:0]
		}
	}
	got, err := e.Totals(ctx, []string{name})
	if err == nil && got[0] != int64(n) {
		err = fmt.Errorf("%w: got %d, want %d", load.ErrWrong, got[0], n)
	}
	return err
}

func diskSize(ctx context.Context, site *command.Site, write func(*system.Embedded) error) (int64, error) {
	dir, err := site.Sub("disk")
	if err != nil {
		return 0, err
	}
	data := filepath.Join(dir, "data")
	for _, write := range []func(*system.Embedded) error{write, func(*system.Embedded) error { return nil }} {
		e, err := system.OpenEmbedded(data)
		if err != nil {
			return 0, err
		}
		err = errors.Join(write(e), e.Flush(ctx))
		e.Close()
		if err != nil {
			return 0, err
		}
	}
	return server.Tables(data)
}
