package sim

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

const (
	// digits is how many increments a counter takes: 4^25 is below countmill.MaxDelta.
	digits = 26
	// poison is a counter whose commits the store refuses for their content.
	poison = "poison"
	// below is a counter of negative deltas.
	below = "below"
)

// A sum is one increment in the ledger.
type sum struct {
	counter string
	digit   int
	least   int  // times that it must have been counted
	most    int  // times that it may have been counted
	group   *int // sums of one group count once together
	reused  bool // another increment came under its id, or its request's key
	renewed bool // it was asked for as new, as that one has its id
	tossed  bool // a letter that it is in was to be discarded
	refused bool // its answer was that another one was counted under its id
}

func (s *sum) delta() int64 {
	d := int64(1) << (2 * s.digit)
	if s.counter == below {
		return -d
	}
	return d
}

// maybe says that its caller was never told.
func (s *sum) maybe() { s.most = 1 }

// durable says that its caller was told so.
func (s *sum) durable() { s.least, s.most = 1, 1 }

// draw takes an increment of a counter into the ledger, nil where it has no digit left.
func (w *World) draw(counter string) *sum {
	n := w.used[counter]
	if n >= digits {
		return nil
	}
	w.used[counter] = n + 1
	s := &sum{counter: counter, digit: n}
	w.ledger = append(w.ledger, s)
	return s
}

// times is how often total holds the increment.
func (s *sum) times(total int64) int {
	if s.counter == below {
		total = -total
	}
	return int(total>>(2*s.digit)) & 3
}

// setAside reports whether a dead letter has the increment; aside is that of letterSums.
func (s *sum) setAside(aside map[string][]int64) bool {
	return slices.ContainsFunc(aside[s.counter], func(delta int64) bool { return s.times(delta) > 0 })
}

// letterSums are what dead letters hold of each counter: the sums of all, and of those
// that say that they were certainly not applied.
func letterSums(letters []store.DeadLetter) map[string][]int64 {
	sums := make(map[string][]int64)
	for _, d := range letters {
		for _, p := range partsIn(d) {
			for _, e := range p.Entries {
				sums[e.Counter] = append(sums[e.Counter], e.Delta)
			}
		}
	}
	return sums
}

// partsIn are the parts that a dead letter is about: all of a message that was not read, else
// not the head that stands before one that follows it.
func partsIn(d store.DeadLetter) []wire.Part {
	if e, ok := foreignEntry(d.Payload); ok {
		return []wire.Part{{Entries: []wire.Entry{e}}}
	}
	b, err := decode(d.Payload)
	if err != nil {
		return nil
	}
	if d.Reason == givenUp {
		return b.Parts
	}
	if head := &b.Parts[0]; head.Kind == wire.Head && d.Source != head.ID.String() {
		return b.Parts[1:]
	}
	return b.Parts
}

// foreignEntry returns the increment of a message that no publisher made (oddMessage).
func foreignEntry(payload []byte) (e wire.Entry, ok bool) {
	var inc struct {
		Counter string
		Delta   int64
	}
	err := json.Unmarshal(payload, &inc)
	return wire.Entry{Counter: inc.Counter, Delta: inc.Delta}, err == nil
}

// check compares the ledger with the store, when all has come to rest.
func (w *World) check() {
	totals := w.folded
	letters := w.db.fake.Letters()
	aside := letterSums(letters)
	type group struct{ times int }
	groups := make(map[*int]*group)
	for _, s := range w.ledger {
		times := s.times(totals[s.counter])
		inLetter := s.setAside(aside)
		switch {
		case times > s.most:
			w.violate("increment %d of %s was counted %d times, at most %d", s.digit, s.counter, times, s.most)
		case times < s.least && !inLetter && !s.tossed:
			w.violate("increment %d of %s was counted %d times, at least %d, and no dead letter has it", s.digit, s.counter, times, s.least)
		}
		if s.group != nil && !s.renewed {
			g := groups[s.group]
			if g == nil {
				g = &group{}
				groups[s.group] = g
			}
			if g.times += times; g.times > 1 {
				w.violate("increment %d of %s: of one id %d were counted", s.digit, s.counter, g.times)
			}
		}
	}
	for counter, total := range totals {
		w.checkRest(counter, total)
	}
	w.checkRemoved()
	w.checkRivals(totals)
	w.checkRefused(totals)
	w.checkLetters(letters, totals)
}

// checkRest finds what nobody sent.
func (w *World) checkRest(counter string, total int64) {
	if w.crowd.is(counter) {
		return
	}
	if strings.HasPrefix(counter, flooded) {
		w.checkFlood(counter, total)
		return
	}
	if counter == below {
		total = -total
	}
	if total < 0 || total>>(2*w.used[counter]) != 0 {
		w.violate("the total of %s is %d: more than was ever sent", counter, total)
	}
}

// checkLetters: what can never be counted stands there, and nothing is refused for the
// content of another part.
func (w *World) checkLetters(letters []store.DeadLetter, totals map[string]int64) {
	payloads := make(map[string]bool)
	for _, d := range letters {
		payloads[string(d.Payload)] = true
		parts := partsIn(d)
		w.checkLetter(&d, parts, totals)
		w.checkYoung(&d, parts)
		if len(parts) > 0 && len(d.Reason) > 4 && d.Reason[:4] == "sim:" && !hasPoison(parts) {
			w.violate("a dead letter holds parts that the store did not refuse: %s", d.Reason)
		}
	}
	for _, payload := range w.garbage {
		if !payloads[payload] {
			w.violate("a message of %d bytes that nobody can read is in no dead letter", len(payload))
		}
	}
}

func hasPoison(parts []wire.Part) bool { return hasCounter(parts, poison) }

func hasCounter(parts []wire.Part, counter string) bool {
	for _, p := range parts {
		for _, e := range p.Entries {
			if e.Counter == counter {
				return true
			}
		}
	}
	return false
}

// checkAck: a message is acknowledged when each of its parts has a marker or stands in a
// dead letter.
func (w *World) checkAck(d *delivery) {
	if w.embedded || d.parcel.foreign {
		return
	}
	b, err := decode(d.parcel.payload)
	if err != nil {
		return
	}
	for i := range b.Parts {
		if id := b.Parts[i].ID; w.marked[id] || w.tossed[id] || w.inLetter(id) {
			continue
		}
		w.violate("%s acknowledged message %d with part %s neither applied nor set aside", d.sub.p.name, d.parcel.n, b.Parts[i].ID)
	}
}

func (w *World) inLetter(id wire.PartID) bool {
	return holdPart(w.db.fake.Letters(), id)
}

// checkSealed: a message keeps its bytes.
func (w *World) checkSealed(uuid string, payload []byte) {
	if before, ok := w.sealed[uuid]; ok && before != string(payload) {
		w.violate("message %s has other bytes than before", uuid)
	}
	w.sealed[uuid] = string(payload)
}
