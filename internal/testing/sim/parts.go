package sim

import (
	"slices"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A partOracle follows each part of a batch: it has a marker, or stays in a dead letter, before its
// message or its dead letter goes.
type partOracle struct {
	*World

	flushed map[string]string // the payload of each message
	marked  map[wire.PartID]bool

	discardedParts     map[wire.PartID]bool           // parts of discarded letters
	forbidden          map[wire.PartID]int            // since which step nobody may count a part
	removedDeadLetters []store.DeadLetter             // letters that were removed and not discarded
	decisions          map[wire.PartID]store.Decision // fingerprints of all markers, also of those that the store has forgotten
}

func newPartOracle(w *World) *partOracle {
	return &partOracle{
		World: w, flushed: make(map[string]string), marked: make(map[wire.PartID]bool),
		discardedParts: make(map[wire.PartID]bool), forbidden: make(map[wire.PartID]int),
		decisions: make(map[wire.PartID]store.Decision),
	}
}

// handedOver: a message keeps its bytes.
func (po *partOracle) handedOver(uuid string, payload []byte) {
	if before, ok := po.flushed[uuid]; ok && before != string(payload) {
		po.violate("message %s has other bytes than before", uuid)
	}
	po.flushed[uuid] = string(payload)
}

// mark notes the part that a marker is of.
func (po *partOracle) mark(m *store.Marker) { po.marked[m.ID] = true }

// acknowledged: a message is acknowledged after each of its parts got a marker or went to a dead
// letter.
func (po *partOracle) acknowledged(d *delivery) {
	if po.embedded || d.message.foreign {
		return
	}
	b, err := d.message.decode()
	if err != nil {
		return
	}
	for i := range b.Parts {
		if id := b.Parts[i].ID; po.marked[id] || po.discardedParts[id] || po.inDeadLetter(id) {
			continue
		}
		po.violate("%s acknowledged message %d with part %s neither applied nor set aside", d.sub.p.name, d.message.n, b.Parts[i].ID)
	}
}

func (po *partOracle) inDeadLetter(id wire.PartID) bool {
	return slices.ContainsFunc(po.db.letters, func(d store.DeadLetter) bool { return slices.Contains(po.db.held[d.Key].ids, id) })
}

// holdPart reports whether a letter holds the part, or the part that it is another id of.
func holdPart(letters []store.DeadLetter, id wire.PartID) bool {
	return slices.ContainsFunc(letters, func(d store.DeadLetter) bool {
		return slices.Contains(idsIn(d), id)
	})
}

// idsIn returns the ids under which the parts of a letter may count.
func idsIn(d store.DeadLetter) (ids []wire.PartID) {
	for _, p := range partsIn(d) {
		ids = append(ids, p.ID, wire.RenewedOf(p.ID, p.Fingerprint()))
	}
	return ids
}

// removing: a dead letter is removed after each of its parts got a marker, or while another dead
// letter holds the part.
func (po *partOracle) removing(p *proc, keys []string) {
	letters := po.db.deadLetters()
	po.discarding(slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return !po.discarded(key) }))
	for _, d := range letters {
		if !slices.Contains(keys, d.Key) {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(letters), func(o store.DeadLetter) bool { return slices.Contains(keys, o.Key) })
		batch, err := decode(d.Payload)
		if err != nil {
			if !slices.ContainsFunc(others, func(o store.DeadLetter) bool { return string(o.Payload) == string(d.Payload) }) {
				po.violate("%s removed a letter that nobody can read: %s", p.name, d.Reason)
			}
			continue
		}
		if po.discarded(d.Key) {
			continue
		}
		po.removedDeadLetters = append(po.removedDeadLetters, d)
		letter, asked := store.ReplayOf(d.Key)
		if !asked {
			po.Replayed++
		} else if slices.ContainsFunc(others, func(o store.DeadLetter) bool { return o.Key == letter }) {
			continue // it stays, and can be asked for again
		}
		for i := range batch.Parts {
			id, renewed := batch.Parts[i].ID, wire.RenewedOf(batch.Parts[i].ID, batch.Parts[i].Fingerprint())
			if !po.marked[id] && !po.marked[renewed] && !po.discardedParts[id] && !holdPart(others, id) && !holdPart(others, renewed) {
				po.violate("%s removed a letter with part %s neither applied nor set aside", p.name, id)
			}
		}
	}
}

// discarding notes the parts of discarded letters that somebody is about to remove.
func (po *partOracle) discarding(keys []string) {
	for _, d := range po.db.deadLetters() {
		if !slices.Contains(keys, d.Key) {
			continue
		}
		if !po.discarded(d.Key) {
			po.removedDeadLetters = append(po.removedDeadLetters, d)
		}
		for _, p := range partsIn(d) {
			po.discardedParts[p.ID], po.discardedParts[wire.RenewedOf(p.ID, p.Fingerprint())] = true, true
		}
	}
}

// discarded reports whether it was decided that no aggregator counts the letter.
func (po *partOracle) discarded(key string) bool {
	letter, _ := store.ReplayOf(key)
	return po.decisions[wire.DeadLetterID(letter)] == store.DecisionDiscarded
}

// forbid notes that a letter was discarded, for good: from here on nobody counts its parts, but
// from another letter, which an aggregator may have read before somebody removed it, or from a
// message that somebody holds or gets.
func (po *partOracle) forbid(d *store.DeadLetter) {
	others := slices.DeleteFunc(append(po.db.deadLetters(), po.removedDeadLetters...), func(o store.DeadLetter) bool {
		letter, _ := store.ReplayOf(o.Key)
		return letter == d.Key
	})
	for _, p := range partsIn(*d) {
		renewed := wire.RenewedOf(p.ID, p.Fingerprint())
		if holdPart(others, p.ID) || holdPart(others, renewed) || po.bus.mayFold(p.ID) {
			continue
		}
		po.forbidden[renewed] = po.Steps
		if !d.IDTaken() { // then it is another's
			po.forbidden[p.ID] = po.Steps
		}
	}
}

// delivered notes that a message is delivered, or becomes a letter: its parts may be counted from
// it.
func (po *partOracle) delivered(l *busMessage) {
	if len(po.forbidden) == 0 {
		return
	}
	for _, id := range l.ids() {
		delete(po.forbidden, id)
	}
}

// applied: a discarded letter stays uncounted. called is when the fold was called.
func (po *partOracle) applied(p *proc, c *store.Commit, called int) {
	for i := range c.Markers {
		if at, ok := po.forbidden[c.Markers[i].ID]; ok && called > at {
			po.violate("%s counted part %s of a letter that was discarded", p.name, c.Markers[i].ID)
		}
	}
	for i := range c.Markers {
		po.mark(&c.Markers[i])
	}
}

// inProcess reports whether a letter that somebody removed may still be counted, by an aggregator
// that had read it before.
func (po *partOracle) inProcess() bool {
	return slices.ContainsFunc(po.removedDeadLetters, func(d store.DeadLetter) bool {
		return slices.ContainsFunc(partsIn(d), func(p wire.Part) bool {
			return !po.marked[p.ID] && !po.marked[wire.RenewedOf(p.ID, p.Fingerprint())]
		})
	})
}
