// Package staleness measures the time from the call of Publish until a read of the total shows the
// increment, and the time from its return until a read with its receipt is answered.
package staleness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/bench/internal/command"
	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/bench/internal/report"
	"github.com/countmill/countmill/bench/internal/system"
	"github.com/countmill/countmill/publisher"
)

// A result is one schedule on one pipeline.
type result struct {
	What        string // embedded, emulators or receipts
	Aggregators int
	Counters    int
	Rate        int
	Probes      int
	P50         float64
	P99         float64
	Max         float64
	Written     float64 // entities, for a million increments
	Read        float64 // entities
	Error       string
}

type config struct {
	*command.Flags
	only            string
	lasts, warm     time.Duration
	rate, counters  int
	receiptRate     int
	receiptCounters int
	names           int
	top             time.Duration
}

// Run is the command.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := config{Flags: command.NewFlags("staleness", 2*time.Hour, stderr)}
	c.StringVar(&c.only, "only", "", "embedded, emulators or receipts (default: all three)")
	c.DurationVar(&c.lasts, "lasts", 5*time.Minute, "how long embedded and emulators are probed")
	c.DurationVar(&c.warm, "warm", 5*time.Second, "how long the load runs before the first probe")
	c.IntVar(&c.rate, "rate", 20_000, "increments a second on the emulators")
	c.IntVar(&c.receiptRate, "receipt-rate", 5000, "increments a second beside the receipts")
	c.IntVar(&c.receiptCounters, "receipt-counters", 20_000, "counters of that load, uniform; before it, one counter")
	c.IntVar(&c.counters, "counters", 1000, "counters on the emulators")
	c.IntVar(&c.names, "names", 1_000_000, "counters of the embedded pipeline, Zipf")
	c.DurationVar(&c.top, "top", 20*time.Second, "how long the embedded pipeline's top rate is measured, of which it gets a quarter")
	quick := map[string]string{"lasts": "1s", "warm": "200ms", "rate": "1000", "receipt-rate": "500", "counters": "100", "names": "1000", "top": "300ms",
		"receipt-counters": "200"}
	if err := c.Parse(args, quick); err != nil {
		return err
	}
	if !slices.Contains([]string{"", "embedded", "emulators", "receipts"}, c.only) {
		return fmt.Errorf("-only is embedded, emulators or receipts, got %q", c.only)
	}
	ctx, site, err := c.Open(ctx)
	if err != nil {
		return err
	}
	defer site.Close()
	if err := report.Head(stdout, c.Quick); err != nil {
		return err
	}
	m := &measurement{config: c, site: site, out: stdout}
	return m.all(ctx)
}

type measurement struct {
	config
	site *command.Site
	out  io.Writer
}

func (m *measurement) all(ctx context.Context) error {
	fmt.Fprintf(m.out, "\n| | aggregators | counters | increments/s | probes | p50 ms | p99 ms | max ms |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, part := range []struct {
		name string
		run  func(context.Context) error
	}{{"embedded", m.embedded}, {"emulators", m.emulators}, {"receipts", m.receipts}} {
		if m.only != "" && m.only != part.name {
			continue
		}
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	return nil
}

// keep completes a result, and prints it.
func (m *measurement) keep(r result, took []time.Duration, err error) result {
	if err != nil {
		r.Error = err.Error()
	} else {
		slices.Sort(took)
		at := func(q float64) float64 { return float64(took[int(q*float64(len(took)-1))]) / float64(time.Millisecond) }
		r.Probes, r.P50, r.P99, r.Max = len(took), at(0.5), at(0.99), at(1)
	}
	fmt.Fprintf(m.out, "| %s | %d | %d | %d | %d | %.1f | %.1f | %.1f | %s\n", r.What, r.Aggregators, r.Counters, r.Rate, r.Probes, r.P50, r.P99, r.Max, r.Error)
	return r
}

// embedded probes the parts of `countmill up`, at a quarter of their top rate.
func (m *measurement) embedded(ctx context.Context) error {
	dir, err := m.site.Sub("embedded")
	if err != nil {
		return err
	}
	e, err := system.OpenEmbedded(dir)
	if err != nil {
		return err
	}
	defer e.Close()
	names := load.Names(m.names)
	random := rand.New(rand.NewPCG(13, 14))
	draw := load.Zipf(random, len(names))
	top, err := topRate(ctx, e, names, draw, m.top)
	if err != nil {
		return err
	}
	r := result{What: "embedded", Counters: len(names), Rate: top / 4}
	took, err := measure(ctx, pipeline{
		names: names,
		add:   func(name string) error { return e.Add(name, 1) },
		publish: func(ctx context.Context, name string, delta int64) error {
			return e.Publish(ctx, countmill.Increment{Counter: name, Delta: delta})
		},
		totals: e.Totals,
	}, schedule{rate: r.Rate, draw: draw, warm: m.warm, lasts: m.lasts, every: 10 * time.Millisecond, pause: time.Millisecond, wait: time.Minute})
	m.keep(r, took, err)
	return err
}

// topRate returns how many increments a second are counted from one goroutine, which later makes the
// load.
func topRate(ctx context.Context, e *system.Embedded, names []string, draw func() uint32, lasts time.Duration) (int, error) {
	begin, n := time.Now(), 0
	for time.Since(begin) < lasts {
		for range 1000 {
			err := e.Add(names[draw()], 1)
			for errors.Is(err, countmill.ErrOverloaded) && system.Wait(ctx, time.Millisecond) == nil {
				err = e.Add(names[0], 1)
			}
			if err != nil {
				return 0, err
			}
			n++
		}
	}
	if err := e.Flush(ctx); err != nil {
		return 0, err
	}
	return int(float64(n) / time.Since(begin).Seconds()), nil
}

// emulators probes the roles as separate processes, on Google's emulators.
func (m *measurement) emulators(ctx context.Context) error {
	r := result{What: "emulators", Aggregators: 1, Counters: m.counters, Rate: m.rate}
	took, err := m.onGoogle(ctx, r)
	m.keep(r, took, err)
	return err
}

func (m *measurement) onGoogle(ctx context.Context, r result) ([]time.Duration, error) {
	d, err := m.deploy(ctx, r)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return measure(ctx, pipeline{
		names: d.names,
		add:   d.add,
		publish: func(ctx context.Context, name string, delta int64) error {
			_, err := d.pub.Publish(ctx, countmill.Increment{Counter: name, Delta: delta})
			return err
		},
		totals: func(ctx context.Context, names []string) ([]int64, error) { return system.Totals(ctx, d.reader, names) },
	}, schedule{rate: r.Rate, draw: d.draw, warm: m.warm, lasts: m.lasts, every: 50 * time.Millisecond, pause: 5 * time.Millisecond, wait: time.Minute})
}

// A deployment is roles on emulators that contain only the counters.
type deployment struct {
	*system.Google
	pub    *publisher.Publisher
	reader string // address
	names  []string
	draw   func() uint32
}

func (d *deployment) add(name string) error { return d.pub.Add(name, 1) }

func (m *measurement) deploy(ctx context.Context, r result) (*deployment, error) {
	dir, err := m.site.Sub("google")
	if err != nil {
		return nil, err
	}
	g, err := system.OpenGoogle(ctx, system.Place{Dir: dir, Countmill: m.site.Countmill, Self: m.site.Self}, 1)
	if err != nil {
		return nil, err
	}
	random := rand.New(rand.NewPCG(15, 16))
	d := &deployment{Google: g, pub: g.Publisher, names: load.Names(r.Counters), draw: func() uint32 { return uint32(random.IntN(r.Counters)) }}
	if err := d.fill(ctx); err != nil {
		g.Close()
		return nil, err
	}
	return d, nil
}

// fill starts a reader, and counts every counter once: existing counters cost no record.
func (d *deployment) fill(ctx context.Context) (err error) {
	if d.reader, err = d.Reader(ctx); err != nil {
		return err
	}
	for _, name := range d.names {
		if err := d.add(name); err != nil {
			return err
		}
	}
	if _, err := d.pub.Flush(ctx); err != nil {
		return err
	}
	return d.Folded(ctx, len(d.names))
}
