package cost

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
	"github.com/countmill/countmill/wire"
)

// An origin is a message's data about a part, the same for each delivery.
type origin struct {
	session int       // the publisher that sent it
	at      time.Time // when the oldest increment of its message was added
}

// A ledger names the entity that remembers a part. The name depends on the message alone, because the
// receiver of a second copy must look in the same place.
type ledger func(id wire.PartID, o origin) string

// A marking is a way to remember which parts were applied. It sits in front of a store that has
// markers, makes every commit wait for the calls that this way needs, and counts the entities. The
// store behind it still decides what was applied, and adds up.
//
// A nil marking is the markers of the store alone.
type marking struct {
	// ledger is where a part is remembered with others. A commit reads that entity, adds the part and
	// writes the entity, unless another process has written it since. nil: an entity of its own,
	// inserted.
	ledger ledger
	// perCommit inserts one entity for all parts of a commit. Its key does not depend on the parts, so
	// each commit must query in its transaction for others that contain one of them.
	perCommit bool
	// inShard says that the ledgers are the shards themselves, which costs no further entity.
	inShard bool

	*noted
}

// noted is the state of a marking in a run.
type noted struct {
	mu       sync.Mutex
	origins  map[wire.PartID]origin
	versions map[string]int         // of ledgers
	written  map[string][]time.Time // ledgers, and when
	cost     markingCost
}

// fresh returns the marking for another run.
func (m marking) fresh() *marking {
	m.noted = &noted{origins: make(map[wire.PartID]origin), versions: make(map[string]int), written: make(map[string][]time.Time)}
	return &m
}

// markingCost is the cost of a marking.
type markingCost struct {
	written, read, aborted int             // ledgers, and commits
	ages                   []time.Duration // from the oldest increment of a message to the commit
}

// askAtOnce is the most values of a query.
const askAtOnce = 30

// fit adapts the store behind it. The limit of 400 is a limit of entities, and parts that share one are
// not entities of their own.
func (m *marking) fit(o *fakestore.Options) {
	o.Latency = 0 // the marking adds the latency
	if m.ledger != nil || m.perCommit {
		o.Entities = 100_000
	}
}

// session is the bus of one publisher.
func (m *marking) session(n int, bus slowBus) publisher.Bus {
	if m == nil {
		return bus
	}
	return sessionBus{bus, m, n}
}

type sessionBus struct {
	slowBus
	m *marking
	n int
}

func (b sessionBus) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		batch, err := wire.Decode(msg.Payload)
		if err != nil {
			return err
		}
		b.m.mu.Lock()
		for i := range batch.Parts {
			b.m.origins[batch.Parts[i].ID] = origin{b.n, batch.Time}
		}
		b.m.mu.Unlock()
	}
	return b.slowBus.Publish(topic, messages...)
}

// of is the store of one process.
func (m *marking) of(s *fakestore.Store) aggregator.Store {
	if m == nil {
		return s
	}
	return &remembering{Store: s, m: m, seen: make(map[string]int), busy: make(map[string]chan struct{})}
}

// remembering is a process with the ledgers that it has read or written.
type remembering struct {
	*fakestore.Store
	m *marking

	mu   sync.Mutex
	seen map[string]int           // version
	busy map[string]chan struct{} // ledgers in a running commit; closed after it
}

func (r *remembering) Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error) {
	ledgers := r.m.ledgers(c)
	defer r.acquire(ledgers)()
	if r.m.perCommit {
		time.Sleep(storeTakes)
		r.m.mu.Lock()
		r.m.cost.read += (len(c.Markers) + askAtOnce - 1) / askAtOnce
		r.m.mu.Unlock()
	}
	for {
		time.Sleep(storeTakes)
		folded, moved, err := r.try(ctx, c, ledgers)
		if len(moved) == 0 || ctx.Err() != nil {
			return folded, err
		}
		time.Sleep(storeTakes)
		r.read(moved)
	}
}

// try commits, unless another process has written one of the ledgers since. It returns those ledgers.
func (r *remembering) try(ctx context.Context, c *store.Commit, ledgers []string) (folded store.CommitResult, moved []string, err error) {
	m := r.m
	m.mu.Lock()
	defer m.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range ledgers {
		if r.seen[name] != m.versions[name] {
			moved = append(moved, name)
		}
	}
	if len(moved) > 0 {
		m.cost.aborted++
		return folded, moved, context.DeadlineExceeded
	}
	folded, err = r.Store.Fold(ctx, c)
	if err != nil {
		return folded, nil, err
	}
	for _, name := range ledgers {
		m.versions[name]++
		r.seen[name] = m.versions[name]
		m.written[name] = append(m.written[name], time.Now())
	}
	switch {
	case m.perCommit:
		m.cost.written++
	case m.ledger == nil:
		m.cost.written += len(c.Markers)
	default:
		m.cost.written += len(ledgers)
	}
	for i := range c.Markers {
		m.cost.ages = append(m.cost.ages, time.Since(m.origins[c.Markers[i].ID].at))
	}
	return folded, nil, nil
}

// read reads the changes of other processes.
func (r *remembering) read(ledgers []string) {
	r.m.mu.Lock()
	defer r.m.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range ledgers {
		r.seen[name] = r.m.versions[name]
	}
	r.m.cost.read += len(ledgers)
}

// acquire waits until no other commit of this process has one of the ledgers, because one of the two
// would abort. The ledgers are sorted, so that no two commits wait for each other.
func (r *remembering) acquire(ledgers []string) (release func()) {
	for _, name := range ledgers {
		r.mu.Lock()
		for r.busy[name] != nil {
			ended := r.busy[name]
			r.mu.Unlock()
			<-ended
			r.mu.Lock()
		}
		r.busy[name] = make(chan struct{})
		r.mu.Unlock()
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, name := range ledgers {
			close(r.busy[name])
			delete(r.busy, name)
		}
	}
}

// ledgers returns the ledgers of a commit's parts, each once.
func (m *marking) ledgers(c *store.Commit) []string {
	if m.ledger == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	names := make(map[string]bool)
	for i := range c.Markers {
		id := c.Markers[i].ID
		names[m.ledger(id, m.origins[id])] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// hottest is how often the busiest ledger was written in its busiest second.
func (m *marking) hottest() int {
	most := 0
	for _, times := range m.written {
		first := 0
		for i := range times {
			for times[i].Sub(times[first]) >= time.Second {
				first++
			}
			most = max(most, i-first+1)
		}
	}
	return most
}

// oldest is the age of the oldest increment of a message when it was counted, at the 99th percentile.
func (m *marking) oldest() time.Duration {
	slices.Sort(m.cost.ages)
	if len(m.cost.ages) == 0 {
		return 0
	}
	return m.cost.ages[len(m.cost.ages)*99/100]
}

// The time of other calls.

func (r *remembering) Applied(ctx context.Context, ids []wire.PartID) ([]store.Marker, error) {
	time.Sleep(storeTakes)
	return r.Store.Applied(ctx, ids)
}

func (r *remembering) Shards(ctx context.Context, counters []string) ([]int, error) {
	time.Sleep(storeTakes)
	return r.Store.Shards(ctx, counters)
}

func (r *remembering) Grow(ctx context.Context, raises []store.Growth) error {
	time.Sleep(storeTakes)
	return r.Store.Grow(ctx, raises)
}

func (r *remembering) Beat(ctx context.Context, w store.Worker) error {
	time.Sleep(storeTakes)
	return r.Store.Beat(ctx, w)
}

func (r *remembering) Check(ctx context.Context) (store.Checked, error) {
	time.Sleep(storeTakes)
	return r.Store.Check(ctx)
}

// Ledgers by the data of a message.

func bySession(_ wire.PartID, o origin) string { return fmt.Sprint("session ", o.session) }

func bySecond(lanes int) ledger {
	return func(id wire.PartID, o origin) string {
		return fmt.Sprint("second ", o.at.Unix(), " lane ", int(id[0])%lanes)
	}
}

func shardBySession(shards int) ledger {
	return func(_ wire.PartID, o origin) string { return fmt.Sprint("shard ", o.session%shards) }
}

func shardBySecond(shards int) ledger {
	return func(_ wire.PartID, o origin) string { return fmt.Sprint("shard ", o.at.Unix()%int64(shards)) }
}
