package pipeline_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend/inproc"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/store/storetest/fakestore"
)

// A line is a bus that may be unavailable to publishers.
type line struct {
	*inproc.Bus
	away atomic.Bool
}

func (l *line) Publish(topic string, messages ...*message.Message) error {
	if l.away.Load() {
		return fmt.Errorf("%w: the bus is away", countmill.ErrUnavailable)
	}
	return l.Bus.Publish(topic, messages...)
}

// A day is a publisher, a bus, a store and a reader, in virtual time, and what was counted when.
type day struct {
	bus   *line
	store *fakestore.Store
	pub   *publisher.Publisher

	rand    *rand.Rand
	calls   sync.WaitGroup
	minutes map[string]map[time.Time]int64
	totals  map[string]int64
}

func newDay(t *testing.T, opts fakestore.Options) *day {
	t.Helper()
	time.Sleep(time.Until(clock.Earliest.Add(time.Hour)).Round(time.Minute))
	opts.Errorf = t.Errorf
	bus, err := inproc.New(inproc.Config{})
	if err != nil {
		t.Fatal(err)
	}
	d := &day{bus: &line{Bus: bus}, store: fakestore.New(opts), rand: rand.New(rand.NewPCG(22, 1)), minutes: map[string]map[time.Time]int64{}, totals: map[string]int64{}}
	rule := store.RuleChange{Pattern: "*", Keep: store.Retention{Minutes: 6 * time.Hour, Quarters: 30 * 24 * time.Hour}}
	if _, err := d.store.ChangeRules(t.Context(), rule); err != nil {
		t.Fatal(err)
	}
	if d.pub, err = publisher.New(d.bus, publisher.Config{Topic: "t", Linger: 40 * time.Second}); err != nil {
		t.Fatal(err)
	}
	return d
}

// aggregate runs an aggregator until stop is called.
func (d *day) aggregate(t *testing.T) (stop func()) {
	t.Helper()
	agg, err := aggregator.New(d.bus, d.store, aggregator.Config{Topic: "t"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- agg.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// pass counts for some minutes, some of them at their very beginnings and ends, and moves series to the
// archive as a process does.
func (d *day) pass(t *testing.T, minutes int) {
	t.Helper()
	for range minutes {
		begin := time.Now()
		for _, after := range []time.Duration{0, 7 * time.Second, 33 * time.Second, time.Minute - time.Nanosecond} {
			time.Sleep(time.Until(begin.Add(after)))
			synctest.Wait() // the publisher begins the minute
			d.count(t)
		}
		time.Sleep(time.Until(begin.Add(time.Minute)))
		if _, err := d.store.MoveSeries(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// count counts once by each way of counting. Those that wait for the bus go on meanwhile.
func (d *day) count(t *testing.T) {
	t.Helper()
	inc := func(counter string) countmill.Increment {
		delta := d.rand.Int64N(200) - 80
		if delta >= 0 {
			delta++
		}
		minute := time.Now().Truncate(time.Minute)
		if d.minutes[counter] == nil {
			d.minutes[counter] = map[time.Time]int64{}
		}
		d.minutes[counter][minute] += delta
		d.totals[counter] += delta
		return countmill.Increment{Counter: counter, Delta: delta}
	}
	added := inc("added")
	if err := d.pub.Add(added.Counter, added.Delta); err != nil {
		t.Error(err)
	}
	published, identified, keyed := inc("published"), inc("identified"), inc("keyed")
	id := fmt.Sprint(time.Now().UnixNano())
	identified.ID = id
	for _, call := range []func() error{
		func() error { _, err := d.pub.Publish(t.Context(), published); return err },
		func() error { _, err := d.pub.Publish(t.Context(), identified); return err },
		func() error { _, err := d.pub.PublishKeyed(t.Context(), "", id, keyed); return err },
	} {
		d.calls.Go(func() {
			if err := call(); err != nil {
				t.Error(err)
			}
		})
	}
	synctest.Wait() // the call has the time at which it began
}

// wantCurve compares each minute since began, and the totals, with what was counted.
func (d *day) wantCurve(t *testing.T, began time.Time) {
	t.Helper()
	r, err := reader.New(d.store, nil, reader.Config{})
	if err != nil {
		t.Fatal(err)
	}
	step, err := reader.ParseStep("step", "1m")
	if err != nil {
		t.Fatal(err)
	}
	end := time.Now().Truncate(time.Minute)
	for counter, minutes := range d.minutes {
		found, err := r.Series(t.Context(), reader.SeriesQuery{Counters: []string{counter}, Step: step, From: began.UTC(), To: end.UTC()})
		if err != nil {
			t.Fatal(err)
		}
		got, want := map[string]int64{}, map[string]int64{}
		for _, row := range found.Rows {
			got[row.Time.Format("15:04")] = row.Value
			if row.Partial {
				t.Errorf("%s: %s is partial", counter, row.Time)
			}
		}
		for at := began; at.Before(end); at = at.Add(time.Minute) {
			want[at.UTC().Format("15:04")] = minutes[at]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s by the minute (-counted +curve):\n%s", counter, diff)
		}
		if found.Unbucketed != (int128.Int{}) {
			t.Errorf("%s: %d without a curve", counter, found.Unbucketed)
		}
	}
	if diff := cmp.Diff(d.totals, d.store.Totals()); diff != "" {
		t.Errorf("totals (-counted +got):\n%s", diff)
	}
}

// The bus is away from publishers for 10 minutes, and the aggregators are away for 3 hours. Each minute of the
// curve has what was counted in it.
func TestCurveThroughOutages(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]fakestore.Options{
		"ring":           {},
		"ring of 1 hour": {RingWindow: time.Hour},
		"archive":        {GrowsInFold: true, CertainOutcome: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newDay(t, opts)
				stop := d.aggregate(t)
				time.Sleep(store.RulesSettle) // the rule holds
				began := time.Now()
				d.pass(t, 10)
				d.bus.away.Store(true)
				d.pass(t, 10)
				d.bus.away.Store(false)
				d.pass(t, 10)
				stop()
				d.pass(t, 180)
				stop = d.aggregate(t)
				d.pass(t, 10)
				if err := d.pub.Close(t.Context()); err != nil {
					t.Error(err)
				}
				d.calls.Wait()
				time.Sleep(5 * time.Minute)
				d.wantCurve(t, began)
				stop()
				if err := d.bus.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
