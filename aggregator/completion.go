package aggregator

import (
	"cmp"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A message that somebody may have a receipt for (wire.Receipt) has a completion marker, here called its completion.
// It is a marker that is inserted when all other parts of the message are settled. It goes into the commit of the last
// of them if that commit has all that are left, and otherwise into the next commit:
//
//	message with parts 1 2 3
//	one job has 1 2 3       its commit has the markers 1 2 3 and the completion
//	two jobs, 1 2 and 3     the completion waits until both are applied
//	3 is refused            the completion waits until 3 is durably in a dead letter, and says so
//
// A message that is only one anonymous part needs no completion: the part's marker says the same. An
// identified part is not enough, because its marker may be another message's.

// completionOf returns the id of the message's completion; zero if nobody can have a receipt. batch is nil if the
// message cannot be read.
func (a *Aggregator) completionOf(m *message.Message, batch *wire.Batch) wire.PartID {
	id := m.Metadata.Get(wire.MetaBrokerID)
	switch {
	case wire.ReplyOf(m.Context()) != nil: // its publisher waits for the acknowledgement
	case wire.IsJSON(m.Payload) && id != "":
		return wire.ForeignHash(cmp.Or(m.Metadata.Get(wire.MetaTopic), a.cfg.Topic), id).Completion(0)
	case batch != nil:
		return flushCompletion(batch)
	}
	return wire.PartID{}
}

// flushCompletion is the completion of a message of a publisher.
func flushCompletion(batch *wire.Batch) (id wire.PartID) {
	if batch.Flush != (wire.FlushID{}) {
		id = batch.Flush.Hash().Completion(batch.Number)
	}
	return id
}

func (p *part) isCompletion() bool { return p.ID.Class() == wire.CompletionClass }

// needsCompletion reports whether the message's completion is yet to be inserted. A single part in a dead letter has
// no marker.
func (h *held) needsCompletion() bool {
	return h.completionID != (wire.PartID{}) && !h.completed && (!h.single || h.deadLettered)
}

// completionFor returns the completion of a message.
func (l *loop) completionFor(h *held) *part {
	if h.completion == nil {
		h.completion = &part{Part: wire.Part{ID: h.completionID}, holder: h, at: h.time, from: earlier(h.time, h.born), marked: true, fold: l.a.cfg.env.Uint64()}
	}
	if h.completion.fingerprint = store.CompletionCounted; h.deadLettered {
		h.completion.fingerprint = store.CompletionDeadLettered
	}
	return h.completion
}

// ride lets the completions of the messages commit with the job, if it has all of their parts that are not
// settled.
func (l *loop) ride(j *job) {
	here := make(map[*held]int)
	var holders []*held // the keys of here, in order
	for _, p := range j.parts {
		if p.isCompletion() {
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
		// A part in another job, or a part waiting for its head or its letter, is not settled here.
		if here[h] < h.open || !h.needsCompletion() {
			continue
		}
		if limit > 0 && j.entities >= limit || h.time.After(stored.Add(store.MaxAhead)) {
			continue
		}
		t := l.completionFor(h)
		if first, ok := l.known[t.ID]; ok && first != t {
			continue // the same message came twice
		}
		l.known[t.ID] = t
		j.completions, j.entities = append(j.completions, t), j.entities+1
	}
}

// admitCompletion lets the completion of a message be committed: every other part is settled.
func (l *loop) admitCompletion(h *held) {
	h.open = 1
	t, stored := l.completionFor(h), l.a.clock.Now()
	if h.time.After(stored.Add(store.MaxAhead)) { // its parts were refused, too
		l.dropCompletion(t)
		return
	}
	if first, ok := l.known[t.ID]; ok && first != t {
		c := first.with()
		c.holders = append(c.holders, h)
		return
	}
	l.known[t.ID] = t
	l.completions = append(l.completions, t)
}

// packCompletions makes jobs of the completions, unless a commit is under way: when it ends, more of them may be
// ready. A window that closes before that takes them.
func (l *loop) packCompletions() bool {
	if len(l.completions) == 0 || l.running > 0 || l.isAway() {
		return false
	}
	l.jobs = append(l.jobs, l.pack(l.takeCompletions())...)
	return true
}

func (l *loop) takeCompletions() []*part {
	completions := l.completions
	l.completions = nil
	return completions
}

// completionApplied ends a completion that was committed with other parts of its message, or was found. Its
// message is settled with those parts.
func (l *loop) completionApplied(t *part) {
	t.endCompletion()
	l.forget(t)
	if t.company == nil {
		return
	}
	for _, h := range t.company.holders { // of further copies: they wait for nothing else
		l.done(h)
	}
}

// dropCompletion gives a completion up: the store refuses it, or its message is beyond the deduplication window.
// A caller with its receipt learns that the receipt has expired.
func (l *loop) dropCompletion(t *part) {
	t.endCompletion()
	l.forget(t)
	t.eachHolder(l.done)
}

// endCompletion notes that the messages wait for their completion no longer.
func (p *part) endCompletion() {
	if p.isCompletion() {
		p.eachHolder(func(h *held) { h.completed = true })
	}
}

// dropCompletions takes the completions off that were found: another aggregator has inserted them, or an earlier
// try of this job.
func (o *outcome) dropCompletions(found map[wire.PartID]store.Marker) {
	var left []*part
	for _, t := range o.completions {
		if _, ok := found[t.ID]; ok {
			o.completed = append(o.completed, t)
			continue
		}
		left = append(left, t)
	}
	o.completions = left
}

// note adds a part of the letter to the DeadLetterRef of a message that holds it.
func (d *deadLetter) note(h *held, p *part) {
	if h.completionID == (wire.PartID{}) {
		return
	}
	i := slices.IndexFunc(d.refs, func(a store.DeadLetterRef) bool { return a.Completion == h.completionID })
	if i < 0 {
		i = len(d.refs)
		d.refs = append(d.refs, store.DeadLetterRef{Completion: h.completionID, At: h.time})
	}
	d.refs[i].Parts = append(d.refs[i].Parts, store.DeadLetterPart{ID: p.ID, Fingerprint: p.Fingerprint()})
}

// wholeDeadLetterRef is the DeadLetterRef of a message that cannot be read.
func wholeDeadLetterRef(h *held) []store.DeadLetterRef {
	if h.completionID == (wire.PartID{}) {
		return nil
	}
	return []store.DeadLetterRef{{Completion: h.completionID, At: h.time}}
}

// refsOf are the DeadLetterRefs of letters that become one.
func (a *Aggregator) refsOf(letters []*deadLetter, key string) (all []store.DeadLetterRef) {
	places := make(map[wire.PartID]int)
	now, s := a.clock.Now(), a.settings.Load()
	for _, d := range letters {
		for _, x := range d.refs {
			i, ok := places[x.Completion]
			if !ok {
				places[x.Completion], i = len(all), len(all)
				all = append(all, store.DeadLetterRef{Completion: x.Completion, Key: key, At: later(x.At, now), ExpireAt: s.Expiry(now, x.At)})
			}
			all[i].Parts = append(all[i].Parts, x.Parts...)
		}
	}
	for i := range all {
		if len(all[i].Parts) > store.MaxDeadLetterRefParts {
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
