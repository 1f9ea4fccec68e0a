package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/countmill/countmill/bench/internal/command"
	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/bench/internal/report"
	"github.com/countmill/countmill/bench/internal/system"
)

// A job is a system on a load.
type job struct {
	system system.System
	load   string
}

// beforeSuffix ends the name of a system that runs an earlier countmill.
const beforeSuffix = "/before"

// withBefore adds http/ndjson with an earlier countmill, if there is one, behind that of this tree.
func withBefore(all []system.System, path string) []system.System {
	i := slices.IndexFunc(all, func(s system.System) bool { return s.Name == "http/ndjson" })
	if path == "" || i < 0 {
		return all
	}
	earlier := all[i]
	earlier.Name, earlier.Family, earlier.Version = earlier.Name+beforeSuffix, earlier.Name+beforeSuffix, func() (string, error) { return path, nil }
	earlier.Open = func(ctx context.Context, at system.Place) (system.Instance, error) {
		at.Countmill = path
		return all[i].Open(ctx, at)
	}
	all[i].Against = earlier.Name
	return slices.Insert(slices.Clone(all), i+1, earlier)
}

// choose returns the jobs of a round, load by load.
func choose(cfg config, systems []system.System) []job {
	var plan []job
	for _, l := range []string{"hot", "zipf", "uniform", "distinct"} {
		if len(cfg.loads) > 0 && !slices.Contains(cfg.loads, l) {
			continue
		}
		for _, s := range systems {
			chosen := len(cfg.only) == 0 || slices.ContainsFunc(cfg.only, func(prefix string) bool { return strings.HasPrefix(s.Name, prefix) })
			if chosen && slices.Contains(s.Loads, l) {
				plan = append(plan, job{s, l})
			}
		}
	}
	return plan
}

// A result is one measurement.
type result struct {
	System     string
	Load       string
	Round      int
	Increments int64
	Seconds    float64
	Rate       float64
	Notes      map[string]float64
	Missing    string
	Error      string
}

func (r result) ok() bool { return r.Missing == "" && r.Error == "" }

// A measurer runs jobs, each in a directory of its own.
type measurer struct {
	cfg   config
	log   io.Writer
	site  *command.Site
	loads map[string]*load.Load
}

func newMeasurer(site *command.Site, cfg config, log io.Writer) *measurer {
	m := &measurer{cfg: cfg, log: log, site: site, loads: make(map[string]*load.Load)}
	for _, l := range load.All(cfg.names, cfg.distinct) {
		m.loads[l.Name] = l
	}
	return m
}

// all measures round after round, so that a disturbance of the machine affects every system alike.
func (m *measurer) all(ctx context.Context, plan []job, missing map[string]string) []result {
	var results []result
	for round := 1; round <= m.cfg.rounds; round++ {
		for i, j := range plan {
			if ctx.Err() != nil {
				return results
			}
			r := result{System: j.system.Name, Load: j.load, Round: round, Missing: missing[j.system.Name]}
			if r.Missing == "" {
				m.one(ctx, j, &r)
			}
			results = append(results, r)
			fmt.Fprintf(m.log, "round %d of %d, %d of %d: %s\n", round, m.cfg.rounds, i+1, len(plan), r.line())
		}
	}
	return results
}

// beside is how long opening and checking may take in addition to the measurement.
const beside = 10 * time.Minute

func (m *measurer) one(ctx context.Context, j job, r *result) {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.goal.Most+beside)
	defer cancel()
	run := load.NewRun(m.loads[j.load], m.cfg.goal)
	if err := m.measure(ctx, j, run); err != nil {
		r.Error = err.Error()
		return
	}
	n, took := run.Done()
	r.Increments, r.Seconds, r.Notes = n, took.Seconds(), run.Notes()
	r.Rate = float64(n) / took.Seconds()
}

func (m *measurer) measure(ctx context.Context, j job, run *load.Run) (err error) {
	dir, err := m.site.Sub("run")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	i, err := j.system.Open(ctx, system.Place{Dir: dir, Load: run.Load, Countmill: m.site.Countmill, Self: m.site.Self})
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer i.Close()
	if err := i.Count(ctx, run); err != nil {
		return fmt.Errorf("count: %w", err)
	}
	if n, took := run.Done(); n == 0 || took <= 0 {
		return errors.New("count: nothing was measured")
	}
	if err := i.Check(ctx, run); err != nil {
		return fmt.Errorf("check: %w", err)
	}
	return nil
}

func (r result) line() string {
	name := r.Load + " " + r.System
	switch {
	case r.Missing != "":
		return name + ": missing: " + r.Missing
	case r.Error != "":
		return name + ": ERROR: " + r.Error
	default:
		return fmt.Sprintf("%s: %d increments in %.3f s, %s/s", name, r.Increments, r.Seconds, report.Short(r.Rate))
	}
}

// atLeast is the part of its earlier speed that a system must keep. A guess: rounds on an idle machine differ by a few percent.
const atLeast = 0.93

// slower returns an error if a system has become slower than it was in an earlier countmill.
func slower(plan []job, results []result) error {
	var errs []error
	for _, j := range plan {
		if !strings.HasSuffix(j.system.Against, beforeSuffix) {
			continue
		}
		all := ratios(ratesOf(results, j), ratesOf(results, fastest(plan, results, j.system.Against, j.load)))
		if len(all) > 0 && report.Median(all) < atLeast {
			errs = append(errs, fmt.Errorf("%s, %s: %.3g times as fast as the earlier countmill, want %g", j.load, j.system.Name, report.Median(all), atLeast))
		}
	}
	return errors.Join(errs...)
}

// failures returns an error if a measurement failed.
func failures(results []result) error {
	n := 0
	for _, r := range results {
		if r.Error != "" {
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("%d of %d measurements have errors", n, len(results))
	}
	return nil
}
