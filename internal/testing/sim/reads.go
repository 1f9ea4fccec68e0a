package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// Clients that read ask readers for totals.
type readClients struct {
	*callers
	final  bool // all has come to rest
	proved bool // every receipt was read then
}

// read asks a reader for totals.
func (rc *readClients) read() {
	lives := rc.procs.lives(reading)
	if len(lives) == 0 {
		return
	}
	p, staleness := pick(rc.rng, lives), rc.staleness()
	if rc.rng.IntN(2) == 0 && rc.readNew() {
		return
	}
	if rc.indexed != nil && rc.rng.IntN(3) == 0 {
		rc.askTop(p, 4)
		rc.askRank(p, &rc.indexed.indexes[0])
		return
	}
	switch last := rc.storeNow().Sub(rc.seen[counters[0]]); rc.rng.IntN(8) {
	case 0, 1:
		rc.readOne(p, 5*time.Second, 0, 5*time.Second)
		return
	case 2: // soon too old for this client: the reader may read it anew before
		rc.readOne(p, last+last/10, last+last/5)
		return
	}
	if len(rc.written) > 0 && rc.rng.IntN(2) == 0 {
		rc.readBack(p, pick(rc.rng, rc.written))
		return
	}
	first := rc.readFrom(p, staleness)
	if first.kind == "read" && rc.rng.IntN(2) == 0 { // the same again: it may share the first
		again := rc.newOp("read", rc.totals.checkRead)
		again.staleness, again.names, again.doubt = staleness, first.names, p.doubt
		rc.askTotals(again, p)
	}
}

// staleness draws how old a total may be. Two clients often draw the same: then they share reads.
func (rc *readClients) staleness() time.Duration {
	if rc.rng.IntN(2) == 0 {
		return rc.shape.staleness
	}
	return drawStaleness(rc.rng)
}

func drawStaleness(r *rand.Rand) time.Duration {
	return []time.Duration{0, 0, 100 * time.Millisecond, time.Second, 5 * time.Second, -1}[r.IntN(6)]
}

func (rc *readClients) readFrom(p *proc, staleness time.Duration) *op {
	o := rc.newOp("read", rc.totals.checkRead)
	o.final, o.staleness, o.doubt = rc.final, staleness, p.doubt
	for _, c := range counters {
		if rc.rng.IntN(2) == 0 {
			o.names = append(o.names, c)
		}
	}
	if len(o.names) == 0 || rc.rng.IntN(3) == 0 {
		o.names = []string{"a"} // what many want at the same time
	}
	if rc.indexed != nil && (o.final || rc.rng.IntN(4) > 0) {
		rc.addGroups(o)
	}
	if rc.crowd != nil && (o.final || rc.rng.IntN(3) == 0) {
		o.names = []string{rc.crowd.counter}
	}
	if rc.rng.IntN(8) == 0 {
		o.kind = "list"
		rc.ask(o, p, func(ctx context.Context) error {
			o.from = rc.wall().Truncate(time.Microsecond)
			page, err := p.rdr.List(ctx, "page:", "", 10)
			o.totals = page.Totals
			return err
		})
		return o
	}
	rc.askTotals(o, p)
	return o
}

// addGroups asks for groups too, or for groups alone.
func (rc *readClients) addGroups(o *op) {
	groups := []string{pick(rc.rng, rc.indexed.groups)}
	if rc.rng.IntN(3) > 0 {
		groups = append(groups, o.names...)
	}
	o.names = groups
}

// probe asks a reader whether it is ready, as whoever runs it does all the time, and then for
// totals that its cache may have.
func (rc *readClients) probe(p *proc) {
	rc.ask(rc.newOp("ready", rc.finishProbe), p, func(ctx context.Context) error {
		_, err := p.rdr.Ready(ctx)
		return err
	})
}

func (rc *readClients) finishProbe(o *op) {
	if o.p.dead || !rc.stormy {
		return
	}
	rc.readCached(o.p)
}

// readNew asks a reader that does not know the store's time yet, if there is one.
func (rc *readClients) readNew() bool {
	lives := rc.procs.lives(reading)
	i := slices.IndexFunc(lives, func(p *proc) bool { return !p.learned })
	if i >= 0 {
		rc.readCached(lives[i])
	}
	return i >= 0
}

// readCached asks for the total that the cache often has.
func (rc *readClients) readCached(p *proc) { rc.readOne(p, 5*time.Second) }

// readOne asks for the total that clients ask for most, up to an age. With further ages it then asks again: the cache may still have an
// older total than the answer before.
func (rc *readClients) readOne(p *proc, age time.Duration, further ...time.Duration) {
	o := rc.newOp("read", func(o *op) {
		if rc.totals.checkRead(o); len(further) > 0 && rc.stormy && !p.dead {
			rc.readOne(p, further[0], further[1:]...)
		}
	})
	o.names, o.staleness, o.doubt = counters[:1], age, p.doubt
	rc.askTotals(o, p)
}

// askTotals asks for totals.
func (rc *readClients) askTotals(o *op, p *proc) {
	if rc.rng.IntN(2) == 0 {
		for _, name := range o.names { // the client has seen these: no counter may go back
			o.minAsOf = later(o.minAsOf, rc.seen[name])
		}
	}
	rc.ask(o, p, func(ctx context.Context) (err error) {
		o.from = rc.wall().Truncate(time.Microsecond)
		o.totals, err = p.rdr.TotalsSince(ctx, o.names, o.staleness, o.minAsOf)
		return err
	})
}

// askPipeline asks a reader how far behind the aggregators are.
func (rc *readClients) askPipeline() {
	lives := rc.procs.lives(reading)
	if len(lives) == 0 {
		return
	}
	p := pick(rc.rng, lives)
	o := rc.newOp("pipeline", rc.totals.checkPipeline)
	rc.ask(o, p, func(ctx context.Context) error {
		p.rdr.Fleet(ctx)
		p.rdr.Busiest(ctx)
		o.pipeline = p.rdr.Pipeline(ctx)
		o.from = rc.storeNow()
		rc.mu.Lock()
		defer rc.mu.Unlock()
		o.records, o.accuracy = slices.Clone(p.records), p.rdrClock
		return nil
	})
}

// readLast reads totals that have to be those of the ledger.
func (rc *readClients) readLast() {
	rc.readAllBack()
	for _, p := range rc.procs.lives(reading) {
		rc.readFrom(p, 0)
		rc.lookLast(p)
		if rc.indexed != nil {
			rc.askTop(p, 1)
			rc.askRank(p, &rc.indexed.indexes[0])
		}
	}
}
