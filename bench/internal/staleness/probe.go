package staleness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countmill/countmill/bench/internal/system"
)

// A probe adds this much. The load adds less than that to a counter, so a total shows how many probes
// it contains.
const probeDelta = 1 << 32

// A pipeline is the measured system.
type pipeline struct {
	names []string
	// add hands over one increment of the load, and does not wait.
	add func(name string) error
	// publish returns when an increment is durable.
	publish func(ctx context.Context, name string, delta int64) error
	// totals reads the store.
	totals func(ctx context.Context, names []string) ([]int64, error)
}

// A schedule says how a pipeline is loaded and probed.
type schedule struct {
	rate  int // increments a second
	draw  func() uint32
	warm  time.Duration // before the first probe
	lasts time.Duration
	every time.Duration // between two probes
	pause time.Duration // between two reads
	wait  time.Duration // for the last probes
}

// A prober measures from the call of Publish to the end of the read that shows it. Probes begin on
// time, however long earlier ones take.
type prober struct {
	pipeline
	schedule
	random *rand.Rand

	mu    sync.Mutex
	open  map[string]time.Time // probes that no total has shown, and their beginning
	count map[string]int64     // probes so far
	took  []time.Duration
}

// measure loads and probes.
func measure(ctx context.Context, p pipeline, s schedule) ([]time.Duration, error) {
	m := &prober{
		pipeline: p, schedule: s, random: rand.New(rand.NewPCG(11, 12)),
		open: make(map[string]time.Time), count: make(map[string]int64),
	}
	group, ctx := errgroup.WithContext(ctx)
	loaded, loading := context.WithCancel(ctx)
	defer loading()
	probed := make(chan struct{})
	group.Go(func() error { return m.load(loaded) })
	group.Go(func() error {
		defer loading() // the load continues until the last probe is seen
		return m.watch(ctx, probed)
	})
	group.Go(func() error {
		defer close(probed)
		return m.probe(ctx)
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if len(m.took) == 0 {
		return nil, errors.New("no probe was seen")
	}
	return m.took, nil
}

// behind is how far the load may fall behind its rate before it counts as another load.
const behind = 2 * time.Second

// load adds at an even rate.
func (m *prober) load(ctx context.Context) error {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	begin := time.Now()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		due := int(float64(m.rate) * time.Since(begin).Seconds())
		if late := time.Duration(float64(due-n) / float64(m.rate) * float64(time.Second)); late > behind {
			return fmt.Errorf("this machine cannot make %d increments a second: %s behind", m.rate, late)
		}
		for ; n < due; n++ {
			if err := m.add(m.names[m.draw()]); err != nil {
				return fmt.Errorf("the load of %d/s after %s: %w", m.rate, time.Since(begin), err)
			}
		}
	}
}

// probe begins probes.
func (m *prober) probe(ctx context.Context) error {
	if err := system.Wait(ctx, m.warm); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	begin := time.Now()
	for at := time.Duration(0); at < m.lasts; at += m.every {
		if err := system.Wait(ctx, time.Until(begin.Add(at))); err != nil {
			break // the group has the better error
		}
		name, err := m.begin()
		if err != nil {
			return errors.Join(err, group.Wait())
		}
		group.Go(func() error { return m.publish(ctx, name, probeDelta) })
	}
	return group.Wait()
}

// begin records a probe of a counter without an open one.
func (m *prober) begin() (string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.open) == len(m.names) {
		return "", fmt.Errorf("%d probes wait to be seen, one on every counter", len(m.open))
	}
	for {
		name := m.names[m.random.IntN(len(m.names))]
		if _, ok := m.open[name]; !ok {
			m.open[name] = time.Now()
			m.count[name]++
			return name, nil
		}
	}
}

// watch reads the totals of open probes until there are no more.
func (m *prober) watch(ctx context.Context, probed <-chan struct{}) error {
	var last time.Time // when the last probe had begun
	for {
		if err := system.Wait(ctx, m.pause); err != nil {
			return err
		}
		names := m.unseen()
		select {
		case <-probed:
			if last.IsZero() {
				last = time.Now()
			}
			if len(names) == 0 {
				return nil
			}
			if time.Since(last) > m.wait {
				return fmt.Errorf("%d probes are in no total %s after the last one began", len(names), m.wait)
			}
		default:
		}
		if len(names) == 0 {
			continue
		}
		totals, err := m.totals(ctx, names)
		if err != nil {
			return err
		}
		m.seen(names, totals)
	}
}

// unseen returns counters with open probes, the oldest first, as many as a call may have.
func (m *prober) unseen() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := make([]string, 0, len(m.open))
	for name := range m.open {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return m.open[a].Compare(m.open[b]) })
	return names[:min(len(names), 1000)]
}

func (m *prober) seen(names []string, totals []int64) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, name := range names {
		if totals[i]/probeDelta >= m.count[name] {
			m.took = append(m.took, now.Sub(m.open[name]))
			delete(m.open, name)
		}
	}
}
