package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"
)

// A fleet is the countmill under test: a running one, or processes that this program starts. It kills one of these again and again.
type fleet struct {
	writer, reader *remote // increments go to writer, and totals are read from reader

	aggregators []*remote // if the roles are separate

	processes []*process // in the order of their start; none if countmill was running before
	dir       string     // of their logs and data
	temporary bool
	victim    *process
	memcached *process // restarted once, half way; nil if there is none

	due      atomic.Int64       // when the next kill or restart is due, in sent increments
	mu       sync.Mutex         // held while a process is killed and started
	at       []int64            // when to kill the victim, in sent increments
	half     int64              // when to restart memcached; 0 when that is done
	kills    int                // so far
	restarts int                // of memcached
	seen     map[string]float64 // metrics of killed processes, as last read
}

// newFleet chooses the moments of the kills. It divides the first nine tenths of the run into cfg.kill
// equal parts, and draws one moment in each.
func newFleet(cfg config, increments int64) (*fleet, error) {
	if cfg.kill == 0 {
		c, err := newRemote(cfg.server)
		return &fleet{writer: c, reader: c}, err
	}
	f := &fleet{dir: cfg.data, seen: make(map[string]float64)}
	stretch := increments * 9 / 10 / int64(cfg.kill)
	if stretch < 2*int64(cfg.batch) {
		return nil, fmt.Errorf("%d increments are too few to kill countmill %d times on the way", increments, cfg.kill)
	}
	for i := range int64(cfg.kill) {
		f.at = append(f.at, i*stretch+rand.Int64N(stretch))
	}
	var err error
	if f.dir == "" {
		f.temporary = true
		f.dir, err = os.MkdirTemp("", "identifiers-")
	} else {
		err = os.MkdirAll(f.dir, 0o755)
	}
	if err != nil {
		return nil, err
	}
	if cfg.bus == "" {
		f.next()
		return f, f.together(cfg)
	}
	f.half = increments / 2
	f.next()
	return f, f.apart(cfg)
}

// next computes when the next kill or restart is due.
func (f *fleet) next() {
	due := int64(math.MaxInt64)
	if len(f.at) > 0 {
		due = f.at[0]
	}
	if f.half > 0 {
		due = min(due, f.half)
	}
	f.due.Store(due)
}

// together starts one process that runs all roles.
func (f *fleet) together(cfg config) error {
	up, err := newCountmill(cfg, f.dir, "countmill", "up", "--data", filepath.Join(f.dir, "data"))
	if err != nil {
		return err
	}
	f.processes, f.victim = []*process{up}, up
	f.writer, f.reader = up.client, up.client
	return nil
}

// apart starts a process for each role, and several aggregators.
func (f *fleet) apart(cfg config) (err error) {
	add := func(p *process, problem error) *process {
		if err == nil {
			err = problem
		}
		if p != nil {
			f.processes = append(f.processes, p)
		}
		return p
	}
	if f.memcached = add(newMemcached(cfg, f.dir)); err != nil {
		return err
	}
	for i := range cfg.aggregators {
		name := fmt.Sprintf("aggregator-%d", i+1)
		f.victim = add(newCountmill(cfg, f.dir, name, "aggregator", "--bus", cfg.bus, "--store", cfg.store))
		if err != nil {
			return err
		}
		f.aggregators = append(f.aggregators, f.victim.client)
	}
	publisher := add(newCountmill(cfg, f.dir, "publisher", "publisher", "--bus", cfg.bus))
	reader := add(newCountmill(cfg, f.dir, "reader", "reader", "--store", cfg.store, "--cache", "memcached://"+f.memcached.addr))
	if err == nil {
		f.writer, f.reader = publisher.client, reader.client
	}
	return err
}

func (f *fleet) start(ctx context.Context) error {
	for _, p := range f.processes {
		if err := p.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// reached makes the kills and restarts that are due. Other workers continue to send until the next one
// is due, and may meet a killed process. The run does not end before all have happened, however long a
// start takes.
func (f *fleet) reached(ctx context.Context, sent int64) error {
	if sent < f.due.Load() {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.half > 0 && sent >= f.half {
		f.half = 0
		f.next()
		f.restarts++
		if err := f.memcached.restart(ctx); err != nil {
			return err
		}
	}
	for len(f.at) > 0 && sent >= f.at[0] {
		f.at = f.at[1:]
		f.next()
		if err := f.killVictim(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) killVictim(ctx context.Context) error {
	// Work that the victim does after this is missing from the metrics.
	if err := f.remember(ctx, f.victim.client); err != nil {
		return err
	}
	select { // so that the kill does not always follow an answer
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(rand.N(20 * time.Millisecond)):
	}
	f.kills++
	return f.victim.restart(ctx)
}

// remember adds a process's own metrics to those of killed processes.
func (f *fleet) remember(ctx context.Context, c *remote) error {
	metrics, err := c.metrics(ctx, metricNames())
	if err != nil {
		return fmt.Errorf("read the metrics of %s: %w", c.base, err)
	}
	for name, n := range metrics {
		f.seen[name] += n
	}
	return nil
}

// metrics returns the metrics of all processes, including the killed ones.
func (f *fleet) metrics(ctx context.Context) (map[string]float64, error) {
	if len(f.processes) == 0 {
		return f.writer.metrics(ctx, metricNames())
	}
	for _, p := range f.processes {
		if p.client == nil {
			continue
		}
		if err := f.remember(ctx, p.client); err != nil {
			return nil, err
		}
	}
	return f.seen, nil
}

// survived reports whether the requested number of kills has happened.
func (f *fleet) survived() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.at); n > 0 || f.half > 0 {
		return fmt.Errorf("%d kills did not happen: the run was too short", n)
	}
	return nil
}

// stop stops the processes, senders before receivers. It removes a temporary directory only if all went
// well.
func (f *fleet) stop(well bool) {
	for i := len(f.processes) - 1; i >= 0; i-- {
		f.processes[i].stop()
	}
	if f.temporary && well {
		_ = os.RemoveAll(f.dir)
	}
}
