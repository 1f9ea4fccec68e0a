package sim

import (
	"fmt"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// publishers are those that take increments.
func (ps *processes) publishers() []*proc {
	var open []*proc
	for _, p := range ps.lives(publishing) {
		if !p.pubClosed {
			open = append(open, p)
		}
	}
	return open
}

var counters = []string{"a", "b", "page:/x", "page:/y", below}

// work starts one more thing that clients do.
func (w *World) work() {
	lives := w.procs.publishers()
	if len(lives) == 0 {
		return
	}
	if w.shape.operator && w.rng.IntN(4) == 0 {
		w.operate()
		return
	}
	p := pick(w.rng, lives)
	switch n := w.rng.IntN(20); {
	case n < 5:
		w.add(p)
	case n < 6:
		w.flush(p)
	case n < 9:
		w.offer(p, "publish")
	case n < 12:
		w.offer(p, "ids")
	case n < 15:
		w.offer(p, "key")
	case n < 16:
		w.oddMessage()
	case n < 17:
		w.askPipeline()
	default:
		w.read()
	}
}

// wide is counters for one request, each once, more than a part holds; now and then one
// is as any other.
func (w *World) wide() func() string {
	n := 0
	return func() string {
		if n++; w.rng.IntN(20) == 0 {
			return w.counter()
		}
		return fmt.Sprint("wide", n)
	}
}

func (w *World) counter() string {
	if w.rates[Poison] > 0 && w.rng.Float64() < w.rates[Poison] {
		w.hit(Poison)
		return poison
	}
	return pick(w.rng, counters[:2+w.shape.counters])
}

// add calls Add, now and then very often.
func (w *World) add(p *proc) {
	if w.crowd != nil && w.rng.IntN(3) == 0 {
		w.addCrowd(p)
		return
	}
	for range 1 + w.rng.IntN(4) {
		s := w.oracles.ledger.draw(w.counter())
		if s == nil {
			return
		}
		if err := p.pub.Add(s.counter, s.delta()); err == nil {
			s.maybe()
			p.sums = append(p.sums, s)
		}
		w.trace("add", p, s.counter, uint64(s.digit))
		w.say(p, "Add %s#%d", s.counter, s.digit)
		synctest.Wait() // or it would be chance which of them the sender takes together
	}
}

// flush asks a publisher to send what Add took.
func (w *World) flush(p *proc) {
	o := w.newOp("flush")
	o.sums, o.crowd = p.sums, w.crowd.take(p)
	p.sums = nil
	w.ask(o, p, p.pub.Flush)
}

func (w *World) finishFlush(o *op) {
	if o.kind == "close" && o.p.role == node && !o.p.dead {
		w.procs.stop(o.p) // the roles of one process stop one after the other
	}
	switch {
	case o.p.dead:
	case o.err != nil: // a later one may still say so
		o.p.sums, o.p.cutShort = append(o.p.sums, o.sums...), o.kind == "close"
		w.crowd.give(o.p, o.crowd)
	default:
		for _, s := range o.sums {
			s.durable()
		}
		w.crowd.prove(o.crowd)
	}
}

// offer sends increments in one of the three ways.
func (w *World) offer(p *proc, kind string) {
	o := w.newOp(kind)
	var at time.Time
	if w.rng.IntN(2) == 0 {
		at = w.pastEvent(w.wall())
	}
	if kind == "key" {
		o.key = fmt.Sprint("key", o.n)
	}
	n := 1 + w.rng.IntN(4)
	counter := w.counter
	if w.rng.IntN(10) == 0 {
		n = 30 // more than a part holds, where counters are as many
		if kind == "key" || w.rng.IntN(4) == 0 {
			n, counter = 60, w.wide() // a quarter of a request with a key have ids
		}
	}
	for i := range n {
		s := w.oracles.ledger.draw(counter())
		if s == nil {
			break
		}
		o.sums = append(o.sums, s)
		inc := countmill.Increment{Counter: s.counter, Delta: s.delta(), Time: at}
		if !at.IsZero() {
			inc.Time = w.pastEvent(at)
		}
		switch {
		case kind == "key" && w.rng.IntN(4) == 0:
			inc.ID = fmt.Sprint("in key", o.n, ":", i)
		case kind == "ids":
			inc.ID = fmt.Sprint("id", o.n) // the same on every counter
			if o.has(s.counter) {
				inc.ID += fmt.Sprint(":", s.digit)
			}
		}
		o.incs = append(o.incs, inc)
	}
	if len(o.incs) == 0 {
		return
	}
	w.send(o, p)
	// A request of several parts has one marker, and more to be taken for by mistake.
	if w.strikes(IDReused) || len(o.incs) > 30 && w.rng.IntN(2) == 0 {
		w.reuse(o)
	}
}

func (o *op) has(counter string) bool {
	for _, inc := range o.incs {
		if inc.Counter == counter {
			return true
		}
	}
	return false
}

// reuse sends another increment under the id or key of o, through any publisher.
func (w *World) reuse(o *op) {
	if o.kind == "publish" {
		return
	}
	s := w.oracles.ledger.draw(o.incs[0].Counter)
	if s == nil {
		return
	}
	s.group = new(int)
	o.sums[0].group = s.group
	other := w.newOp(o.kind)
	other.key, other.sums = o.key, []*sum{s}
	w.oracles.ledger.rival(o, s)
	other.incs = []countmill.Increment{{Counter: s.counter, Delta: s.delta(), ID: o.incs[0].ID, Time: o.incs[0].Time}}
	w.send(other, pick(w.rng, w.procs.publishers()))
}

// oddMessage puts a message on the topic that no publisher made.
func (w *World) oddMessage() {
	switch {
	case w.embedded:
	case w.strikes(Garbage):
		payload := fmt.Sprint("\xffgarbage ", w.ops)
		w.ops++
		w.oracles.ledger.garbage = append(w.oracles.ledger.garbage, payload)
		w.bus.put("", []byte(payload), true)
	case w.strikes(NewerVersion):
		s := w.oracles.ledger.draw(w.counter())
		if s == nil {
			return
		}
		s.durable()
		w.bus.put("", encode(secondVersion, wire.Append(nil, &wire.Batch{Time: w.wall(), Parts: []wire.Part{wire.CutIdentified(
			countmill.Increment{Counter: s.counter, Delta: s.delta(), ID: fmt.Sprint("newer ", s.counter, " ", s.digit)})}})), true)
	case w.rates[Foreign] > 0 && w.rng.IntN(3) == 0:
		w.smallMessages()
	case w.rates[Foreign] > 0 && w.rng.IntN(3) == 0:
		w.smallMessages()
	case w.rates[Foreign] > 0:
		s := w.oracles.ledger.draw(w.counter())
		if s == nil {
			return
		}
		w.hit(Foreign)
		s.durable()
		more := ""
		if at := w.pastEvent(time.Time{}); !at.IsZero() {
			more = fmt.Sprintf(`,"id":"foreign %s %d","time":%q`, s.counter, s.digit, at.UTC().Format(time.RFC3339Nano))
		}
		w.bus.put("", fmt.Appendf(nil, `{"counter":%q,"delta":%d%s}`, s.counter, s.delta(), more), true)
	}
}

// smallMessages puts a request with a key on the topic as a program with smaller messages would: in
// several, of a few parts each. Often the whole request comes as well, in one.
func (w *World) smallMessages() {
	w.ops++
	o := &op{key: fmt.Sprint("small", w.ops)}
	counter := w.wide()
	for range 60 {
		s := w.oracles.ledger.draw(counter())
		if s == nil {
			continue
		}
		s.durable()
		o.incs = append(o.incs, countmill.Increment{Counter: s.counter, Delta: s.delta()})
	}
	parts, err := wire.CutRequest("", o.key, o.incs)
	if err != nil {
		return
	}
	w.hit(Foreign)
	w.oracles.asked(o)
	messages := wire.Pack(w.wall(), wire.SealID{}, parts, 500)
	if w.rng.IntN(2) == 0 {
		messages = append(messages, wire.Pack(w.wall(), wire.SealID{}, parts, wire.MaxBatch)...)
	}
	w.rng.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	for _, payload := range messages {
		w.bus.put("", payload, true)
	}
}
