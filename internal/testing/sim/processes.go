package sim

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/reader"
)

// The processes run the roles.
type processes struct {
	*World

	started   int
	all       []*proc           // in the order of their starts
	alive     [node + 1][]*proc // by role and slot; a dead one until it lives again
	ending    bool              // a closed publisher has no successor from now on
	checked   time.Time         // of checkMemory
	atRemotes atomic.Int32      // batches over HTTP that a process has taken and not answered
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
	p := &proc{k: ps.kernel, n: ps.started, role: r, slot: slot, open: make(map[any]struct{})}
	p.name = [...]string{"client", "publisher", "aggregator", "reader", "indexer", "node"}[r] + fmt.Sprint(slot, ".", p.n)
	p.image = ps.rng.Uint64()
	if old := ps.alive[r][slot]; old != nil && restored {
		p.image = old.image
	}
	if ps.rates[ClockSkewed] > 0 && ps.rng.IntN(2) == 0 || (r == aggregating || r == reading) && ps.rng.IntN(3) == 0 {
		p.skew = ps.drawSkew(r)
		ps.hit(ClockSkewed)
	}
	p.version = ps.drawVersion(r, ps.alive[r][slot])
	ps.alive[r][slot] = p
	ps.all = append(ps.all, p)
	ps.say(p, "starts, its clock %s off, of wire version %d", p.skew, p.version)
	e := ps.newEnv(p, p.image)
	if p.shards = 1 + (p.slot+ps.shape.shards)%4; ps.embedded {
		p.shards = 1
	}
	if r != publishing && r != client {
		ps.db.openStore(p)
	}
	s := ps.shape
	if r.has(publishing) {
		p.pub = must(publisher.New(ps.busOf(p), clock.With(publisher.Config{
			Linger: s.lingerOf(s.linger), CountWithin: s.budgetOf(p), MaxEntries: s.maxEntries, MaxBytes: s.maxBytes, MaxInFlight: s.inFlight, DedupWindow: ps.trusted(p), KnownKeys: 4, Journal: ps.journals,
		}, e)))
	}
	if r.has(reading) {
		p.rdr = must(reader.New(ps.db.storeOf(p, &p.rdrClock), ps.cache.of(p, p.store), clock.With(reader.Config{
			DefaultStaleness: 2 * time.Second, Guess: 1 + slot, Remember: 4, Timeout: s.timeout, BoardRate: boardRate,
		}, e)))
	}
	if r.has(reading) {
		// Ends of waiting of its own: no two fall on the same instant.
		p.adm = must(admin.New(p.rdr, ps.db.storeOf(p, nil), clock.With(admin.Config{
			Timeout: 3*s.timeout + 53*time.Microsecond, CallTimeout: s.timeout + 37*time.Microsecond,
		}, e)))
		p.jnl = admin.NewJournal(ps.db.storeOf(p, nil), s.timeout+41*time.Microsecond+time.Duration(p.n)*31)
	}
	if r.has(aggregating) {
		ps.startAggregator(p, e, clock.With(aggregator.Config{
			Linger: s.lingerOf(s.window), CountWithin: s.budgetOf(p), WindowMessages: s.windowMessages, WindowCounters: s.windowCounters,
			HeldMessages: s.held, HeldMemory: s.held * memoryEach, Commits: s.commits, CommitTimeout: s.timeout,
			Remember: s.remember, DeadLetterRate: s.deadLetterRate, DrainTimeout: s.drain,
			MaxShards: s.maxShards, ShardRate: s.shardRate,
			HeartbeatEvery: s.announce, WorkerID: fmt.Sprint("worker", slot),
			Decode: reads(p.version),
		}, e))
	}
	if r.has(reading) && ps.sequences > 0 {
		ps.startIssuer(p, e)
	}
	if r.has(indexing) && ps.indexed != nil {
		ps.startIndexer(p, e)
	}
	return p
}

func (ps *processes) startAggregator(p *proc, e *clock.Env, cfg aggregator.Config) {
	p.heldMessages = cfg.HeldMessages
	if ps.embedded {
		cfg.ShardRate = 0
	}
	cfg.Shards = p.shards
	p.agg = must(aggregator.New(&bus{ps.bus, p}, ps.db.storeOf(p, &p.aggClock), cfg))
	ctx, cancel := context.WithCancel(background)
	p.stop = cancel
	if ps.rates[GivenUp] > 0 {
		in := aggregator.NewIntake(&bus{ps.bus, p}, ps.db.storeOf(p, nil), clock.With(aggregator.IntakeConfig{Topic: movedTopic, Timeout: cfg.CommitTimeout + 71}, e))
		ps.running.Go(func() {
			ps.park(&step{p: p, op: "run intake"})
			_ = in.Run(ctx)
		})
	}
	ps.running.Add(1)
	go func() {
		defer ps.running.Done()
		deepen(0)
		ps.park(&step{p: p, op: "run"})
		err := p.agg.Run(ctx)
		ps.mu.Lock()
		defer ps.mu.Unlock()
		p.left, p.fell = true, err != nil && ctx.Err() == nil
	}()
}

// kill ends a life at once.
func (ps *processes) kill(p *proc) {
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
		ps.finishDead(func() { _ = p.pub.Close(hasEnded) })
	}
	if p.seq != nil {
		ps.finishDead(func() { _ = p.seq.Close(hasEnded) })
	}
	if p.rdr != nil {
		ps.finishDead(p.rdr.Close)
	}
	if p.stop != nil {
		p.stop()
	}
	if p.stopIndexer != nil {
		p.stopIndexer()
	}
}

// fence ends all steps of a process that was killed.
func (ps *processes) fence(p *proc) {
	synctest.Wait() // another may just have been killed
	ps.absorb()
	ps.mu.Lock()
	p.dead = true
	ps.mu.Unlock()
	for _, s := range slices.Clone(ps.pending) {
		if s.p != p {
			continue
		}
		ps.drop(s)
		callEnds(s)
		s.fenced = true
		if s.run != nil {
			s.run(killed)
		}
		close(s.resume)
	}
}

// finishDead runs f, the end of a dead process, which nobody waits for but the end of the schedule.
func (ps *processes) finishDead(f func()) {
	ps.running.Add(1)
	go func() {
		defer ps.running.Done()
		f()
	}()
}

// stop asks an aggregator to stop.
func (ps *processes) stop(p *proc) {
	ps.say(p, "is told to stop")
	ps.mu.Lock()
	p.leaving = true
	ps.mu.Unlock()
	p.stop()
}

// supervise starts processes that have stopped again, as a service manager does.
func (ps *processes) supervise() (acted bool) {
	if ps.db.powerLost() {
		lost := ps.alive[node][0]
		ps.kill(lost)
		ps.db.twin.close(false)
		ps.db.openOwn()
		ps.start(node, lost.slot, false)
		return true
	}
	for r := range ps.alive {
		for slot, p := range ps.alive[r] {
			ps.mu.Lock()
			left, fell, unsure := p.left, p.fell, p.unsure
			ps.mu.Unlock()
			switch {
			case p.dead:
			case fell:
				if !unsure {
					ps.violate("%s ended by itself, and the outcome of no fold was unknown to it", p.name)
				}
				ps.kill(p)
			case left, p.role == publishing && p.pubClosed && !ps.ending:
				if p.role == node {
					ps.kill(p) // its other roles
				}
			default:
				continue
			}
			ps.start(role(r), slot, false)
			acted = true
		}
	}
	return acted
}

// halted reports whether an aggregator has stopped folding for good.
func (p *proc) halted() bool {
	if p.agg == nil || p.dead || p.leaving {
		return false
	}
	err := p.agg.Ready()
	return err != nil && strings.Contains(err.Error(), "folding has stopped")
}

// restartHalted ends aggregators that have stopped folding for good: somebody has to start them again.
func (ps *processes) restartHalted() {
	for _, p := range ps.lives(aggregating) {
		if p.halted() {
			ps.kill(p)
		}
	}
}

// upgrade replaces the aggregators that cannot read all, when nothing breaks any more.
func (ps *processes) upgrade() {
	for _, p := range ps.lives(aggregating) {
		if !ps.newerComes() || p.version == secondVersion {
			continue
		}
		if ps.rng.IntN(2) == 0 {
			ps.stop(p)
			continue
		}
		ps.kill(p)
		ps.start(p.role, p.slot, false)
	}
}

// endPublishers ends all publishers whose Close ran out of time, as they still publish. Others may
// have replaced them.
func (ps *processes) endPublishers() {
	for _, p := range ps.all {
		if p.role == publishing && p.cutShort && !p.dead {
			ps.kill(p)
		}
	}
}

// lives are the processes of a role that run, in the order of their slots.
func (ps *processes) lives(r role) []*proc { return slices.Collect(ps.living(r)) }

// living visits them.
func (ps *processes) living(r role) iter.Seq[*proc] {
	return func(yield func(*proc) bool) {
		for kind := range ps.alive {
			if !role(kind).has(r) {
				continue
			}
			for _, p := range ps.alive[kind] {
				if p != nil && !p.dead && !p.leaving && !yield(p) {
					return
				}
			}
		}
	}
}

// publishers returns the processes that accept increments.
func (ps *processes) publishers() []*proc {
	var open []*proc
	for _, p := range ps.lives(publishing) {
		if !p.pubClosed {
			open = append(open, p)
		}
	}
	return open
}

// everybody is all processes that run.
func (ps *processes) everybody() []*proc {
	var all []*proc
	for _, p := range ps.all {
		if !p.dead {
			all = append(all, p)
		}
	}
	return all
}

// count is how many processes of a role there are.
func (ps *processes) count(r role) int {
	switch {
	case ps.embedded:
		return map[role]int{node: 1, publishing: ps.remotes}[r]
	case r == publishing:
		return ps.shape.publishers
	case r == aggregating:
		return ps.shape.aggregators
	case r == reading:
		return ps.shape.readers
	case r == indexing && ps.indexed != nil:
		return ps.indexed.workers
	}
	return 0
}

func (ps *processes) killOne(r role) bool {
	lives := ps.lives(r)
	if len(lives) == 0 {
		return false
	}
	p := pick(ps.rng, lives)
	ps.kill(p)
	ps.start(p.role, p.slot, false)
	return true
}

// restoreOne replaces a process by another life with the same random numbers. The first message
// of the old one comes again, so that the same numbers meet the same message.
func (ps *processes) restoreOne(r role) bool {
	lives := ps.lives(r)
	if len(lives) == 0 {
		return false
	}
	p := pick(ps.rng, lives)
	ps.kill(p)
	if l := p.first; l != nil && l.settled == nil {
		l.acked = false
		ps.bus.requeue(l)
	}
	ps.start(p.role, p.slot, true)
	return true
}

// freezeOne stops a process, or lets all that are stopped go on.
func (ps *processes) freezeOne() bool {
	all := ps.everybody()
	p := pick(ps.rng, all)
	p.frozen = !p.frozen
	ps.say(p, "frozen: %t", p.frozen)
	return true
}

// hasEnded is a context that has ended.
var hasEnded = func() context.Context {
	ctx, cancel := context.WithCancel(background)
	cancel()
	return ctx
}()

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
