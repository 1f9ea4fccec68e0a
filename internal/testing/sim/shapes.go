package sim

import (
	"slices"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A Shape is something that has to happen in some schedules, and that no single fault brings about.
type Shape int

// The shapes.
const (
	KeyInTwoMessages Shape = iota
	SweptBeforeCommit
	BehindReusedIDs
	BehindUnreadable
	BehindBulk

	shapeCount
)

var shapeNames = [shapeCount]string{
	"request with a key in two messages", "counter swept between a look-up and a commit",
	"counted behind reused ids", "counted behind unreadable messages", "counted behind a bulk request",
}

func (s Shape) String() string { return shapeNames[s] }

// requests are the parts of each request with a key that were published, by its head's use.
type requests map[wire.Use]map[wire.PartID]bool

// noteParts counts the messages that have some parts of a request with a key and lack others.
func (w *World) noteParts(payload []byte) {
	b, err := decode(payload)
	if err != nil {
		return
	}
	here := make(map[wire.Use]int)
	var head wire.Use
	for i := range b.Parts {
		p := &b.Parts[i]
		switch {
		case p.Kind == wire.Head:
			head = wire.Use{ID: p.ID, Fingerprint: p.Fingerprint()}
		case p.Kind.Follows():
			here[head]++
			w.requests.add(head, p.ID)
		}
	}
	for use, n := range here {
		if n < len(w.requests[use]) {
			w.Shapes[KeyInTwoMessages]++
		}
	}
}

func (r requests) add(head wire.Use, id wire.PartID) {
	if r[head] == nil {
		r[head] = make(map[wire.PartID]bool)
	}
	r[head][id] = true
}

// noteLookUp notes in which step p found the records of counters, unless it knew them before.
func (db *database) noteLookUp(p *proc, counters []string, shards []int) {
	for i, c := range counters {
		if _, ok := p.looked[c]; !ok && shards[i] > 0 {
			p.looked[c] = db.Steps
		}
	}
}

// noteCommit counts the commits of p to counters that were swept since it found their records or
// committed to them.
func (db *database) noteCommit(p *proc, c *store.Commit) {
	for _, a := range c.Adds {
		if at, ok := p.looked[a.Counter]; ok && db.swept[a.Counter] > at {
			db.Shapes[SweptBeforeCommit]++
		}
		p.looked[a.Counter] = db.Steps
	}
}

// noteSweep notes which of the counters a sweep removed.
func (db *database) noteSweep(had []string) {
	for _, c := range had {
		if !db.fake.Recorded(c) {
			db.swept[c] = db.Steps
		}
	}
}

// recorded are the counters that have records, also deleted ones.
func (db *database) recorded() []string {
	return slices.DeleteFunc(slices.Clone(counters), func(c string) bool { return !db.fake.Recorded(c) })
}
