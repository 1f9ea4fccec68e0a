package sim

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A broker keeps messages until they are acknowledged. Order means nothing to it.
type broker struct {
	*World
	n             int
	queue         []*busMessage // not delivered, or to be delivered again
	held          []*delivery
	done          []*busMessage // the last ones that were acknowledged
	deliveries    []*delivery   // all there were
	subscriptions []*subscription
}

// A busMessage is a message that the broker has.
type busMessage struct {
	n         int
	uuid      string
	payload   []byte
	published time.Time
	foreign   bool
	acked     bool
	moved     bool // aside: the bus gave it up, and intakes get it
	// settled gets the outcome, where the publisher waits for it. from is the context of its message.
	settled func(error)
	from    context.Context

	decode func() (*wire.Batch, error) // the payload, read once
}

// A delivery is a message that a subscriber holds.
type delivery struct {
	message *busMessage
	sub     *subscription
	msg     *message.Message
	at      time.Time
}

type subscription struct {
	p     *proc
	ctx   context.Context
	out   chan *message.Message
	ended bool
	moved bool        // of an intake
	next  *busMessage // that it is to get before others; nil for most
	idle  bool        // refused its last offer; until something else has happened
}

func (b *broker) put(uuid string, payload []byte, foreign bool) *busMessage {
	b.n++
	l := &busMessage{n: b.n, uuid: uuid, payload: payload, published: b.wall(), foreign: foreign}
	l.decode = sync.OnceValues(l.batch)
	b.queue = append(b.queue, l)
	b.series.published(l)
	b.say(nil, "   message %d is on the bus", l.n)
	return l
}

// absorb takes in acknowledgements, refusals and ended streams, and reports whether there were any.
func (b *broker) absorb() bool {
	before := len(b.held) + len(b.subscriptions)
	for _, s := range b.subscriptions {
		if !s.ended && s.ctx.Err() != nil {
			b.end(s)
		}
	}
	b.subscriptions = slices.DeleteFunc(b.subscriptions, func(s *subscription) bool { return s.ended })
	held := b.held[:0]
	var again []*busMessage
	for _, d := range b.held {
		switch {
		case closed(d.msg.Acked()):
			if l := b.acked(d); l != nil {
				again = append(again, l)
			}
		case closed(d.msg.Nacked()):
			b.nacked(d)
			again = append(again, d.message)
		case d.sub.ended || d.sub.p.dead:
			again = append(again, d.message)
		default:
			held = append(held, d)
		}
	}
	clear(b.held[len(held):])
	b.held = held
	for _, l := range again {
		b.requeue(l)
	}
	return len(b.held)+len(b.subscriptions) != before
}

// requeue makes a message ready again, unless it is done or ready anyway.
func (b *broker) requeue(l *busMessage) {
	if l.settled != nil && !l.acked { // nobody delivers twice on one machine
		l.acked = true
		l.settled(errNacked)
	}
	if !l.acked && !slices.Contains(b.queue, l) {
		b.queue = append(b.queue, l)
	}
}

var errNacked = errors.New("sim: the subscriber refused the message; it was not applied")

// acked takes an ack in, or loses it: then the message is to be delivered again.
func (b *broker) acked(d *delivery) *busMessage {
	if d.sub.p.dead {
		return d.message
	}
	b.say(d.sub.p, "acknowledges message %d", d.message.n)
	b.parts.acknowledged(d)
	if d.message.settled == nil && !d.message.acked && b.strikes(AckLost) {
		return d.message
	}
	if !d.message.acked {
		d.message.acked = true
		b.queue = slices.DeleteFunc(b.queue, func(l *busMessage) bool { return l == d.message })
		if d.message.settled != nil {
			d.message.settled(nil)
			return nil
		}
		b.done = append(b.done[max(0, len(b.done)+1-keptDone):], d.message)
	}
	return nil
}

// keptDone is how many messages the broker may deliver again after their acknowledgement.
const keptDone = 10

// repeat delivers a message again that was acknowledged.
func (b *broker) repeat(l *busMessage) {
	b.say(nil, "message %d is to be delivered again after its acknowledgement", l.n)
	b.done = slices.DeleteFunc(b.done, func(d *busMessage) bool { return d == l })
	l.acked = false
	b.requeue(l)
}

func (b *broker) nacked(d *delivery) {
	if p := d.sub.p; !p.dead && !p.leaving && p.canRead(d.message.payload) {
		b.violate("%s gave message %d back while it was not stopping", d.sub.p.name, d.message.n)
	}
}

func (b *broker) end(s *subscription) {
	s.ended = true
	close(s.out)
}

// open is the subscriptions that may be offered something.
func (b *broker) open() []*subscription {
	var open []*subscription
	for _, s := range b.subscriptions {
		if !s.ended && !s.idle && !s.p.frozen && !s.p.dead {
			open = append(open, s)
		}
	}
	return open
}

// next returns the message of the queue to deliver: often the oldest, as brokers do. So the message
// that was delivered first also comes first again. It is negative if there is none for the subscription.
func (b *broker) next(s *subscription) int {
	if i := b.rng.IntN(len(b.queue)); b.rng.IntN(2) == 0 && b.queue[i].moved == s.moved {
		return i
	}
	oldest := -1
	for i, l := range b.queue {
		if l.moved == s.moved && (oldest < 0 || l.n < b.queue[oldest].n) {
			oldest = i
		}
	}
	return oldest
}

// offer offers a message.
func (b *broker) offer(s *subscription) {
	i := b.next(s)
	if i < 0 {
		s.idle = true
		return
	}
	if at := slices.Index(b.queue, s.next); s.next != nil && at >= 0 {
		i = at
	}
	l := b.queue[i]
	if b.deliver(s, i) {
		s.next = nil
		b.lateCopy(s, l)
	}
}

// deliver offers message i of the queue, and reports whether it was taken.
func (b *broker) deliver(s *subscription, i int) bool {
	l := b.queue[i]
	m := message.NewMessage(l.uuid, l.payload)
	if !b.embedded {
		m.Metadata.Set(wire.MetaBrokerID, strconv.Itoa(l.n))
		m.Metadata.Set(wire.MetaPublished, l.published.UTC().Format(time.RFC3339Nano))
	}
	if l.from != nil {
		ctx := wire.PassReply(background, l.from)
		if wire.OfferedOnce(l.from) {
			ctx = wire.DeliverOnce(ctx)
		}
		m.SetContext(ctx)
	}
	select {
	case s.out <- m:
	default:
		s.idle = true
		return false
	}
	b.say(s.p, "gets message %s", b.words(strconv.Itoa(l.n), func() string { return payloadText(l.payload) }))
	b.queue = slices.Delete(b.queue, i, i+1)
	if s.p.first == nil && !l.moved {
		s.p.first = l
	}
	b.parts.delivered(l)
	d := &delivery{l, s, m, time.Now()}
	b.held, b.deliveries = append(b.held, d), append(b.deliveries, d)
	b.checkHeld(s.p)
	return true
}

// checkHeld: an aggregator holds no more messages than it may.
func (b *broker) checkHeld(p *proc) {
	n, newer := 0, 0
	for _, d := range b.held {
		switch {
		case d.sub.p != p, d.message.moved:
		case p.canRead(d.message.payload):
			n++
		default:
			newer++
		}
	}
	if n > p.heldMessages {
		b.violate("%s holds %d messages, at most %d were to be", p.name, n, p.heldMessages)
	}
	if newer > 2 { // one may wait, and gives way to the next
		b.violate("%s holds %d messages that it cannot read", p.name, newer)
	}
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// mayFold reports whether somebody has a message with that part.
func (b *broker) mayFold(id wire.PartID) bool {
	return slices.ContainsFunc(b.deliveries, func(d *delivery) bool {
		return !d.sub.p.dead && !closed(d.msg.Acked()) && !closed(d.msg.Nacked()) && slices.Contains(d.message.ids(), id)
	})
}

// ids returns the ids of the message's parts.
func (l *busMessage) ids() []wire.PartID {
	b, err := l.decode()
	if err != nil {
		return nil
	}
	ids := make([]wire.PartID, len(b.Parts))
	for i := range b.Parts {
		ids[i] = b.Parts[i].ID
	}
	return ids
}

// batch returns the parts of the message, however long it waited.
func (l *busMessage) batch() (*wire.Batch, error) {
	if _, ok := l.entry(); !ok {
		return decode(l.payload)
	}
	incs, err := wire.DecodeJSON(l.payload, wire.JSON, l.published, store.MaxWindow)
	if err != nil {
		return nil, err
	}
	return wire.CutMessage("countmill", strconv.Itoa(l.n), l.published, incs)
}

// redeliver makes a message ready again that a subscriber holds.
func (b *broker) redeliver() bool {
	if len(b.held) == 0 || b.embedded {
		return false
	}
	l := pick(b.rng, b.held).message
	b.say(nil, "message %d is to be delivered again", l.n)
	b.requeue(l)
	return true
}

// forgetAck delivers a message again that was acknowledged.
func (b *broker) forgetAck() bool {
	if len(b.done) == 0 {
		return false
	}
	b.repeat(pick(b.rng, b.done))
	return true
}

// endOne ends a stream.
func (b *broker) endOne() bool {
	open := b.open()
	if len(open) == 0 {
		return false
	}
	b.end(pick(b.rng, open))
	return true
}

// givenUp is why a message that the bus gave up is a dead letter.
const givenUp = "given up by the bus"

// giveUp moves a message aside that is to be delivered, maybe again: whether it was applied nobody knows.
func (b *broker) giveUp() bool {
	i := slices.IndexFunc(b.queue, func(l *busMessage) bool { return !l.foreign && !l.moved && l.settled == nil })
	if i < 0 {
		return false
	}
	l := b.queue[i]
	l.moved = true
	b.say(nil, "message %d is given up", l.n)
	b.parts.delivered(l)
	return true
}
