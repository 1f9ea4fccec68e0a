package sim

import (
	"context"
	"fmt"
	"strings"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

var counters = []string{"a", "b", "page:/x", "page:/y", below}

// Clients send increments to publishers.
type clients struct {
	*callers
	again []*op // to be repeated
}

// wide is counters for one request, each once, more than a part holds; now and then one
// is as any other.
func (cs *clients) wide() func() string {
	n := 0
	return func() string {
		if n++; cs.rng.IntN(20) == 0 {
			return cs.counter()
		}
		return fmt.Sprint("wide", n)
	}
}

func (cs *clients) counter() string {
	if cs.rates[Poison] > 0 && cs.rng.Float64() < cs.rates[Poison] {
		cs.hit(Poison)
		return poison
	}
	return pick(cs.rng, counters[:2+cs.shape.counters])
}

// add calls Add, now and then very often.
func (cs *clients) add(p *proc) {
	if cs.crowd != nil && cs.rng.IntN(3) == 0 {
		cs.addCrowd(p)
		return
	}
	for range 1 + cs.rng.IntN(4) {
		s := cs.ledger.draw(cs.counter())
		if s == nil {
			return
		}
		s.added = p.wall()
		add := func() error { return p.pub.Add(s.counter, s.delta()) }
		if c, err := p.pub.Counter(s.counter); err == nil && cs.rng.IntN(4) == 0 {
			add = func() error { return c.Add(s.delta()) }
		}
		if add() == nil {
			s.maybe()
			p.sums = append(p.sums, s)
		}
		cs.say(p, "Add %s#%d", s.counter, s.digit)
		synctest.Wait() // or it would be chance which of them the sender takes together
	}
}

// flush asks a publisher to send what Add took.
func (cs *clients) flush(p *proc) {
	o := cs.newOp("flush", cs.finishFlush)
	o.sums, o.crowd = p.sums, cs.crowd.take(p)
	p.sums = nil
	o.from = p.wall()
	cs.ask(o, p, func(ctx context.Context) (err error) {
		o.sent, err = p.pub.Flush(ctx)
		return err
	})
}

func (cs *clients) finishFlush(o *op) {
	if o.kind == "close" && o.p.role == node && !o.p.dead {
		cs.procs.stop(o.p) // the roles of one process stop one after the other
	}
	switch {
	case o.p.dead:
	case o.err != nil: // a later one may still say so
		o.p.sums, o.p.cutShort = append(o.p.sums, o.sums...), o.kind == "close"
		cs.crowd.give(o.p, o.crowd)
	default:
		for _, s := range o.sums {
			s.durable()
		}
		cs.noteFlushed(o)
		cs.crowd.prove(o.crowd)
	}
}

// offer sends increments in one of the three ways.
func (cs *clients) offer(p *proc, kind string) {
	o := cs.newOp(kind, cs.finishSend)
	var at time.Time
	if cs.rng.IntN(2) == 0 {
		at = cs.pastEvent(cs.wall())
		if cs.rng.IntN(4) == 0 {
			o.past = at.Add(-time.Duration(cs.rng.IntN(30)) * time.Hour)
		}
	}
	if kind == "key" {
		o.key = fmt.Sprint("key", o.n)
	}
	n := 1 + cs.rng.IntN(4)
	counter := cs.counter
	if cs.rng.IntN(10) == 0 {
		n = 30 // more than a part holds, where counters are as many
		if kind == "key" || cs.rng.IntN(4) == 0 {
			n, counter = 60, cs.wide() // a quarter of a request with a key have ids
		}
	}
	for i := range n {
		s := cs.ledger.draw(counter())
		if s == nil {
			break
		}
		cs.addTo(o, i, s, at)
	}
	if len(o.incs) == 0 {
		return
	}
	if kind == "ids" && cs.rng.IntN(8) == 0 { // a caller repeats itself
		o.incs, o.sums = append(o.incs, o.incs[0]), append(o.sums, o.sums[0])
	}
	cs.send(o, p)
	// A request of several parts has one marker, and more to be taken for by mistake.
	if cs.strikes(IDReused) || len(o.incs) > 30 && cs.rng.IntN(2) == 0 {
		cs.reuse(o)
	}
}

// addTo adds increment s to what o asks for, as the one with number i: of a time before at, if that
// is not zero, and maybe with an id.
func (cs *clients) addTo(o *op, i int, s *sum, at time.Time) {
	o.sums = append(o.sums, s)
	inc := countmill.Increment{Counter: s.counter, Delta: s.delta(), Time: at}
	if !at.IsZero() {
		inc.Time = cs.pastEvent(at)
		s.at = inc.Time
	}
	if !o.past.IsZero() {
		s.at = o.past
	}
	switch {
	case o.kind == "key" && cs.rng.IntN(4) == 0:
		inc.ID = fmt.Sprint("in key", o.n, ":", i)
	case o.kind == "ids":
		inc.ID = fmt.Sprint("id", o.n) // the same on every counter
		if o.has(s.counter) {
			inc.ID += fmt.Sprint(":", s.digit)
		}
	}
	o.incs = append(o.incs, inc)
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
func (cs *clients) reuse(o *op) {
	if o.kind == "publish" {
		return
	}
	s := cs.ledger.draw(o.incs[0].Counter)
	if s == nil {
		return
	}
	other := cs.newOp(o.kind, cs.finishSend)
	other.key, other.sums = o.key, []*sum{s}
	cs.ledger.rival(o, s)
	other.incs = []countmill.Increment{{Counter: s.counter, Delta: s.delta(), ID: o.incs[0].ID, Time: o.incs[0].Time}}
	cs.send(other, pick(cs.rng, cs.procs.publishers()))
}

// oddMessage puts a message on the topic that no publisher made.
func (cs *clients) oddMessage() {
	switch {
	case cs.embedded:
	case cs.strikes(Garbage):
		payload := fmt.Sprint("\xffgarbage ", cs.n)
		if cs.n++; cs.rng.IntN(10) == 0 {
			payload += strings.Repeat("x", 1<<20) // the letter has several rows
		}
		cs.ledger.garbage = append(cs.ledger.garbage, payload)
		cs.bus.put("", []byte(payload), true)
	case cs.strikes(NewerVersion):
		s := cs.ledger.draw(cs.counter())
		if s == nil {
			return
		}
		s.durable()
		cs.bus.put("", encode(secondVersion, wire.Append(nil, &wire.Batch{Time: cs.wall(), Parts: []wire.Part{wire.CutIdentified(
			countmill.Increment{Counter: s.counter, Delta: s.delta(), ID: fmt.Sprint("newer ", s.counter, " ", s.digit)})}})), true)
	case cs.rates[Foreign] > 0 && cs.rng.IntN(3) == 0:
		cs.smallMessages()
	case cs.rates[Foreign] > 0 && cs.rng.IntN(3) == 0:
		cs.smallMessages()
	case cs.rates[Foreign] > 0:
		s := cs.ledger.draw(cs.counter())
		if s == nil {
			return
		}
		cs.hit(Foreign)
		s.durable()
		more := ""
		if at := cs.pastEvent(time.Time{}); !at.IsZero() {
			more = fmt.Sprintf(`,"id":"foreign %s %d","time":%q`, s.counter, s.digit, at.UTC().Format(time.RFC3339Nano))
		}
		cs.bus.put("", fmt.Appendf(nil, `{"counter":%q,"delta":%d%s}`, s.counter, s.delta(), more), true)
	}
}

// smallMessages puts a request with a key on the topic as a program with smaller messages would: in
// several, of a few parts each. Often the whole request comes as well, in one.
func (cs *clients) smallMessages() {
	cs.n++
	o := &op{key: fmt.Sprint("small", cs.n)}
	counter := cs.wide()
	for range 60 {
		s := cs.ledger.draw(counter())
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
	cs.hit(Foreign)
	messages, _ := wire.Pack(cs.wall(), wire.FlushID{}, parts, 500)
	if cs.rng.IntN(2) == 0 {
		more, _ := wire.Pack(cs.wall(), wire.FlushID{}, parts, wire.MaxBatch)
		messages = append(messages, more...)
	}
	cs.rng.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	for _, payload := range messages {
		cs.bus.put("", payload, true)
	}
}

// closePublisher closes a publisher.
func (cs *clients) closePublisher(p *proc) {
	p.pubClosed = true
	o := cs.newOp("close", cs.finishFlush)
	o.sums, o.crowd = p.sums, cs.crowd.take(p)
	p.sums = nil
	o.limit = time.Minute + time.Duration(o.n)*17
	cs.ask(o, p, func(ctx context.Context) error { return p.pub.Close(ctx) })
}

// addCrowd calls Add for a crowd.
func (cs *clients) addCrowd(p *proc) {
	c, n := cs.crowd, 0
	counter := must(p.pub.Counter(c.counter))
	for i := range c.adds {
		if counter.Add(c.delta) != nil {
			break
		}
		n++
		// From the third on they change a word and nothing else: nobody wakes up.
		if c.each || i < 2 {
			synctest.Wait()
		}
	}
	c.sent += n
	c.unproven[p] += n
	cs.hit(map[string]Fault{flood: Flood, swarm: Swarm}[c.counter])
	cs.say(p, "Add %d times %s%+d", n, c.counter, c.delta)
}

const (
	// flood is a counter that is driven beyond int64.
	flood = "flood"
	// swarm is a counter with more increments in one batch than a cell counts in its word.
	swarm = "swarm"
)

// A crowd is increments of one counter that are all the same, too many for a digit each. Its
// total says how many were counted, and not which.
type crowd struct {
	counter  string
	delta    int64
	adds     int           // at once
	each     bool          // everybody comes to rest after each
	sent     int           // at most so many are counted
	durable  int           // at least so many
	unproven map[*proc]int // that no flush has made durable yet
}

// drawCrowd draws a crowd for few schedules: it takes long, and hides what else is wrong.
func (pl *plan) drawCrowd() *crowd {
	rng := pl.rng
	c := &crowd{counter: swarm, delta: 1, adds: 1<<20 + rng.IntN(1000), unproven: make(map[*proc]int)}
	if rng.IntN(150) == 0 {
		return c
	}
	c.counter, c.delta, c.adds, c.each = flood, countmill.MaxDelta, 600, true
	if pl.shape.flood {
		return c
	}
	return nil
}

// is reports whether the counter is the crowd's. A schedule may have none.
func (c *crowd) is(counter string) bool { return c != nil && c.counter == counter }

// take is how many of them a flush is about that begins now.
func (c *crowd) take(p *proc) (n int) {
	if c != nil {
		n, c.unproven[p] = c.unproven[p], 0
	}
	return n
}

// give: the flush has not made them durable. A later one may.
func (c *crowd) give(p *proc, n int) {
	if n > 0 {
		c.unproven[p] += n
	}
}

// prove: the flush has.
func (c *crowd) prove(n int) {
	if n > 0 {
		c.durable += n
	}
}

// overflows reports whether the counter's total may leave int64.
func (c *crowd) overflows(counter string) bool {
	return c.is(counter) && c.counter == flood && c.sent > 1024
}

// inDeadLetters is how many were set aside.
func (c *crowd) inDeadLetters(sums map[string][]int64) (n int64) {
	for _, delta := range sums[c.counter] {
		n += delta / c.delta
	}
	return n
}
