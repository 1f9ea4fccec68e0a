package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
)

// A role is what a process does; a node does all of it.
type role int

const (
	client role = iota
	publishing
	aggregating
	reading
	node
)

func (r role) has(other role) bool { return r == other || r == node && other != client }

// A proc is one life of a process.
type proc struct {
	k    *kernel
	n    int
	name string
	role role
	slot int // which of its kind

	dead     bool // guarded by kernel.mu
	calls    int  // guarded by kernel.mu
	frozen   bool
	leaving  bool           // told to stop
	left     bool           // and has
	fell     bool           // ended by itself
	unsure   bool           // the outcome of a fold was unknown to it
	skew     time.Duration  // written under kernel.mu
	set      time.Time      // when its clock was set last
	image    uint64         // where its random numbers begin
	told     time.Time      // when Check said that the database is another
	late     int            // folds since
	learned  bool           // it was told the store's time
	doubt    time.Duration  // how far it may be wrong about it since the store's clock was set; guarded by kernel.mu
	setBack  time.Duration  // how far its own clock was set back since the store last answered; guarded by kernel.mu
	asking   int            // checks of the database under way
	asked    time.Time      // when the last was answered
	lag      time.Duration  // that it said last; guarded by kernel.mu
	rdrClock accuracy       // guarded by kernel.mu
	aggClock accuracy       // guarded by kernel.mu
	records  []store.Worker // that it has read last; guarded by kernel.mu
	goesBy   int64          // version of the settings that it was told last; guarded by kernel.mu

	version      int // of the wire format: that it writes, and the newest it reads
	shards       int
	heldMessages int
	first        *parcel // that was delivered to it
	pub          *publisher.Publisher
	pubClosed    bool
	cutShort     bool // by the time-out of Close
	agg          *aggregator.Aggregator
	stop         context.CancelFunc
	rdr          *reader.Reader
	adm          *admin.Admin // with the reader
	waiting      []*parcel
	sums         []*sum // what Add took since the last Flush

	looked map[string]int // in which step it learned of each counter's record

	open map[any]struct{} // shards and markers of folds under way
}

// The processes are those that run the roles.
type processes struct {
	*kernel
	bus   *broker
	db    *database
	cache *cacheServer

	started int
	all     []*proc           // in the order of their starts
	alive   [node + 1][]*proc // by role and slot; a dead one until it lives again
	ending  bool              // a closed publisher has no successor any more
}

// startAll begins the first life of each process.
func (ps *processes) startAll() {
	for r := range ps.alive {
		ps.alive[r] = make([]*proc, ps.count(role(r)))
		for slot := range ps.alive[r] {
			ps.start(role(r), slot, false)
		}
	}
}

// start begins a life of the process in slot; a restored one has the random numbers of the life before.
func (ps *processes) start(r role, slot int, restored bool) *proc {
	ps.started++
	p := &proc{k: ps.kernel, n: ps.started, role: r, slot: slot, open: make(map[any]struct{}), looked: make(map[string]int)}
	p.name = [...]string{"client", "publisher", "aggregator", "reader", "node"}[r] + fmt.Sprint(slot, ".", p.n)
	p.image = ps.rng.Uint64()
	if old := ps.alive[r][slot]; old != nil && restored {
		p.image = old.image
	}
	if ps.rates[ClockSkewed] > 0 && ps.rng.IntN(2) == 0 || r == aggregating && ps.rng.IntN(3) == 0 {
		p.skew = ps.drawSkew(r)
		ps.hit(ClockSkewed)
	}
	p.version = ps.drawVersion(r, ps.alive[r][slot])
	ps.alive[r][slot] = p
	ps.all = append(ps.all, p)
	ps.trace("start", p, "", 0)
	ps.say(p, "starts, its clock %s off, of wire version %d", p.skew, p.version)
	e := ps.newEnv(p, p.image)
	s := ps.shape
	if r.has(publishing) {
		p.pub = must(publisher.New(&bus{ps.bus, p}, publisher.Config{
			Linger: s.lingerOf(s.linger), CountWithin: s.budgetOf(p), MaxEntries: s.maxEntries, MaxBytes: s.maxBytes, MaxInFlight: s.inFlight, DedupWindowFunc: ps.trusted(p), KnownKeys: 4, Env: e,
		}))
	}
	if r.has(reading) {
		p.rdr = must(reader.New(&simStore{ps.db, p, &p.rdrClock}, &cache{ps.cache, p}, reader.Config{
			DefaultStaleness: 2 * time.Second, Guess: 1 + slot, Remember: 4, Timeout: s.timeout, Env: e,
		}))
	}
	if r.has(reading) {
		// Ends of waiting of its own: no two fall on the same instant.
		p.adm = must(admin.New(p.rdr, adminStore{&simStore{ps.db, p, nil}}, admin.Config{
			Timeout: 3*s.timeout + 53*time.Microsecond, CallTimeout: s.timeout + 37*time.Microsecond, Env: e,
		}))
	}
	if r.has(aggregating) {
		ps.startAggregator(p, aggregator.Config{
			Linger: s.lingerOf(s.window), CountWithin: s.budgetOf(p), WindowMessages: s.windowMessages, WindowCounters: s.windowCounters,
			HeldMessages: s.held, HeldMemory: s.held * memoryEach, Commits: s.commits, CommitTimeout: s.timeout,
			Remember: s.remember, DeadLetterRate: s.letterRate, DrainTimeout: s.drain,
			MaxShards: s.maxShards, ShardRate: s.shardRate,
			HeartbeatEvery: s.announce, WorkerID: fmt.Sprint("worker", slot), Env: e,
			Decode: reads(p.version),
		})
	}
	return p
}

// lingerOf is a linger where there is no budget of staleness.
func (s *shape) lingerOf(linger time.Duration) time.Duration {
	if s.budget > 0 {
		return 0
	}
	return linger
}

// budgetOf is a little more for each process: publishers with the same one would seal at the
// same instant.
func (s *shape) budgetOf(p *proc) time.Duration {
	if s.budget <= 0 {
		return 0
	}
	return s.budget + time.Duration(p.n)*1013
}

func (ps *processes) startAggregator(p *proc, cfg aggregator.Config) {
	p.heldMessages = cfg.HeldMessages
	p.shards = 1 + (p.slot+ps.shape.shards)%4
	if ps.embedded {
		p.shards, cfg.ShardRate = 1, 0
	}
	cfg.Shards = p.shards
	p.agg = must(aggregator.New(&bus{ps.bus, p}, &simStore{ps.db, p, &p.aggClock}, cfg))
	ctx, cancel := context.WithCancel(background)
	p.stop = cancel
	ps.running.Add(1)
	go func() {
		defer ps.running.Done()
		ps.park(&step{p: p, op: "run"})
		err := p.agg.Run(ctx)
		ps.mu.Lock()
		defer ps.mu.Unlock()
		p.left, p.fell = true, err != nil && ctx.Err() == nil
	}()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// kill ends a life at once.
func (ps *processes) kill(p *proc) {
	ps.trace("kill", p, "", 0)
	ps.say(p, "ends at once")
	ps.fence(p)
	for _, l := range p.waiting {
		if !l.acked {
			l.acked = true
			l.settled(errFenced)
		}
	}
	p.waiting = nil
	if p.role.has(publishing) {
		for _, s := range p.sums {
			s.maybe()
		}
		p.sums = nil
		ps.bury(func() { _ = p.pub.Close(hasEnded) })
	}
	if p.stop != nil {
		p.stop()
	}
}

// hasEnded is a context that has ended.
var hasEnded = func() context.Context {
	ctx, cancel := context.WithCancel(background)
	cancel()
	return ctx
}()

// bury lets what is left of a dead process come to its end.
func (ps *processes) bury(f func()) {
	ps.running.Add(1)
	go func() {
		defer ps.running.Done()
		f()
	}()
}

// lives are the processes of a role that run, in the order of their slots.
func (ps *processes) lives(r role) []*proc {
	var found []*proc
	for kind := range ps.alive {
		if !role(kind).has(r) {
			continue
		}
		for _, p := range ps.alive[kind] {
			if p != nil && !p.dead && !p.leaving {
				found = append(found, p)
			}
		}
	}
	return found
}

// count is how many processes of a role there are.
func (ps *processes) count(r role) int {
	switch {
	case ps.embedded:
		return map[role]int{node: 1}[r]
	case r == publishing:
		return ps.shape.publishers
	case r == aggregating:
		return ps.shape.aggregators
	case r == reading:
		return ps.shape.readers
	}
	return 0
}
