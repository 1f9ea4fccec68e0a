package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/countmill/countmill/internal/indexer"
)

// indexing is the role indexer: the work of building, checking and deleting indexes.
type indexing struct {
	idle
	*indexer.Indexer
	alone   bool
	running *task
}

// indexings is one in a process with the role. onRules is of an aggregator of this process; nil without one.
func indexings(cfg Config, b *backends, onRules func(context.Context)) []*indexing {
	if !cfg.Roles.Has(Indexer) {
		return nil
	}
	s := &indexing{alone: cfg.Roles == Indexer, running: b.task()}
	c := cfg.Indexer
	c.WorkerID = indexWorker(cfg)
	c.OnRules = onRules
	c.Logger = cfg.Logger.With("role", "indexer")
	s.Indexer = indexer.New(b.store, c)
	return []*indexing{s}
}

// indexWorker is the name in leases. A store of one process has one worker, which takes its leases up
// again after a crash. Others wait until a lease is over.
func indexWorker(cfg Config) string {
	if alone, _ := cfg.oneProcess(); alone {
		return cfg.Roles.String()
	}
	host, _ := os.Hostname() // a person reads it; the rest is enough
	return host + "-" + rand.Text()
}

// poked returns a function that calls onRules and makes the workers look for work.
func poked(onRules func(context.Context), workers []*indexing) func(context.Context) {
	return func(ctx context.Context) {
		if onRules != nil {
			onRules(ctx)
		}
		for _, w := range workers {
			w.Poke()
		}
	}
}

// Ready is about a process that does nothing else. In others the roles report their own troubles.
func (s *indexing) Ready(context.Context) (string, error) {
	if !s.alone {
		return "", nil
	}
	return "", s.Indexer.Ready()
}

func (s *indexing) Collect() []prometheus.Collector {
	return samples(func() []sample { return indexerSamples(s.Indexer) })
}

// Run ends with ctx: the next holder of the lease repeats the step that was under way.
func (s *indexing) Run(ctx context.Context) error {
	return s.running.run(ctx, func(ctx context.Context) error {
		s.Indexer.Run(ctx)
		return nil
	})
}

func (s *indexing) Stop(ctx context.Context) error {
	s.running.stop()
	if !s.running.wait(ctx) {
		return fmt.Errorf("its step was not done in time; another process does it again")
	}
	return nil
}

func indexerSamples(x *indexer.Indexer) []sample {
	s := x.Stats()
	const name, help = "countmill_indexes", "Indexes by their state, as this process read them last."
	samples := []sample{
		counter("countmill_index_ranges_total", "Ranges of indexes read, or cleared of a deleted index.", s.Ranges),
		counter("countmill_index_shards_read_total", "Shards read for indexes.", s.Shards),
		counter("countmill_index_remainders_total", "Parts of groups set that were counted before the index.", s.Remainders),
		counter("countmill_index_corrected_groups_total", "Groups whose total a later reading has corrected. Anything but 0 is a fault: increments were folded without the index.", s.Corrected),
		counter("countmill_index_failures_total", "Steps of index work that failed; they are repeated.", s.Failures),
	}
	for _, of := range []struct {
		state string
		n     int64
	}{{"building", s.Building}, {"serving", s.Serving}, {"deleting", s.Deleting}} {
		samples = append(samples, sample{name, help, prometheus.GaugeValue, float64(of.n), []string{"state", of.state}})
	}
	return samples
}
