package aggregator

import (
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/wire"
)

// receive takes a message in: its parts go into the window, or it becomes a dead letter.
func (l *loop) receive(m *message.Message) {
	h := &held{msg: m, source: sourceOf(m), bytes: len(m.Payload), time: l.a.clock.Now()}
	published, err := publishedAt(m)
	if err == nil {
		h.time = published
	}
	l.a.stats.messages.Add(1)
	batch, err := l.a.decode(m)
	if err != nil {
		l.hold(h)
		l.refuseMessage(h, m.Payload, err)
		return
	}
	l.take(h, batch, published, l.a.cfg.SkipAnonymousMarkers)
}

func (l *loop) hold(h *held) {
	l.holding[h] = struct{}{}
	l.heldBytes += h.bytes
}

// take puts the parts of a batch that h holds into the window. published is the broker's
// time of it, zero where there is none.
func (l *loop) take(h *held, batch *wire.Batch, published time.Time, skipAnonymous bool) {
	l.hold(h)
	h.time, h.born = batch.Time, batch.Time
	if !published.IsZero() && published.Before(h.born) {
		h.born = published // the publisher's clock is ahead
	}
	h.open = len(batch.Parts)
	if h.open == 0 { // JSON whose increments cancel out
		h.open = 1
		l.done(h)
		return
	}
	l.a.stats.parts.Add(int64(len(batch.Parts)))
	before := len(l.window.parts)
	for _, p := range partsOf(batch, h, published, skipAnonymous, l.a.cfg.Env.Uint64) {
		l.admit(p)
	}
	if len(l.window.parts) > before { // a message of copies is none of the window's
		l.window.messages++
		l.window.bytes += h.bytes
	}
}

// admit puts a part into the window, unless its id is in process already. A part id is
// never in two commits under way.
func (l *loop) admit(p *part) {
	stored := l.a.clock.Now()
	if p.at.After(stored.Add(wire.MaxAhead)) {
		l.refuse(p, "time is more than 24h ahead", false)
		return
	}
	if p.marked {
		if first, ok := l.known[p.ID]; ok {
			if first.fingerprint != p.fingerprint {
				first.rivals = append(first.rivals, p)
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

// done takes one settled part off a message, and acknowledges it after the last.
func (l *loop) done(h *held) {
	h.open--
	if h.open > 0 {
		return
	}
	delete(l.holding, h)
	l.heldBytes -= h.bytes
	if h.letter != "" {
		l.replay.settled(h)
		return
	}
	h.msg.Ack()
}

// follow lets the followers of a head that was applied into the window.
func (l *loop) follow(head *part) {
	for _, p := range head.followers {
		l.admit(p)
	}
	head.followers = nil
}

// forget ends the process of a part; rivals that waited for it have their turn.
func (l *loop) forget(p *part) {
	if !p.marked || l.known[p.ID] != p {
		return
	}
	delete(l.known, p.ID)
	for _, rival := range p.rivals {
		l.admit(rival)
	}
	p.rivals = nil
}

// expired reports whether the part is beyond the horizon: its marker may be forgotten,
// so it can no longer be told from a duplicate, and its dead letter says maybe applied.
func (a *Aggregator) expired(p *part, now time.Time) bool {
	return now.After(p.from.Add(a.cfg.Horizon))
}

// dropExpired sets the parts of a job aside that are beyond the horizon. It is asked
// before every attempt: a process can be frozen for days between two of them.
func (l *loop) dropExpired(j *job) {
	kept, now := j.parts[:0], l.a.clock.Now()
	for _, p := range j.parts {
		if l.a.expired(p, now) {
			l.refuse(p, "older than the horizon of "+l.a.cfg.Horizon.String(), true)
			continue
		}
		kept = append(kept, p)
	}
	j.parts = kept
}

// batchOf is a batch that holds only these parts, and a copy of the head where the
// first follows one: without it the batch could not be read again.
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
