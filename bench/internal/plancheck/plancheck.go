// Package plancheck compares the figures of `countmill plan` with publishers, aggregators and a reader
// on Google's emulators.
//
// It compares counts, not times. Counts do not depend on the speed of the machine while the pipeline
// keeps up: then a batch leaves each linger, and a window closes each 100 ms. The time of a commit
// matters if windows wait for one; it is measured, and given to the plan.
package plancheck

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/bench/internal/command"
	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/bench/internal/report"
	"github.com/countmill/countmill/bench/internal/system"
	"github.com/countmill/countmill/internal/plan"
)

type config struct {
	*command.Flags
	lasts, warm, settle, late      time.Duration
	publishers, aggregators        int
	zipfCounters, uniformCounters  int
	hotRate, zipfRate, uniformRate float64
	asked                          int
	totals, tolerance              float64
	only                           string
}

// A work is a load of the check.
type work struct {
	name     string
	rate     float64
	counters int
	zipf     float64
}

// A figure is one planned and measured value, per second.
type figure struct {
	What     string  `json:"what"`
	Planned  float64 `json:"planned_per_second"`
	Measured float64 `json:"measured_per_second"`
}

func (f figure) ratio() float64 { return f.Measured / f.Planned }

// off reports whether the measurement differs from the plan by more than the tolerance.
func (f figure) off(tolerance float64) bool {
	return !(math.Abs(f.ratio()-1) <= tolerance) // true for NaN too
}

// A result is one load.
type result struct {
	Load       string   `json:"load"`
	Rate       float64  `json:"increments_per_second"`
	Seconds    float64  `json:"seconds"`
	CommitTime float64  `json:"commit_ms"`
	Retries    float64  `json:"retries"`
	Figures    []figure `json:"figures"`
}

// Run is the command.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := config{Flags: command.NewFlags("plan", time.Hour, stderr)}
	c.DurationVar(&c.lasts, "lasts", time.Minute, "how long each load is counted")
	c.DurationVar(&c.warm, "warm", 30*time.Second, "how long each load runs before that, while counters get their shards")
	c.DurationVar(&c.settle, "settle", 65*time.Second, "how long an aggregator runs before the first load: it looks each marker up in its first minute")
	c.IntVar(&c.publishers, "publishers", 10, "publishers")
	c.IntVar(&c.aggregators, "aggregators", 1, "aggregators")
	c.Float64Var(&c.hotRate, "hot", 20_000, "increments a second on one counter")
	c.Float64Var(&c.zipfRate, "zipf", 3000, "increments a second, Zipf")
	c.IntVar(&c.zipfCounters, "zipf-counters", 100_000, "counters of that")
	c.Float64Var(&c.uniformRate, "uniform", 5000, "increments a second, uniform")
	c.IntVar(&c.uniformCounters, "uniform-counters", 10_000, "counters of that")
	c.Float64Var(&c.totals, "totals", 2000, "totals served a second, with the default staleness")
	c.IntVar(&c.asked, "asked", 100, "number of counters that they are of, the most incremented ones")
	c.Float64Var(&c.tolerance, "tolerance", 0.2, "how far the plan may be off")
	c.DurationVar(&c.late, "late", 10*time.Millisecond, "how late timers may be on average: a busier machine gives no result")
	c.StringVar(&c.only, "only", "", "hot, zipf or uniform (default: all three)")
	quick := map[string]string{"lasts": "4s", "warm": "2s", "settle": "1s", "publishers": "4", "hot": "2000", "zipf": "400", "zipf-counters": "200",
		"uniform": "400", "uniform-counters": "100", "totals": "100", "asked": "10", "tolerance": "1000", "late": "1h"}
	if err := c.Parse(args, quick); err != nil {
		return err
	}
	works := c.works()
	if len(works) == 0 {
		return fmt.Errorf("-only is hot, zipf or uniform, got %q", c.only)
	}
	ctx, site, err := c.Open(ctx)
	if err != nil {
		return err
	}
	defer site.Close()
	head := report.NewHead(c.Quick)
	if err := head.Print(stdout); err != nil {
		return err
	}
	results, err := c.all(ctx, site, works, stdout)
	return errors.Join(err, c.Keep(struct {
		report.Head
		Results []result `json:"results"`
	}{head, results}, stderr))
}

// works are the loads, the hottest last: a counter keeps the shards that it once got.
func (c *config) works() []work {
	all := []work{
		{"uniform", c.uniformRate, c.uniformCounters, 0},
		{"zipf", c.zipfRate, c.zipfCounters, 1.1},
		{"hot", c.hotRate, 1, 0},
	}
	return slices.DeleteFunc(all, func(w work) bool { return c.only != "" && w.name != c.only })
}

// all runs every load on one deployment, whose counters exist before.
func (c *config) all(ctx context.Context, site *command.Site, works []work, out io.Writer) ([]result, error) {
	dir, err := site.Sub("plan")
	if err != nil {
		return nil, err
	}
	g, err := system.OpenGoogle(ctx, system.Place{Dir: dir, Countmill: site.Countmill, Self: site.Self}, c.aggregators, c.publishers)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	settled := time.Now().Add(c.settle)
	addr, err := g.Reader(ctx)
	if err != nil {
		return nil, err
	}
	d := &deployment{config: c, google: g, reader: addr}
	for _, w := range works {
		d.names = max(d.names, w.counters)
	}
	if err := d.make(ctx); err != nil {
		return nil, err
	}
	if err := wait(ctx, time.Until(settled)); err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "\n| load | increments/s | commit, ms | | planned/s | measured/s | measured / planned |\n| --- | ---: | ---: | --- | ---: | ---: | ---: |\n")
	var results []result
	var wrong []string
	for _, w := range works {
		r, err := d.measure(ctx, w)
		if err != nil {
			return results, fmt.Errorf("%s: %w", w.name, err)
		}
		results = append(results, r)
		for _, f := range r.Figures {
			fmt.Fprintf(out, "| %s | %.0f | %.1f | %s | %.2f | %.2f | %.3f |\n", r.Load, r.Rate, r.CommitTime, f.What, f.Planned, f.Measured, f.ratio())
			if f.off(c.tolerance) {
				wrong = append(wrong, fmt.Sprintf("%s, %s: %.3f times", r.Load, f.What, f.ratio()))
			}
		}
	}
	if wrong != nil {
		return results, fmt.Errorf("the plan is off by more than %.0f %%: %s", c.tolerance*100, strings.Join(wrong, "; "))
	}
	return results, nil
}

// plan returns countmill's plan for a load at its measured rate.
func (c *config) plan(w work, seen counts, commitTime time.Duration) (plan.Plan, error) {
	l := plan.Defaults()
	l.Rate, l.Counters, l.Zipf = seen.increments, int64(w.counters), w.zipf
	l.Publishers, l.Aggregators, l.CommitTime = c.publishers, c.aggregators, max(commitTime, time.Millisecond)
	l.NameBytes = len(load.Names(1)[0])
	l.Totals, l.Asked = seen.totals, int64(min(c.asked, w.counters))
	return plan.Make(l)
}

// measure runs one load.
func (d *deployment) measure(ctx context.Context, w work) (result, error) {
	seen, commitTime, err := d.run(ctx, w)
	if err != nil {
		return result{}, err
	}
	p, err := d.plan(w, seen, commitTime)
	if err != nil {
		return result{}, err
	}
	cost := p.Countmill
	return result{
		Load: w.name, Rate: seen.increments, Seconds: d.lasts.Seconds(), CommitTime: float64(commitTime) / float64(time.Millisecond), Retries: seen.retries,
		Figures: []figure{
			{"messages", cost.Messages, seen.messages},
			{"parts", cost.Parts, seen.parts},
			{"commits", cost.Commits, seen.commits},
			// This metric does not include workers' own records.
			{"entities written", cost.EntitiesWritten - cost.WorkersWritten, seen.written},
			// Aggregators read each record again an hour after the first time.
			{"entities read", cost.TotalsRead, seen.read},
		},
	}, nil
}
