package gcppubsub_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend/gcppubsub"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/longtest"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

// A folder is a running aggregator.
type folder struct {
	*aggregator.Aggregator
	bus  *gcppubsub.Bus
	stop func() // in the order of SIGTERM: the aggregator first, then the bus
}

func fold(t *testing.T, bus *gcppubsub.Bus, store *protocoltest.Store) *folder {
	t.Helper()
	a, err := aggregator.New(bus, store, aggregator.Config{Topic: "increments"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	f := &folder{Aggregator: a, bus: bus}
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("aggregator: %v", err)
		}
		if err := bus.Close(); err != nil {
			t.Errorf("bus: %v", err)
		}
	})
	t.Cleanup(f.stop)
	return f
}

// A load is a publisher that adds to some counters until it is stopped.
type load struct {
	*publisher.Publisher
	added atomic.Int64
	end   func()
}

func startLoad(t *testing.T, bus *gcppubsub.Bus) *load {
	t.Helper()
	p, err := publisher.New(bus, publisher.Config{Topic: "increments", Linger: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	l := &load{Publisher: p}
	ctx, cancel := context.WithCancel(t.Context())
	var adding sync.WaitGroup
	adding.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for i := 0; ctx.Err() == nil; i++ {
			if err := p.Add(fmt.Sprintf("counter-%d", i%50), 1); err != nil {
				t.Error(err)
				return
			}
			l.added.Add(1)
			<-tick.C
		}
	})
	l.end = sync.OnceFunc(func() {
		cancel()
		adding.Wait()
		closing, cancel := context.WithTimeout(context.Background(), busy)
		defer cancel()
		if err := p.Close(closing); err != nil {
			t.Errorf("publisher: %v", err)
		}
	})
	t.Cleanup(l.end)
	return l
}

func sum(store *protocoltest.Store) (n int64) {
	for _, total := range store.Totals() {
		n += total
	}
	return n
}

// TestPaused: a hanging server loses nothing, and everything continues without a restart.
func TestPaused(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "starts an emulator of its own")
	server := emulator.OwnPubSub(t)
	id := emulator.Project()
	quick := func(c *gcppubsub.Config) {
		c.Project, c.PublishTimeout, c.ProbeEvery = id, time.Second, 100*time.Millisecond
	}
	store := protocoltest.New(protocoltest.Options{Errorf: t.Errorf})
	l := startLoad(t, open(t, server.Host, quick))
	bus := open(t, server.Host, quick)
	f := fold(t, bus, store)
	until(t, 30*time.Second, "increments counted", func() bool { return sum(store) > 100 })
	server.Pause()
	until(t, 20*time.Second, "not ready", func() bool { return bus.Ready() != nil })
	mentions(t, bus.Ready(), "does not answer")
	until(t, 20*time.Second, "sent again", func() bool { return l.Stats().Resends > 5 })
	server.Continue()
	until(t, 30*time.Second, "ready", func() bool { return bus.Ready() == nil })
	l.end()
	until(t, 60*time.Second, "every increment counted", func() bool { return sum(store) >= l.added.Load() })
	f.stop()
	if got, want := sum(store), l.added.Load(); got != want {
		t.Errorf("got a sum of %d, want %d", got, want)
	}
	t.Logf("%d increments, %d resends, %d parts came twice", l.added.Load(), l.Stats().Resends, f.Stats().Duplicates)
}

// TestRestartedEmpty: if a server has lost topic and subscription, both sides return errors until they
// are made, and then continue. Nothing is sent while there is a topic without a subscription: Pub/Sub
// would drop it.
func TestRestartedEmpty(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "starts an emulator of its own twice")
	server := emulator.OwnPubSub(t)
	id := emulator.Project()
	store := protocoltest.New(protocoltest.Options{Errorf: t.Errorf})
	bus := open(t, server.Host, project(id))
	f := fold(t, bus, store)
	p, err := publisher.New(open(t, server.Host, project(id)), publisher.Config{Topic: "increments"})
	if err != nil {
		t.Fatal(err)
	}
	add := func() {
		if err := p.Add("a", 1); err != nil {
			t.Error(err)
		}
	}
	add()
	until(t, 30*time.Second, "counted", func() bool { return store.Total("a") == 1 })
	server.Restart()
	until(t, 60*time.Second, "not ready", func() bool { return bus.Ready() != nil && f.Ready() != nil })
	until(t, 30*time.Second, "the reason", func() bool {
		return bus.Ready() != nil && contains(bus.Ready(), "gcloud pubsub subscriptions create aggregators")
	})
	add()
	until(t, 30*time.Second, "publisher not ready", func() bool { return p.Ready() != nil })
	mentions(t, p.Ready(), "gcloud pubsub topics create increments")
	_, err = gcppubsub.Open(t.Context(), gcppubsub.Config{Project: id, Topic: "increments", EmulatorHost: server.Host})
	mentions(t, err, "has no subscription") // and has made the topic
	until(t, 30*time.Second, "the missing subscription", func() bool { return contains(p.Ready(), "has no subscription") })
	tries := p.Stats().Resends
	until(t, time.Minute, "sent again", func() bool { return p.Stats().Resends > tries })
	open(t, server.Host, project(id)) // makes the subscription
	until(t, 3*time.Minute, "counted again", func() bool { return store.Total("a") == 2 })
	until(t, 30*time.Second, "ready", func() bool { return bus.Ready() == nil && f.Ready() == nil && p.Ready() == nil })
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
