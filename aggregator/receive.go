package aggregator

import (
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// receive takes a message: its parts go into the window, or it becomes a dead letter. A message
// of a newer wire version goes back to the bus.
func (l *loop) receive(m *message.Message) {
	h := &held{msg: m, reply: wire.ReplyOf(m.Context()), source: sourceOf(m), time: l.a.clock.Now()}
	published, err := publishedAt(m)
	if err == nil {
		h.time = published
	}
	h.born = h.time
	batch, err := l.a.decode(m)
	h.completionID = l.a.completionOf(m, batch)
	if later, ok := errors.AsType[wire.NewerError](err); ok {
		l.postpone(m, later)
		return
	}
	l.a.stats.messages.Add(1)
	h.memory = memoryOf(len(m.Payload), batch)
	payload, once := m.Payload, wire.DeliveredOnce(m.Context())
	m.Payload, m.Metadata = nil, nil // frees their memory before the ack
	if err != nil {
		l.hold(h)
		l.refuseMessage(h, payload, err)
		return
	}
	l.take(h, batch, published, once && l.a.limits.CertainOutcome)
}

// take puts the parts of the batch of h into the window. published is the broker's publish time;
// zero if there is none.
func (l *loop) take(h *held, batch *wire.Batch, published time.Time, skipAnonymous bool) {
	h.time, h.born = batch.Time, batch.Time
	if !published.IsZero() && published.Before(h.born) {
		h.born = published // the publisher's clock is ahead
	}
	l.hold(h)
	h.open = len(batch.Parts)
	h.single = !skipAnonymous && batch.IsSingle()
	if h.open == 0 { // JSON whose increments cancel out
		h.open = 1
		l.done(h)
		return
	}
	l.a.stats.parts.Add(int64(len(batch.Parts)))
	before := len(l.window.parts)
	for _, p := range partsOf(batch, h, published, skipAnonymous, l.a.cfg.env.Uint64) {
		l.admit(p)
	}
	if len(l.window.parts) > before { // a message with only copies adds nothing to the window
		l.window.messages++
		l.window.memory += h.memory
	}
}

// admit puts a part into the window, unless its id is in process already. A part id is
// never in two commits under way.
func (l *loop) admit(p *part) {
	stored := l.a.clock.Now()
	// A later time means a wrong clock, and its marker would stay for as long.
	if p.marked && p.at.After(stored.Add(store.MaxAhead)) {
		l.refuse(p, "time is more than 24h ahead", false)
		return
	}
	if p.marked {
		if first, ok := l.known[p.ID]; ok {
			// The same id with other deltas is not a copy: do not acknowledge it with the first.
			if first.fingerprint != p.fingerprint {
				c := first.with()
				c.rivals = append(c.rivals, p)
				return
			}
			l.a.stats.duplicates.Add(1)
			first.join(p)
			return
		}
		l.known[p.ID] = p
	}
	now := time.Now()
	l.window.add(p, now)
	l.window.holds(now.Add(p.holder.born.Sub(stored)))
}

// done notes that one part of a message is settled, and acknowledges the message after the last.
func (l *loop) done(h *held) {
	h.open--
	// Acknowledge the message with its last part, not earlier.
	if h.open > 0 {
		return
	}
	// The completion comes last: it says that every other part is settled.
	if h.needsCompletion() {
		l.admitCompletion(h)
		return
	}
	delete(l.holding, h)
	if l.heldMemory -= h.memory; len(l.holding) == 0 {
		l.measure()
	}
	if h.letter != "" {
		l.replay.settled(h)
		return
	}
	if h.reply != nil && !h.deadLettered {
		h.reply.Count()
	}
	h.msg.Ack()
}

// follow puts the followers of an applied head into the window.
func (l *loop) follow(head *part) {
	for _, p := range head.takeFollowers() {
		l.admit(p)
	}
}

// forget ends the processing of a part, and admits the rivals that waited for it.
func (l *loop) forget(p *part) {
	if !p.marked || l.known[p.ID] != p {
		return
	}
	delete(l.known, p.ID)
	for _, rival := range p.takeRivals() {
		l.admit(rival)
	}
}

// dropExpired sets aside the parts of a job that are beyond the deduplication window. It runs
// before every attempt, because a process can be frozen for days between two attempts.
func (l *loop) dropExpired(j *job) {
	kept, s := j.parts[:0], l.a.settings.Load()
	for _, p := range j.parts {
		if s.refuses(p) {
			j.completions = nil
			l.refuse(p, beyondWindow+s.Window.String(), true)
			continue
		}
		kept = append(kept, p)
	}
	j.parts = kept
}

// batchOf encodes a batch of only these parts. If the first part follows a head, a copy of the
// head comes first: without it the batch could not be read.
func batchOf(parts ...*part) []byte {
	b := wire.Batch{Time: parts[0].holder.time}
	if head := parts[0].head; head != nil {
		b.Parts = append(b.Parts, head.Part)
	}
	for _, p := range parts {
		b.Parts = append(b.Parts, p.Part)
	}
	return wire.Append(nil, &b)
}
