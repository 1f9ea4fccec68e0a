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
	w    *World
	n    int
	name string
	role role
	slot int // which of its kind

	dead     bool // guarded by World.mu
	calls    int  // guarded by World.mu
	frozen   bool
	leaving  bool           // told to stop
	left     bool           // and has
	fell     bool           // ended by itself
	unsure   bool           // the outcome of a fold was unknown to it
	skew     time.Duration  // written under World.mu
	set      time.Time      // when its clock was set last
	image    uint64         // where its random numbers begin
	told     time.Time      // when Check said that the database is another
	late     int            // folds since
	learned  bool           // it was told the store's time
	doubt    time.Duration  // how far it may be wrong about it since the store's clock was set; guarded by World.mu
	setBack  time.Duration  // how far its own clock was set back since the store last answered; guarded by World.mu
	asking   int            // checks of the database under way
	asked    time.Time      // when the last was answered
	lag      time.Duration  // that it said last; guarded by World.mu
	rdrClock accuracy       // guarded by World.mu
	aggClock accuracy       // guarded by World.mu
	records  []store.Worker // that it has read last; guarded by World.mu
	goesBy   int64          // version of the settings that it was told last; guarded by World.mu

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

// start begins a life of the process in slot.
func (w *World) start(r role, slot int) *proc {
	w.procs++
	p := &proc{w: w, n: w.procs, role: r, slot: slot, open: make(map[any]struct{}), looked: make(map[string]int)}
	p.name = [...]string{"client", "publisher", "aggregator", "reader", "node"}[r] + fmt.Sprint(slot, ".", p.n)
	p.image = w.rng.Uint64()
	if old := w.alive[r][slot]; old != nil && w.restored {
		p.image = old.image
	}
	if w.rates[ClockSkewed] > 0 && w.rng.IntN(2) == 0 || r == aggregating && w.rng.IntN(3) == 0 {
		p.skew = w.drawSkew(r)
		w.hit(ClockSkewed)
	}
	p.version = w.drawVersion(r, w.alive[r][slot])
	w.alive[r][slot] = p
	w.procsAll = append(w.procsAll, p)
	w.trace("start", p, "", 0)
	w.say(p, "starts, its clock %s off, of wire version %d", p.skew, p.version)
	e := w.newEnv(p, p.image)
	s := w.shape
	if r.has(publishing) {
		p.pub = must(publisher.New(&bus{w.bus, p}, publisher.Config{
			Linger: s.lingerOf(s.linger), CountWithin: s.budgetOf(p), MaxEntries: s.maxEntries, MaxBytes: s.maxBytes, MaxInFlight: s.inFlight, DedupWindowFunc: w.trusted(p), KnownKeys: 4, Env: e,
		}))
	}
	if r.has(reading) {
		p.rdr = must(reader.New(&simStore{w.db, p, &p.rdrClock}, &cache{w.cache, p}, reader.Config{
			DefaultStaleness: 2 * time.Second, Guess: 1 + slot, Remember: 4, Timeout: s.timeout, Env: e,
		}))
	}
	if r.has(reading) {
		// Ends of waiting of its own: no two fall on the same instant.
		p.adm = must(admin.New(p.rdr, adminStore{&simStore{w.db, p, nil}}, admin.Config{
			Timeout: 3*s.timeout + 53*time.Microsecond, CallTimeout: s.timeout + 37*time.Microsecond, Env: e,
		}))
	}
	if r.has(aggregating) {
		w.aggregate(p, aggregator.Config{
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

func (w *World) aggregate(p *proc, cfg aggregator.Config) {
	p.heldMessages = cfg.HeldMessages
	p.shards = 1 + (p.slot+w.shape.shards)%4
	if w.embedded {
		p.shards, cfg.ShardRate = 1, 0
	}
	cfg.Shards = p.shards
	p.agg = must(aggregator.New(&bus{w.bus, p}, &simStore{w.db, p, &p.aggClock}, cfg))
	ctx, cancel := context.WithCancel(background)
	p.stop = cancel
	w.running.Add(1)
	go func() {
		defer w.running.Done()
		w.park(&step{p: p, op: "run"})
		err := p.agg.Run(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
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
func (w *World) kill(p *proc) {
	w.trace("kill", p, "", 0)
	w.say(p, "ends at once")
	w.fence(p)
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
		w.bury(func() { _ = p.pub.Close(hasEnded) })
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
func (w *World) bury(f func()) {
	w.running.Add(1)
	go func() {
		defer w.running.Done()
		f()
	}()
}

// opening notes what a fold touches; one process never has a shard or a marker in two.
func (p *proc) opening(s *step, c *store.Commit) {
	if w := p.w; w.commits == nil {
		w.commits = make(map[*step]*store.Commit)
	}
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	p.w.commits[s] = c
}

type shardKey struct {
	counter string
	shard   int
}

func touched(c *store.Commit, f func(any)) {
	for _, m := range c.Markers {
		f(m.ID)
	}
	for _, a := range c.Adds {
		f(shardKey{a.Counter, a.Shard})
	}
}

func (w *World) commitOf(s *step) *store.Commit {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.commits[s]
}

// begin and end are called when a step parks and when it goes on.
func (p *proc) begin(s *step) {
	switch s.op {
	case "check":
		p.asks()
	case "announce":
		p.checkLag(s)
	case "fold", "lookup", "list":
		p.checkAsked(s)
	}
	c := p.w.commitOf(s)
	if c == nil {
		return
	}
	p.w.checkSwapped(p)
	touched(c, func(key any) {
		if _, ok := p.open[key]; ok {
			p.w.violate("%s has %v in two open folds", p.name, key)
		}
		p.open[key] = struct{}{}
	})
}

func (p *proc) end(s *step) {
	if s.op == "check" {
		p.answered(time.Now())
	}
	c := p.w.commitOf(s)
	if c == nil {
		return
	}
	touched(c, func(key any) { delete(p.open, key) })
	p.w.mu.Lock()
	delete(p.w.commits, s)
	p.w.mu.Unlock()
}

// lives are the processes of a role that run, in the order of their slots.
func (w *World) lives(r role) []*proc {
	var found []*proc
	for kind := range w.alive {
		if !role(kind).has(r) {
			continue
		}
		for _, p := range w.alive[kind] {
			if p != nil && !p.dead && !p.leaving {
				found = append(found, p)
			}
		}
	}
	return found
}
