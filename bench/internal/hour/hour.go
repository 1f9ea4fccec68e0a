// Package hour sends increments for a long time to `countmill up`, which keeps a series of every counter. It measures how long
// requests and fresh reads take, and the bytes written to the disk. It compares every total in the end.
package hour

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/bench/internal/command"
	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/bench/internal/report"
	"github.com/countmill/countmill/bench/internal/server"
	"github.com/countmill/countmill/bench/internal/system"
	"github.com/countmill/countmill/client"
)

type config struct {
	*command.Flags
	rate, names, body, conns int
	lasts, row, probe        time.Duration
	keep                     string
	seed                     uint64
}

// Run is the command.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := &config{Flags: command.NewFlags("hour", 3*time.Hour, stderr)}
	c.IntVar(&c.rate, "rate", 0, "increments a second; 0 for as many as possible")
	c.IntVar(&c.names, "names", 10_000_000, "counters, Zipf")
	c.IntVar(&c.body, "body", 50_000, "increments in a request")
	c.IntVar(&c.conns, "conns", 8, "connections")
	c.DurationVar(&c.lasts, "lasts", time.Hour, "how long increments are sent")
	c.DurationVar(&c.row, "row", 5*time.Minute, "the time of a row of the table")
	c.DurationVar(&c.probe, "probe", 100*time.Millisecond, "how often a single increment is sent, and read back")
	c.StringVar(&c.keep, "keep", "1m:6h,15m:400d", "what the rule for series keeps of every counter; empty for no series")
	c.Uint64Var(&c.seed, "seed", 1, "of the draws")
	if err := c.Parse(args, map[string]string{"rate": "20000", "names": "1000", "body": "1000", "lasts": "1s", "row": "500ms", "probe": "20ms"}); err != nil {
		return err
	}
	if c.rate < 0 || c.names < 2 || c.body < 1 || c.conns < 1 || c.lasts <= 0 || c.row <= 0 || c.probe <= 0 {
		return errors.New("-names must be at least 2, -rate not negative, and all other numbers positive")
	}
	ctx, site, err := c.Open(ctx)
	if err != nil {
		return err
	}
	defer site.Close()
	if err := report.Head(stdout, c.Quick); err != nil {
		return err
	}
	r := &run{config: c, out: stdout, bodies: load.NewBodies(c.seed, c.names), data: filepath.Join(site.Dir, "data")}
	return r.all(ctx, site)
}

// A run is a load on one process.
type run struct {
	*config
	out     io.Writer
	bodies  *load.Bodies
	data    string
	addr    string
	client  *client.Client
	process *server.Process

	next   atomic.Int64 // body
	sent   atomic.Int64 // acknowledged increments
	bodied times
	posted times // single increments
	read   times // fresh totals
}

func (r *run) all(ctx context.Context, site *command.Site) (err error) {
	if r.addr, _, err = server.FreeAddr(); err != nil {
		return err
	}
	spec := server.Spec{
		Name: "up", Path: site.Countmill, Dir: site.Dir, Args: []string{"up", "--listen", r.addr, "--data", r.data},
		Ready: system.Answers("http://" + r.addr + "/readyz"), Within: 5 * time.Minute,
	}
	if r.process, err = server.Start(ctx, spec); err != nil {
		return err
	}
	defer func() { r.process.Stop() }()
	if r.client, err = client.New("http://"+r.addr, client.WithTimeout(10*time.Minute)); err != nil {
		return err
	}
	defer r.client.CloseIdleConnections()
	if r.keep != "" {
		if _, err := r.client.AddRule(ctx, client.KindSeries, "*", r.keep); err != nil {
			return err
		}
	}
	if err := r.load(ctx); err != nil {
		return err
	}
	if err := r.cost(ctx); err != nil {
		return err
	}
	// The check covers the data on disk, not the memory of a process.
	r.process.Stop()
	if r.process, err = server.Start(ctx, spec); err != nil {
		return err
	}
	err = load.Check(ctx, load.Names(r.names), r.bodies.Want(), func(ctx context.Context, names []string) ([]int64, error) {
		return system.Totals(ctx, r.addr, names)
	})
	if err == nil {
		fmt.Fprintf(r.out, "exact: all %s totals are as sent\n", report.Short(float64(r.names)))
	}
	return err
}

// load sends, probes and prints a row now and then.
func (r *run) load(ctx context.Context) error {
	fmt.Fprintf(r.out, "\nZipf over %s counters, series %q, requests of %d on %d connections\n\n"+
		"| s | increments/s | request of %d, p50 / p99 ms | request of one, p50 / p99 ms | fresh read, p50 / p99 ms | RSS MiB | disk MiB |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
		report.Short(float64(r.names)), r.keep, r.body, r.conns, r.body)
	group, ctx := errgroup.WithContext(ctx)
	rows, end := context.WithCancel(ctx)
	printed := make(chan struct{})
	begin := time.Now()
	go func() {
		defer close(printed)
		r.rows(rows, begin)
	}()
	for range r.conns {
		group.Go(func() error { return r.connection(ctx, begin) })
	}
	group.Go(func() error { return r.probes(ctx, begin) })
	err := group.Wait()
	end()
	<-printed
	return err
}

// connection sends bodies when they are due. A late one counts from then.
func (r *run) connection(ctx context.Context, begin time.Time) error {
	body, makeBody := []byte(nil), r.bodies.Maker()
	for {
		n := r.next.Add(1) - 1
		due := time.Now()
		if r.rate > 0 {
			due = begin.Add(time.Duration(float64(n) * float64(r.body) / float64(r.rate) * float64(time.Second)))
		}
		if due.Sub(begin) >= r.lasts {
			return nil
		}
		body = makeBody(body[:0], n, int64(r.body))
		if r.rate > 0 {
			if err := system.Wait(ctx, time.Until(due)); err != nil {
				return err
			}
		} else {
			due = time.Now()
		}
		_, err := r.client.Do(ctx, client.Request{Method: "POST", Path: "/v1/increments", Body: body, ContentType: "application/x-ndjson"})
		if err != nil {
			return err
		}
		r.bodied.add(time.Since(due))
		r.sent.Add(int64(r.body))
	}
}

// probes sends single increments when they are due, and reads their counters from the store. It does not wait for one before the next.
func (r *run) probes(ctx context.Context, begin time.Time) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(1000)
	draw := r.bodies.Single()
	for due := begin; due.Sub(begin) < r.lasts; due = due.Add(r.probe) {
		if err := system.Wait(ctx, time.Until(due)); err != nil {
			break // the group has the better error
		}
		name := draw()
		group.Go(func() error { return r.one(ctx, name, due) })
	}
	return group.Wait()
}

func (r *run) one(ctx context.Context, name string, due time.Time) error {
	if err := r.client.Increment(ctx, countmill.Increment{Counter: name, Delta: 1}); err != nil {
		return err
	}
	r.posted.add(time.Since(due))
	r.sent.Add(1)
	asked := time.Now()
	if _, err := r.client.Total(ctx, name, client.WithMaxStaleness(0)); err != nil {
		return err
	}
	r.read.add(time.Since(asked))
	return nil
}

// rows prints a row for each r.row, and one for the whole time.
func (r *run) rows(ctx context.Context, begin time.Time) {
	tick := time.NewTicker(r.row)
	defer tick.Stop()
	last, sent := begin, int64(0)
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			now, n := time.Now(), r.sent.Load()
			r.print(fmt.Sprintf("%.0f", now.Sub(begin).Seconds()), float64(n-sent)/now.Sub(last).Seconds(), (*times).newest)
			last, sent = now, n
		}
	}
	r.print("all", float64(r.sent.Load())/time.Since(begin).Seconds(), (*times).whole)
}

func (r *run) print(when string, rate float64, of func(*times) string) {
	size, _ := server.DirSize(r.data, func(string) bool { return true })
	fmt.Fprintf(r.out, "| %s | %s | %s | %s | %s | %d | %d |\n", when, report.Short(rate), of(&r.bodied), of(&r.posted), of(&r.read), r.process.Memory("VmRSS")>>20, size>>20)
}

// cost prints the bytes written to the disk.
func (r *run) cost(ctx context.Context) error {
	metrics, err := r.client.Metrics(ctx)
	if err != nil {
		return err
	}
	written := func(to string) float64 {
		var n float64
		for line := range strings.Lines(string(metrics)) {
			if rest, ok := strings.CutPrefix(line, `countmill_store_written_bytes_total{to="`+to+`"} `); ok {
				_, _ = fmt.Sscan(rest, &n)
			}
		}
		return n
	}
	tables, err := server.Tables(r.data)
	if err != nil {
		return err
	}
	logs, all := written("logs"), written("logs")+written("tables")
	if logs == 0 {
		return errors.New("the server does not say what it has written")
	}
	sent := float64(r.sent.Load())
	fmt.Fprintf(r.out, "\n%s increments: %.1f bytes written to the disk for each, %.1f of them to logs (write amplification %.1f); %.2f bytes of tables left for each\n",
		report.Short(sent), all/sent, logs/sent, all/logs, float64(tables)/sent)
	fmt.Fprintf(r.out, "most memory %d MiB, processor %.1f s\n", r.process.Memory("VmHWM")>>20, r.process.CPU().Seconds())
	return nil
}

// times are durations of calls.
type times struct {
	mu   sync.Mutex
	all  []time.Duration
	seen int // of them in earlier rows
}

func (t *times) add(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all = append(t.all, d)
}

// newest returns the p50 and p99, in ms, of the durations since its last call.
func (t *times) newest() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	part := slices.Clone(t.all[t.seen:])
	t.seen = len(t.all)
	return quantiles(part)
}

// whole returns the p50 and p99 of all, in ms.
func (t *times) whole() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.Clone(t.all)
	return quantiles(all)
}

func quantiles(all []time.Duration) string {
	if len(all) == 0 {
		return "–"
	}
	slices.Sort(all)
	at := func(q float64) float64 { return all[int(q*float64(len(all)-1))].Seconds() * 1000 }
	return fmt.Sprintf("%.1f / %.1f", at(0.5), at(0.99))
}
