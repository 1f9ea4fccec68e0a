package sim

import (
	"errors"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A valueOracle checks that each value of a sequence is given once.
type valueOracle struct {
	*World
	greatest map[string]int64                   // the greatest value of each sequence that an answer had
	given    map[wire.PartID]store.Given        // values of the store, by the id of the marker
	owners   map[string]map[int64]*valueRequest // by sequence and value: whose answer had it
	named    map[wire.PartID]*valueRequest      // those with an id
}

func newValueOracle(w *World) *valueOracle {
	return &valueOracle{w, make(map[string]int64), make(map[wire.PartID]store.Given), make(map[string]map[int64]*valueRequest), make(map[wire.PartID]*valueRequest)}
}

// excused reports whether a request may get other values than before: it has no time, and its id may be
// forgotten by now.
func (v *valueOracle) excused(r *valueRequest) bool {
	return r != nil && r.Time.IsZero() && r.jumped != v.jumped
}

// gave sees values that the store gives for the first time.
func (v *valueOracle) gave(name string, id wire.PartID, g store.Given) {
	if before, ok := v.given[id]; ok && !v.excused(v.named[id]) {
		v.violate("the id %s got %d values from %d of %s, and then %d from %d", short(id), before.Count, before.First, name, g.Count, g.First)
	}
	v.given[id] = g
}

// answered takes an answer in: the values of a request are the same each time, nobody else's, and greater than
// all that were answered before the request.
func (v *valueOracle) answered(r *valueRequest, o *op, got countmill.Values) {
	switch {
	case o.p.dead || errors.Is(o.err, countmill.ErrOutcomeUnknown):
		r.unknown = true
		return
	case o.err != nil:
		r.late = r.late || errors.Is(o.err, countmill.ErrIDExpired)
		return
	}
	v.Values++
	v.say(o.p, "op %d gets the values %d to %d of %s", o.n, got.First, got.Last, r.Sequence)
	if int(got.Last-got.First)+1 != r.Count {
		v.violate("request %d for %d values of %s got %d to %d", r.n, r.Count, r.Sequence, got.First, got.Last)
	}
	if r.first > 0 && r.first != got.First && !v.excused(r) {
		v.violate("the id %s got the values from %d of %s, and then from %d", r.ID, r.first, r.Sequence, got.First)
	}
	if got.First <= r.floor {
		v.violate("a request got the value %d of %s, and %d was answered before it began", got.First, r.Sequence, r.floor)
	}
	if r.first == 0 {
		r.first = got.First
	}
	if v.owners[r.Sequence] == nil {
		v.owners[r.Sequence] = make(map[int64]*valueRequest)
	}
	for n := got.First; n <= got.Last; n++ {
		if other := v.owners[r.Sequence][n]; other != nil && other != r {
			v.violate("the value %d of %s was given to requests %d and %d", n, r.Sequence, other.n, r.n)
		}
		v.owners[r.Sequence][n] = r
	}
	v.greatest[r.Sequence] = max(v.greatest[r.Sequence], got.Last)
}

// check: all values of the store have an owner, or a request whose outcome is unknown. A request whose answer was that it has
// none has none.
func (v *valueOracle) check(requests []*valueRequest) {
	left := make(map[wire.PartID]store.Given)
	for id, g := range v.given {
		left[id] = g
	}
	unknown, unnamed := 0, make(map[int64]int)
	for _, r := range requests {
		if r.ID == "" {
			if r.first > 0 {
				unnamed[r.first]++
			} else if r.unknown {
				unknown++
			}
			continue
		}
		id := wire.SequenceID(r.Sequence, r.ID)
		g, ok := v.given[id]
		delete(left, id)
		switch {
		case v.excused(r):
		case r.first > 0 && g.First != r.first:
			v.violate("the id %s of %s got the value %d, and the store gave it %d", r.ID, r.Sequence, r.first, g.First)
		case ok && r.first == 0 && !r.unknown:
			v.violate("the id %s of %s got no values, and the store gave it %d", r.ID, r.Sequence, g.First)
		}
	}
	lost := 0
	for _, g := range left {
		if unnamed[g.First]--; unnamed[g.First] < 0 {
			lost++
		}
	}
	if lost > unknown {
		v.violate("%d values were given to nobody, and the outcomes of %d requests without an id are unknown", lost, unknown)
	}
}
