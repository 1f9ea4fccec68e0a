package cost

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend/inproc"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

// The time that Pub/Sub takes to accept a message, and Datastore for a call. Both are guesses at
// Google's services from inside their network. Longer commits make windows larger.
const (
	publishTakes = 20 * time.Millisecond
	storeTakes   = 10 * time.Millisecond
)

// slowBus is a bus that keeps a message as soon as it is accepted, as Pub/Sub does.
type slowBus struct{ *inproc.Bus }

func (b slowBus) Publish(topic string, messages ...*message.Message) error {
	time.Sleep(publishTakes)
	return b.Bus.Publish(topic, messages...)
}

// A setup is a deployment.
type setup struct {
	publishers, aggregators int
	linger                  time.Duration     // of publishers; default theirs
	series                  bool              // all counters have a rule
	groups                  map[string]string // groupedIndex exists, and these are the groups of the counters
}

// A pipeline is publishers, aggregators, the bus and the store. It runs in a synctest bubble.
type pipeline struct {
	t      *testing.T
	store  *protocoltest.Store
	bus    slowBus
	linger time.Duration     // of the publishers
	groups map[string]string // of the counters
	pubs   []*publisher.Publisher
	aggs   []*aggregator.Aggregator
	stop   context.CancelFunc
	ended  sync.WaitGroup

	begun figures // the cost before the first increment

	mu   sync.Mutex
	sent map[string]int64
}

// settled is how long an aggregator runs before it considers its look-ups of markers unnecessary: a
// restarted one expects duplicates.
const settled = 2 * time.Minute

func open(t *testing.T, s setup) *pipeline {
	t.Helper()
	time.Sleep(time.Until(clock.Earliest.Add(store.MaxWindow))) // a bubble begins in the year 2000
	bus, err := inproc.New(inproc.Config{MaxBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	options := protocoltest.Options{Latency: storeTakes, NeedRecords: true, Errorf: t.Errorf}
	p := &pipeline{t: t, linger: s.linger, groups: s.groups, bus: slowBus{bus}, sent: make(map[string]int64), store: protocoltest.New(options)}
	if s.series {
		if _, err := p.store.ChangeRules(t.Context(), seriesRule); err != nil {
			t.Fatal(err)
		}
	}
	if s.groups != nil {
		if _, err := p.store.ChangeRules(t.Context(), groupedIndex); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	p.stop = cancel
	for range s.aggregators {
		agg, err := aggregator.New(bus, p.store, aggregator.Config{})
		if err != nil {
			t.Fatal(err)
		}
		p.aggs = append(p.aggs, agg)
		p.ended.Go(func() {
			if err := agg.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	for range s.publishers {
		pub, err := publisher.New(p.bus, publisher.Config{Linger: s.linger})
		if err != nil {
			t.Fatal(err)
		}
		p.pubs = append(p.pubs, pub)
	}
	time.Sleep(settled)
	p.begun = p.figures()
	return p
}

func (p *pipeline) add(pub *publisher.Publisher, name string) {
	if err := pub.Add(name, 1); err != nil {
		p.t.Fatal(err)
	}
	p.note(name, 1)
}

func (p *pipeline) note(name string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent[name] += n
}

// publish hands over increments that have ids, or are sent under a key.
func (p *pipeline) publish(pub *publisher.Publisher, key string, incs ...countmill.Increment) {
	var err error
	if key == "" {
		_, err = pub.Publish(p.t.Context(), incs...)
	} else {
		_, err = pub.PublishKeyed(p.t.Context(), "", key, incs...)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	for _, inc := range incs {
		p.note(inc.Counter, inc.Delta)
	}
}

// pace makes every publisher add at an even rate, none in step with another. next draws a counter for
// publisher i.
func (p *pipeline) pace(perSecond int, lasts time.Duration, next func(i int) string) {
	p.drip(perSecond, lasts, time.Millisecond, func(i, n int) {
		for range n {
			p.add(p.pubs[i], next(i))
		}
	})
}

// drip makes every publisher i add n increments each tick, at an even rate.
func (p *pipeline) drip(perSecond int, lasts, tick time.Duration, add func(i, n int)) {
	var wg sync.WaitGroup
	begin := time.Now()
	// The publishers begin at random moments of a linger: moments at equal distances give up to a fifth
	// more windows. The seed makes every run draw the same moments.
	phases := rand.New(rand.NewPCG(1, 0))
	for i := range p.pubs {
		start := begin.Add(time.Duration(phases.Int64N(int64(max(time.Second, p.linger)))))
		wg.Go(func() {
			time.Sleep(time.Until(start))
			for n, at := 0, tick; at <= lasts; at += tick {
				time.Sleep(time.Until(start.Add(at)))
				due := int(int64(perSecond) * int64(at) / int64(len(p.pubs)) / int64(time.Second))
				add(i, due-n)
				n = due
			}
		})
	}
	wg.Wait()
}

// rest flushes and waits until everything is folded.
func (p *pipeline) rest() {
	p.t.Helper()
	var wg sync.WaitGroup
	for _, pub := range p.pubs {
		wg.Go(func() {
			if _, err := pub.Flush(p.t.Context()); err != nil {
				p.t.Error(err)
			}
		})
	}
	wg.Wait()
	for range 600 {
		time.Sleep(time.Second)
		if p.folded() {
			return
		}
	}
	p.t.Fatal("the pipeline does not come to rest")
}

// folded reports whether every message was received and none is held.
func (p *pipeline) folded() bool {
	var sent, taken, held int64
	for _, pub := range p.pubs {
		sent += pub.Stats().Messages
	}
	for _, agg := range p.aggs {
		taken += agg.Stats().Messages
		held += agg.Stats().HeldMessages
	}
	return sent == taken && held == 0
}

// close ends everything and returns the cost. It fails unless everything was counted.
func (p *pipeline) close() figures {
	p.t.Helper()
	p.rest()
	f := p.figures().since(p.begun)
	for _, pub := range p.pubs {
		if err := pub.Close(p.t.Context()); err != nil {
			p.t.Error(err)
		}
	}
	p.stop()
	p.ended.Wait()
	if err := p.bus.Close(); err != nil {
		p.t.Error(err)
	}
	if got, want := p.store.Totals(), withGroups(p.sent, p.groups); !maps.Equal(got, want) {
		p.t.Errorf("the store has %d counters and groups, %d were sent, and not all totals are right", len(got), len(want))
	}
	return f
}
