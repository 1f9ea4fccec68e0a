package staleness

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/bench/internal/system"
)

// receipts measures from the return of Publish, which is the 202 over HTTP, until a read with the
// receipt is answered; beside a load on one counter, and beside one on many.
func (m *measurement) receipts(ctx context.Context) error {
	for _, counters := range []int{1, m.searchCounters} {
		r := result{What: "receipts", Aggregators: 1, Counters: counters, Rate: m.receiptRate, Seconds: m.lasts.Seconds()}
		took, err := m.afterReceipts(ctx, &r)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if r = m.keep(r, took, err); err == nil {
			fmt.Fprintf(m.out, "| **%d counters: %.0f entities written for a million increments, %.2f read for a receipt** |\n", counters, r.Written, r.Read)
		}
	}
	return nil
}

func (m *measurement) afterReceipts(ctx context.Context, r *result) ([]time.Duration, error) {
	d, err := m.deploy(ctx, *r)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	p := &receiptProber{deployment: d, prober: prober{
		pipeline: pipeline{names: d.names, add: d.add},
		schedule: schedule{rate: r.Rate, draw: d.draw, warm: m.warm, lasts: m.lasts, every: 50 * time.Millisecond},
	}}
	began := time.Now()
	if err := p.run(ctx); err != nil {
		return nil, err
	}
	increments := float64(r.Rate) * time.Since(began).Seconds()
	folded, err := d.Metrics(ctx)
	if err != nil {
		return nil, err
	}
	read, err := system.Metrics(ctx, d.reader)
	if err != nil {
		return nil, err
	}
	r.Written = folded["countmill_entities_written_total"] * 1e6 / increments
	r.Read = read[`countmill_entities_read_total{role="reader"}`] / float64(len(p.answered))
	return p.answered, nil
}

// A receiptProber probes with receipts. Probes begin on time, however long earlier ones take.
type receiptProber struct {
	*deployment
	prober

	mu       sync.Mutex
	answered []time.Duration
}

func (p *receiptProber) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	loaded, loading := context.WithCancel(ctx)
	defer loading()
	group.Go(func() error { return p.load(loaded) })
	group.Go(func() error {
		defer loading() // the load continues until the last answer
		if err := wait(ctx, p.warm); err != nil {
			return err
		}
		probes, ctx := errgroup.WithContext(ctx)
		begin := time.Now()
		for n := 0; time.Duration(n)*p.every < p.lasts; n++ {
			if wait(ctx, time.Until(begin.Add(time.Duration(n)*p.every))) != nil {
				break // the group has the better error
			}
			probes.Go(func() error { return p.one(ctx, fmt.Sprintf("receipt:%d", n)) })
		}
		return probes.Wait()
	})
	return group.Wait()
}

// one probes with a counter of its own, so its total is known.
func (p *receiptProber) one(ctx context.Context, name string) error {
	sent, err := p.pub.Publish(ctx, countmill.Increment{Counter: name, Delta: 1})
	if err != nil {
		return err
	}
	begin := time.Now()
	got, err := system.TotalsAfter(ctx, p.reader, sent.Receipt.String(), []string{name})
	if err != nil {
		return err
	}
	if got[0] != 1 {
		return fmt.Errorf("the total of %s after its receipt is %d, want 1", name, got[0])
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answered = append(p.answered, time.Since(begin))
	return nil
}
