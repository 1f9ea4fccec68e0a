package budget

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend/inproc"
	"github.com/countmill/countmill/bench/internal/load"
	"github.com/countmill/countmill/internal/sysenv"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
	"github.com/countmill/countmill/wire"
)

// A setting is a budget, or a pair of lingers.
type setting struct{ budget, linger, window time.Duration }

// An outcome is the result of a load with a setting.
type outcome struct {
	shards, markers, commits, messages int
	p50, p99, worst                    time.Duration
}

// written is the number of entities that folds wrote.
func (o outcome) written() int { return o.shards + o.markers }

// settled is how long an aggregator runs before it considers its look-ups of markers unnecessary: a
// restarted one expects duplicates.
const settled = 2 * time.Minute

// run runs a load with a setting, and fails unless every increment was counted once.
func run(t *testing.T, d *deployment, s setting) (o outcome) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(sysenv.Earliest)) // a bubble begins in the year 2000
		w := &world{
			t: t, d: d, random: rand.New(rand.NewPCG(d.seed, 1)),
			store: fakestore.New(fakestore.Options{NeedRecords: true, Errorf: t.Errorf}),
			free:  make(map[shard]time.Time), parts: make(map[wire.PartID][]time.Time), sent: make(map[string]int64),
			names: load.Names(d.counters),
		}
		o = w.run(s)
	})
	return o
}

// A world is publishers, aggregators, the bus and the store, in a bubble.
type world struct {
	t     *testing.T
	d     *deployment
	store *fakestore.Store
	bus   *inproc.Bus
	names []string
	began time.Time

	mu     sync.Mutex
	random *rand.Rand
	free   map[shard]time.Time         // when the last commit to the shard will have ended
	parts  map[wire.PartID][]time.Time // when the increments of each part on the bus were added
	late   []time.Duration             // each increment's age when it was counted
	sent   map[string]int64
}

type shard struct {
	counter string
	n       int
}

func (w *world) run(s setting) outcome {
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	var err error
	if w.bus, err = inproc.New(inproc.Config{MaxBytes: 1 << 30}); err != nil {
		w.t.Fatal(err)
	}
	var ended sync.WaitGroup
	for range w.d.aggregators {
		agg, err := aggregator.New(w.bus, slowStore{w.store, w}, aggregator.Config{Linger: s.window, CountWithin: s.budget})
		if err != nil {
			w.t.Fatal(err)
		}
		ended.Go(func() {
			if err := agg.Run(ctx); err != nil {
				w.t.Error(err)
			}
		})
	}
	time.Sleep(settled)
	w.began = time.Now()
	before := w.store.Counts()
	var o outcome
	for _, p := range w.publish(s) {
		if err := p.Close(ctx); err != nil {
			w.t.Error(err)
		}
		o.messages += int(p.Stats().Messages)
	}
	c := w.store.Counts()
	o.shards, o.markers, o.commits = c.Adds-before.Adds, c.Markers-before.Markers, c.Folds-before.Folds
	cancel()
	ended.Wait()
	if err := w.bus.Close(); err != nil {
		w.t.Error(err)
	}
	if got := w.store.Totals(); !maps.Equal(got, w.sent) {
		w.t.Errorf("the store has %d counters, %d were sent, and not all totals are right", len(got), len(w.sent))
	}
	slices.Sort(w.late)
	n := len(w.late)
	o.p50, o.p99, o.worst = w.late[n/2], w.late[n-1-n/100], w.late[n-1]
	return o
}

// publish plays the load, and waits until everything is counted.
func (w *world) publish(s setting) []*publisher.Publisher {
	var pubs []*publisher.Publisher
	var adding sync.WaitGroup
	for i, adds := range w.d.adds {
		wall := func() time.Time { return time.Now().Add(w.d.skew[i]).Round(0) }
		b := &slowBus{w: w, waiting: make(map[string][]time.Time)}
		p, err := publisher.New(b, sysenv.With(publisher.Config{Linger: s.linger, CountWithin: s.budget}, &sysenv.Env{Wall: wall}))
		if err != nil {
			w.t.Fatal(err)
		}
		pubs = append(pubs, p)
		adding.Go(func() {
			for _, a := range adds {
				time.Sleep(time.Until(w.began.Add(a.at)))
				name := w.names[a.counter]
				b.added(name)
				if err := p.Add(name, 1); err != nil {
					w.t.Error(err)
				}
			}
		})
	}
	adding.Wait()
	for !w.counted() {
		time.Sleep(w.d.budget / 4)
		if time.Since(w.began) > w.d.lasts+10*time.Minute {
			w.t.Fatal("the pipeline does not come to rest")
		}
	}
	return pubs
}

func (w *world) counted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.late) == w.d.increments()
}

// takes returns how long a call takes now.
func (w *world) takes(d delay) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return d.draw(w.random, time.Since(w.began))
}

// A slowBus is a publisher's way to the bus. It knows when its increments were added.
type slowBus struct {
	w       *world
	waiting map[string][]time.Time // by counter, in order; guarded by world.mu
}

func (b *slowBus) added(name string) {
	b.w.mu.Lock()
	defer b.w.mu.Unlock()
	b.waiting[name] = append(b.waiting[name], time.Now())
	b.w.sent[name]++
}

func (b *slowBus) Publish(topic string, messages ...*message.Message) error {
	for _, m := range messages {
		batch, err := wire.Decode(m.Payload)
		if err != nil {
			return err
		}
		b.w.mu.Lock()
		for _, p := range batch.Parts {
			for _, e := range p.Entries {
				b.w.parts[p.ID] = append(b.w.parts[p.ID], b.waiting[e.Counter][:e.Delta]...)
				b.waiting[e.Counter] = b.waiting[e.Counter][e.Delta:]
			}
		}
		b.w.mu.Unlock()
	}
	time.Sleep(b.w.takes(b.w.d.publish))
	go func() {
		time.Sleep(b.w.takes(b.w.d.deliver))
		if err := b.w.bus.Publish(topic, messages...); err != nil {
			b.w.t.Error(err)
		}
	}()
	return nil
}

// A slowStore has latency, and applies commits to one shard one after the other.
type slowStore struct {
	*fakestore.Store
	w *world
}

func (s slowStore) Shards(ctx context.Context, counters []string) ([]int, error) {
	time.Sleep(s.w.takes(s.w.d.commit))
	return s.Store.Shards(ctx, counters)
}

func (s slowStore) Grow(ctx context.Context, raises []store.Growth) error {
	time.Sleep(s.w.takes(s.w.d.commit))
	return s.Store.Grow(ctx, raises)
}

func (s slowStore) Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error) {
	time.Sleep(time.Until(s.w.queue(c, s.w.takes(s.w.d.commit))))
	folded, err := s.Store.Fold(ctx, c)
	if err == nil {
		s.w.counts(c.Markers)
	}
	return folded, err
}

// queue returns the end of a commit of that length, which waits for earlier ones to the same shards.
func (w *world) queue(c *store.Commit, takes time.Duration) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	begins := time.Now()
	for _, a := range c.Adds {
		if free := w.free[shard{a.Counter, a.Shard}]; free.After(begins) {
			begins = free
		}
	}
	for _, a := range c.Adds {
		w.free[shard{a.Counter, a.Shard}] = begins.Add(takes)
	}
	return begins.Add(takes)
}

// counts records the ages of counted increments.
func (w *world) counts(markers []store.Marker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range markers {
		for _, at := range w.parts[m.ID] {
			w.late = append(w.late, time.Since(at))
		}
		delete(w.parts, m.ID)
	}
}
