package plancheck

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/bench/internal/system"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/plan"
	"github.com/countmill/countmill/publisher"
)

// A deployment is the roles on emulators.
type deployment struct {
	*config
	google *system.Google
	reader string
	names  int
}

// counts are counts of all roles together: since their beginning, or per second.
type counts struct {
	increments, messages             float64 // of publishers
	parts, commits, written, retries float64 // of aggregators
	took                             float64 // total time of commits in seconds
	read, totals                     float64 // entities, by all roles; served totals
}

// madeAtOnce is the number of new counters whose first increments are sent at once.
const madeAtOnce = 10_000

// make counts each counter once, because existing ones cost no record.
func (d *deployment) make(ctx context.Context) error {
	pub := d.google.Publishers[0]
	for i, name := range load.Names(d.names) {
		if err := pub.Add(name, 1); err != nil {
			return err
		}
		if n := i + 1; n%madeAtOnce == 0 || n == d.names {
			if _, err := pub.Flush(ctx); err != nil {
				return err
			}
			if err := d.google.Folded(ctx, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// run loads and reads, and counts between warm and the end. It returns counts per second, and the time
// of a commit.
func (d *deployment) run(ctx context.Context, w work) (counts, time.Duration, error) {
	group, ctx := errgroup.WithContext(ctx)
	loaded, stop := context.WithCancel(ctx)
	defer stop()
	names := w.names()
	for i, pub := range d.google.Publishers {
		draw := w.draw(rand.New(rand.NewPCG(21, uint64(i))))
		group.Go(func() error {
			// Publishers begin at different moments, not in step.
			_ = wait(loaded, rand.N(plan.Defaults().Linger))
			return add(loaded, pub, w.rate/float64(d.publishers), func() string { return names[draw()] })
		})
	}
	for i := range askers {
		group.Go(func() error { return d.ask(loaded, i, names[:min(d.asked, len(names))]) })
	}
	var per counts
	var commit, late time.Duration
	group.Go(func() error {
		defer stop()
		if err := wait(ctx, d.warm); err != nil {
			return err
		}
		watched, watch := context.WithCancel(ctx)
		defer watch()
		lateness := make(chan time.Duration, 1)
		go func() { lateness <- timersAreLate(watched) }()
		before, began, err := d.counts(ctx)
		if err != nil {
			return err
		}
		if err := wait(ctx, d.lasts); err != nil {
			return err
		}
		after, ended, err := d.counts(ctx)
		if err != nil {
			return err
		}
		watch()
		late = <-lateness
		per = after.since(before, ended.Sub(began).Seconds())
		commit = time.Duration(per.took / per.commits * float64(time.Second))
		return nil
	})
	if err := group.Wait(); err != nil {
		return counts{}, 0, err
	}
	if late > d.late {
		return per, commit, fmt.Errorf("no result: this machine is too busy, timers are %s late on average (limit: %s)", late.Round(time.Millisecond), d.late)
	}
	if off := per.increments/w.rate - 1; math.Abs(off) > d.tolerance/4 { // another load needs another plan
		return per, commit, fmt.Errorf("this machine made %.0f increments a second instead of %.0f", per.increments, w.rate)
	}
	return per, commit, nil
}

// timersAreLate returns the average lateness of timers until ctx ends. If lingers and windows last
// longer than they should, there are fewer of them.
func timersAreLate(ctx context.Context) time.Duration {
	const nap = 10 * time.Millisecond
	began, naps := time.Now(), 0
	for wait(ctx, nap) == nil {
		naps++
	}
	return time.Since(began)/time.Duration(max(naps, 1)) - nap
}

// names returns the load's counters, the most incremented first; their names are in random order.
func (w work) names() []string {
	names := load.Names(w.counters)
	if w.zipf != 0 {
		rand.New(rand.NewPCG(23, 24)).Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	}
	return names
}

// draw returns one publisher's order of counters, by their rank.
func (w work) draw(random *rand.Rand) func() int {
	if w.zipf == 0 {
		return func() int { return random.IntN(w.counters) }
	}
	rank := rand.NewZipf(random, w.zipf, 1, uint64(w.counters-1))
	return func() int { return int(rank.Uint64()) }
}

// add adds increments that arrive independently of each other, like those of many users.
func add(ctx context.Context, pub *publisher.Publisher, rate float64, next func() string) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	random, begin := rand.New(rand.NewPCG(rand.Uint64(), 1)), time.Now()
	due := random.ExpFloat64() / rate
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		for now := time.Since(begin).Seconds(); due <= now; due += random.ExpFloat64() / rate {
			if err := pub.Add(next(), 1); err != nil {
				return err
			}
		}
	}
}

// askers request the same totals in turn.
const askers = 4

// ask reads all of the names again and again, as its part of all totals.
func (d *deployment) ask(ctx context.Context, i int, names []string) error {
	cl, err := client.New("http://"+d.reader, client.WithTries(1))
	if err != nil {
		return err
	}
	every := time.Duration(float64(askers*len(names)) / d.totals * float64(time.Second))
	begin := time.Now().Add(every * time.Duration(i) / askers)
	for n := 0; ; n++ {
		if wait(ctx, time.Until(begin.Add(every*time.Duration(n)))) != nil {
			return nil
		}
		_, err := cl.Totals(ctx, names)
		// A store that is too slow: the plan does not contain unserved totals either.
		if err != nil && !errors.Is(err, countmill.ErrUnavailable) && ctx.Err() == nil {
			return err
		}
	}
}

// counts reads the metrics of all roles.
func (d *deployment) counts(ctx context.Context) (counts, time.Time, error) {
	var c counts
	for _, pub := range d.google.Publishers {
		s := pub.Stats()
		c.increments, c.messages = c.increments+float64(s.Increments), c.messages+float64(s.Messages)
	}
	at := time.Now()
	agg, err := d.google.Metrics(ctx)
	if err != nil {
		return c, at, err
	}
	reader, err := system.Metrics(ctx, d.reader)
	if err != nil {
		return c, at, err
	}
	c.parts, c.commits = agg["countmill_parts_received_total"], agg["countmill_commits_total"]
	c.written, c.retries = agg["countmill_entities_written_total"], agg["countmill_commit_retries_total"]
	c.took = agg["countmill_fold_duration_seconds_sum"]
	c.read = agg[`countmill_entities_read_total{role="aggregator"}`] + reader[`countmill_entities_read_total{role="reader"}`]
	c.totals = reader[`countmill_totals_served_total{source="cache"}`] + reader[`countmill_totals_served_total{source="store"}`]
	return c, at, nil
}

// since returns the increase per second.
func (c counts) since(b counts, seconds float64) counts {
	return counts{
		increments: (c.increments - b.increments) / seconds, messages: (c.messages - b.messages) / seconds,
		parts: (c.parts - b.parts) / seconds, commits: (c.commits - b.commits) / seconds,
		written: (c.written - b.written) / seconds, retries: c.retries - b.retries, took: (c.took - b.took) / seconds,
		read: (c.read - b.read) / seconds, totals: (c.totals - b.totals) / seconds,
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
