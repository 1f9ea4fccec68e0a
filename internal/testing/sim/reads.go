package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/wire"
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

// A written is increments that a client may read back.
type written struct {
	receipt wire.Receipt
	counted time.Time // where the answer was that they are counted: the moment since when
	asked   time.Time // no message with the sums is older, by clocks that are right
	sums    []*sum
}

// noteWritten keeps the receipt or the moment in the answer to o.
func (cs *clients) noteWritten(o *op, sums []*sum) {
	w := &written{receipt: o.sent.Receipt, sums: sums, asked: o.wrote.Add(-time.Minute)}
	if w.counted = o.sent.CountedAsOf; o.sent.Counted && w.counted.IsZero() {
		w.counted = cs.procs.db.moment()
	}
	if len(sums) > 0 && (o.sent.Counted || !w.receipt.IsZero()) {
		cs.written = append(cs.written, w)
	}
}

// noteFlushed keeps the receipt of a flush for the increments that it has. After a clock was
// set nobody knows which.
func (cs *clients) noteFlushed(o *op) {
	if o.kind == "flush" && o.p.set.IsZero() && o.jumped == cs.jumped {
		cs.noteWritten(o, slices.DeleteFunc(slices.Clone(o.sums), func(s *sum) bool { return s.added.Before(o.sent.Since) }))
	}
}

// readBack reads the sums of a written back.
func (rc *readClients) readBack(p *proc, w *written) {
	o := rc.newOp("read", rc.totals.checkRead)
	o.written, o.final, o.doubt = w, rc.final, p.doubt
	for _, s := range w.sums {
		if !slices.Contains(o.names, s.counter) && len(o.names) < 8 {
			o.names = append(o.names, s.counter)
		}
	}
	if !w.counted.IsZero() { // from the cache, too
		o.minAsOf, o.staleness = w.counted, rc.staleness()
		rc.askTotals(o, p)
		return
	}
	wait := []time.Duration{0, 100 * time.Millisecond, 2 * time.Second}[rc.rng.IntN(3)] + time.Duration(o.n)*13
	rc.ask(o, p, func(ctx context.Context) error {
		o.from = rc.wall().Truncate(time.Microsecond)
		after, err := p.rdr.TotalsAfter(ctx, o.names, w.receipt, wait, o.minAsOf)
		o.totals, o.dead = after.Totals, after.DeadLetters
		return err
	})
}

// readAllBack reads all written sums back, once all has come to rest.
func (rc *readClients) readAllBack() {
	lives := rc.procs.lives(reading)
	if rc.proved || len(lives) == 0 {
		return
	}
	rc.proved = true
	for _, w := range rc.written {
		rc.readBack(pick(rc.rng, lives), w)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// checkSince: no total is older than the moment in the request.
func (to *totalOracle) checkSince(o *op, t *reader.Total) {
	if t.AsOf.Before(o.minAsOf) {
		to.violate("%s read %s as of %s, %s before the moment that the client has seen", o.p.name, t.Counter, t.AsOf.Format(clockFormat), o.minAsOf.Sub(t.AsOf))
	}
	to.seen[t.Counter] = later(to.seen[t.Counter], t.AsOf)
}

// checkWritten: the digits of the increments that are read back are in the totals, or a letter that the
// answer names has them. Resets do not matter: their amounts are in the sums of shards.
func (to *totalOracle) checkWritten(o *op) {
	if o.written == nil {
		return
	}
	to.After++
	for _, s := range o.written.sums {
		at := slices.IndexFunc(o.totals, func(t reader.Total) bool { return t.Counter == s.counter })
		if _, swept := to.db.swept[s.counter]; at < 0 || swept || s.refused {
			continue
		}
		if s.times(to.db.totalAt(s.counter, o.totals[at].AsOf)) == 0 && !to.inDeadLetters(s, o.dead) {
			to.violate("%s answered after the receipt of increment %d of %s, and the total as of %s lacks it", o.p.name, s.digit, s.counter, o.totals[at].AsOf.Format(clockFormat))
		}
	}
}

// inDeadLetters reports whether a letter that the answer names has the increment.
func (to *totalOracle) inDeadLetters(s *sum, dead []reader.DeadLetterRef) bool {
	return slices.ContainsFunc(dead, func(a reader.DeadLetterRef) bool {
		d, ok := to.db.buried[a.Key]
		return ok && slices.ContainsFunc(partsIn(d), func(p wire.Part) bool { return s.in(&p) })
	})
}

// checkNotWritten: when all has come to rest, everything is counted or set aside, unless it is beyond
// the window or the bus gave it up. A receipt expires only with the window.
func (to *totalOracle) checkNotWritten(o *op) {
	switch {
	case o.written == nil:
	case errors.Is(o.err, countmill.ErrReceiptExpired):
		if forgotten := to.forgotten(); !o.written.receipt.Time.Before(forgotten) {
			to.violate("%s says that a receipt of %s has expired, and nothing since %s is forgotten", o.p.name, o.written.receipt.Time, forgotten)
		}
	case errors.Is(o.err, countmill.ErrNotCountedYet) && o.final && to.jumped == 0 && to.Faults[GivenUp] == 0 && !to.mayHaveExpired(o.written):
		to.violate("%s says that a receipt of %s, asked for at %s, is not counted yet, when all has come to rest and nothing since %s is forgotten: %v",
			o.p.name, o.written.receipt.Time.Format(clockFormat), o.written.asked.Format(clockFormat), to.forgotten().Format(clockFormat), o.err)
	case errors.Is(o.err, countmill.ErrOtherDatabase), errors.Is(o.err, countmill.ErrInvalid):
		to.violate("%s refuses a receipt or a moment that was given out: %v", o.p.name, o.err)
	}
}

// mayHaveExpired reports whether messages of w may be beyond the window. A reader's settings may be
// 10 s old, so it may not say so yet. A receipt has the time of the publisher, whose clock may be ahead of the
// broker's; the window goes by the earlier of the two.
func (to *totalOracle) mayHaveExpired(w *written) bool {
	forgotten := to.forgotten()
	return w.receipt.Time.Before(forgotten) || w.asked.Before(forgotten)
}

// forgotten is the time before which the store forgets increments.
func (to *totalOracle) forgotten() time.Time {
	return to.db.settings().ForgetBefore
}
