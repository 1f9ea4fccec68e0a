package sim

import (
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
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
	ReadBeside

	shapeCount
)

var shapeNames = [shapeCount]string{
	"request with a key in two messages", "counter swept between a look-up and a commit",
	"counted behind reused ids", "counted behind unreadable messages", "counted behind a bulk request",
	"total of another database on the cache",
}

func (s Shape) String() string { return shapeNames[s] }

// noteLookUp notes in which step p found the records of counters, unless it knew them before.
func (db *database) noteLookUp(p *proc, keys []engine.Key) {
	for _, key := range keys {
		if _, ok := p.looked[key.Name]; !ok && key.Kind == kindRecord && db.shardsNamed(key.Name) > 0 {
			p.looked[key.Name] = db.Steps
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
