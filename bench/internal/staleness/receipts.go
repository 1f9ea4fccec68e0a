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
// receipt is answered; beside a load on one counter, and beside one on many. Then it measures on the same
// processes how long a total takes from there, for a caller who looks at it again and again.
func (m *measurement) receipts(ctx context.Context) error {
	for _, counters := range []int{1, m.receiptCounters} {
		r := result{What: "receipts", Aggregators: 1, Counters: counters, Rate: m.receiptRate}
		took, looked, err := m.afterReceipts(ctx, &r)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if r = m.keep(r, took, err); err != nil {
			continue
		}
		fmt.Fprintf(m.out, "| **%d counters: %.0f entities written for a million increments, %.2f read for a receipt** |\n", counters, r.Written, r.Read)
		receipts := r.P50
		r.What, r.Written, r.Read = "totals without", 0, 0
		r = m.keep(r, looked, nil)
		fmt.Fprintf(m.out, "| **the answer to a receipt takes %.2f times as long** |\n", receipts/r.P50)
	}
	return nil
}

func (m *measurement) afterReceipts(ctx context.Context, r *result) (took, looked []time.Duration, err error) {
	d, err := m.deploy(ctx, *r)
	if err != nil {
		return nil, nil, err
	}
	defer d.Close()
	p := &receiptProber{deployment: d, prober: prober{
		pipeline: pipeline{names: d.names, add: d.add},
		schedule: schedule{rate: r.Rate, draw: d.draw, warm: m.warm, lasts: m.lasts, every: 50 * time.Millisecond},
	}}
	began := time.Now()
	if took, err = p.run(ctx, p.receipt); err != nil {
		return nil, nil, err
	}
	increments := float64(r.Rate) * time.Since(began).Seconds()
	folded, err := d.Metrics(ctx)
	if err != nil {
		return nil, nil, err
	}
	read, err := system.Metrics(ctx, d.reader)
	if err != nil {
		return nil, nil, err
	}
	r.Written = folded["countmill_entities_written_total"] * 1e6 / increments
	r.Read = read[`countmill_entities_read_total{role="reader"}`] / float64(len(took))
	looked, err = p.run(ctx, p.look)
	return took, looked, err
}

// A receiptProber probes from the return of Publish on. Probes begin on time, however long earlier ones
// take.
type receiptProber struct {
	*deployment
	prober

	mu       sync.Mutex
	answered []time.Duration
}

// run returns how long the probes took that read by read.
func (p *receiptProber) run(ctx context.Context, read func(ctx context.Context, receipt, name string) error) ([]time.Duration, error) {
	p.answered = nil
	group, ctx := errgroup.WithContext(ctx)
	loaded, loading := context.WithCancel(ctx)
	defer loading()
	group.Go(func() error { return p.load(loaded) })
	group.Go(func() error {
		defer loading() // the load continues until the last answer
		if err := system.Wait(ctx, p.warm); err != nil {
			return err
		}
		probes, ctx := errgroup.WithContext(ctx)
		begin := time.Now()
		for n := 0; time.Duration(n)*p.every < p.lasts; n++ {
			if system.Wait(ctx, time.Until(begin.Add(time.Duration(n)*p.every))) != nil {
				break // the group has the better error
			}
			probes.Go(func() error { return p.one(ctx, read, fmt.Sprintf("%s:%d", begin.Format(time.RFC3339), n)) })
		}
		return probes.Wait()
	})
	return p.answered, group.Wait()
}

// one probes with a counter of its own, so its total is known.
func (p *receiptProber) one(ctx context.Context, read func(ctx context.Context, receipt, name string) error, name string) error {
	sent, err := p.pub.Publish(ctx, countmill.Increment{Counter: name, Delta: 1})
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := read(ctx, sent.Receipt.String(), name); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answered = append(p.answered, time.Since(begin))
	return nil
}

func (p *receiptProber) receipt(ctx context.Context, receipt, name string) error {
	got, err := system.TotalsAfter(ctx, p.reader, receipt, []string{name})
	if err == nil && got[0] != 1 {
		err = fmt.Errorf("the total of %s after its receipt is %d, want 1", name, got[0])
	}
	return err
}

// lookEvery is the pause of a caller without a receipt: that of a reader between its looks for a receipt.
// It gives up after lookFor.
const lookEvery, lookFor = 20 * time.Millisecond, 30 * time.Second

// look reads the total until it has the increment.
func (p *receiptProber) look(ctx context.Context, _, name string) error {
	for deadline := time.Now().Add(lookFor); ; {
		got, err := system.Totals(ctx, p.reader, []string{name})
		if err != nil || got[0] == 1 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the total of %s has no increment after %s", name, lookFor)
		}
		if err := system.Wait(ctx, lookEvery); err != nil {
			return err
		}
	}
}
