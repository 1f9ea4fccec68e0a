package aggregator

import (
	"cmp"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A message that somebody may have a receipt for (wire.Receipt) has a tail: a marker that is inserted
// when all its other parts are settled. It goes into the commit of the last of them if that commit has
// all that are left, and otherwise into the next commit:
//
//	message with parts 1 2 3
//	one job has 1 2 3       its commit has the markers 1 2 3 and the tail
//	two jobs, 1 2 and 3     the tail waits until both are applied
//	3 is refused            the tail waits until 3 is durably in a dead letter, and says so
//
// A message that is only one anonymous part needs no tail: the part's marker says the same. An
// identified part is not enough, because its marker may be another message's.

// tailOf returns the id of the message's tail; zero if nobody can have a receipt. batch is nil if the
// message cannot be read.
func (a *Aggregator) tailOf(m *message.Message, batch *wire.Batch) wire.PartID {
	id := m.Metadata.Get(wire.MetaBrokerID)
	switch {
	case wire.ReplyOf(m.Context()) != nil: // its publisher waits for the acknowledgement
	case isJSON(m.Payload) && id != "":
		return wire.ForeignHash(cmp.Or(m.Metadata.Get(wire.MetaTopic), a.cfg.Topic), id).Tail(0)
	case batch != nil:
		return sealTail(batch)
	}
	return wire.PartID{}
}

// sealTail is the tail of a message of a publisher.
func sealTail(batch *wire.Batch) (id wire.PartID) {
	if batch.Seal != (wire.SealID{}) {
		id = batch.Seal.Hash().Tail(batch.Number)
	}
	return id
}

func (p *part) isTail() bool { return p.ID.Class() == wire.TailClass }

// needsTail reports whether the message's tail is yet to be inserted. A sole part in a dead letter has
// no marker.
func (h *held) needsTail() bool {
	return h.tailID != (wire.PartID{}) && !h.tailed && (!h.sole || h.aside)
}

// tailFor returns the tail of a message.
func (l *loop) tailFor(h *held) *part {
	if h.tail == nil {
		h.tail = &part{Part: wire.Part{ID: h.tailID}, holder: h, at: h.time, from: earlier(h.time, h.born), marked: true, fold: l.a.cfg.env.Uint64()}
	}
	if h.tail.fingerprint = store.TailCounted; h.aside {
		h.tail.fingerprint = store.TailAside
	}
	return h.tail
}

// ride lets the tails of the messages commit with the job, if it has all of their parts that are not
// settled.
func (l *loop) ride(j *job) {
	here := make(map[*held]int)
	var holders []*held // the keys of here, in order
	for _, p := range j.parts {
		if p.isTail() {
			continue
		}
		p.eachHolder(func(h *held) {
			if here[h]++; here[h] == 1 {
				holders = append(holders, h)
			}
		})
	}
	limit, stored := l.a.limits.Entities, l.a.clock.Now()
	for _, h := range holders {
		// A part in another job, or one that waits for its head or for its letter, is not settled here.
		if here[h] < h.open || !h.needsTail() {
			continue
		}
		if limit > 0 && j.entities >= limit || h.time.After(stored.Add(store.MaxAhead)) {
			continue
		}
		t := l.tailFor(h)
		if first, ok := l.known[t.ID]; ok && first != t {
			continue // the same message came twice
		}
		l.known[t.ID] = t
		j.tails, j.entities = append(j.tails, t), j.entities+1
	}
}

// admitTail lets the tail of a message be committed: every other part is settled.
func (l *loop) admitTail(h *held) {
	h.open = 1
	t, stored := l.tailFor(h), l.a.clock.Now()
	if h.time.After(stored.Add(store.MaxAhead)) { // its parts were refused, too
		l.dropTail(t)
		return
	}
	if first, ok := l.known[t.ID]; ok && first != t {
		c := first.with()
		c.holders = append(c.holders, h)
		return
	}
	l.known[t.ID] = t
	l.tails = append(l.tails, t)
}

// packTails makes jobs of the tails, unless a commit is under way: when it ends, more of them may be
// ready. A window that closes before that takes them.
func (l *loop) packTails() bool {
	if len(l.tails) == 0 || l.running > 0 || l.isAway() {
		return false
	}
	l.jobs = append(l.jobs, l.pack(l.takeTails())...)
	return true
}

func (l *loop) takeTails() []*part {
	tails := l.tails
	l.tails = nil
	return tails
}

// tailApplied ends a tail that was committed with other parts of its message, or was found. Its
// message is settled with those parts.
func (l *loop) tailApplied(t *part) {
	t.endTail()
	l.forget(t)
	if t.company == nil {
		return
	}
	for _, h := range t.company.holders { // of further copies: they wait for nothing else
		l.done(h)
	}
}

// dropTail gives a tail up: the store refuses it, or its message is beyond the deduplication window.
// Whoever has its receipt learns that the receipt has expired.
func (l *loop) dropTail(t *part) {
	t.endTail()
	l.forget(t)
	t.eachHolder(l.done)
}

// endTail notes that the messages wait for their tail no longer.
func (p *part) endTail() {
	if p.isTail() {
		p.eachHolder(func(h *held) { h.tailed = true })
	}
}

// dropTails takes the tails off that were found: another aggregator has inserted them, or an earlier
// try of this job.
func (o *outcome) dropTails(found map[wire.PartID]store.Marker) {
	var left []*part
	for _, t := range o.tails {
		if _, ok := found[t.ID]; ok {
			o.tailed = append(o.tailed, t)
			continue
		}
		left = append(left, t)
	}
	o.tails = left
}

// note adds a part of the letter to the Aside of a message that holds it.
func (d *deadLetter) note(h *held, p *part) {
	if h.tailID == (wire.PartID{}) {
		return
	}
	i := slices.IndexFunc(d.asides, func(a store.Aside) bool { return a.Tail == h.tailID })
	if i < 0 {
		i = len(d.asides)
		d.asides = append(d.asides, store.Aside{Tail: h.tailID, At: h.time})
	}
	d.asides[i].Parts = append(d.asides[i].Parts, store.AsidePart{ID: p.ID, Fingerprint: p.Fingerprint()})
}

// wholeAside is the Aside of a message that cannot be read.
func wholeAside(h *held) []store.Aside {
	if h.tailID == (wire.PartID{}) {
		return nil
	}
	return []store.Aside{{Tail: h.tailID, At: h.time}}
}

// asidesOf are the Asides of letters that become one.
func (a *Aggregator) asidesOf(letters []*deadLetter, key string) (all []store.Aside) {
	places := make(map[wire.PartID]int)
	now, s := a.clock.Now(), a.settings.Load()
	for _, d := range letters {
		for _, x := range d.asides {
			i, ok := places[x.Tail]
			if !ok {
				places[x.Tail], i = len(all), len(all)
				all = append(all, store.Aside{Tail: x.Tail, Letter: key, At: later(x.At, now), ExpireAt: s.Expiry(now, x.At)})
			}
			all[i].Parts = append(all[i].Parts, x.Parts...)
		}
	}
	for i := range all {
		if len(all[i].Parts) > store.MaxAsideParts {
			all[i].Parts = nil
		}
	}
	return all
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
