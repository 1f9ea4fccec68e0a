package loadsim

import (
	"time"

	"github.com/countmill/countmill/internal/shards"
)

// An entity is one shard, or a record.
type entity struct {
	// due is when it will have caught up with everything that it has taken.
	due   time.Duration
	tally int64
	// shards is the largest number of shards that a committer went by.
	shards int32
}

// A store allows each entity Rate writes a second and Burst at once. An early write
// waits, and a commit that would wait for longer than Patience is aborted: nothing of it is
// applied. A waiting commit does not block others.
type store struct {
	Store
	gap      time.Duration
	counters [][]entity // shards by counter, and by group behind them
	records  []record
	every    time.Duration // between two writes of an entity
	depth    time.Duration // how far due may be ahead
}

// A record is a counter's.
type record struct {
	entity
	shards int
	raised time.Duration // when; 0 for never
}

func newStore(s *Setup, start int) *store {
	all := s.groups().all()
	st := &store{Store: s.Store, gap: s.Gap, counters: make([][]entity, all), records: make([]record, all)}
	st.every = time.Duration(float64(time.Second) / s.Store.Rate)
	st.depth = time.Duration((s.Store.Burst - 1) * float64(st.every))
	for i := range st.counters {
		st.grow(i, start)
	}
	return st
}

func (st *store) grow(counter, shards int) {
	for len(st.counters[counter]) < shards {
		st.counters[counter] = append(st.counters[counter], entity{})
	}
	st.records[counter].shards = max(st.records[counter].shards, shards)
}

// wait is how long a write at that moment has to wait for the entity.
func (st *store) wait(e *entity, at time.Duration) time.Duration {
	return max(e.due-st.depth-at, 0)
}

func (st *store) take(e *entity, at time.Duration) {
	e.due = max(e.due, at) + st.every
	e.tally = max(e.tally, shards.Floor(epoch.Add(at))) + 1
}

// commit adds to one shard of each counter, or to none. It returns how long it takes, and
// puts the answers of the shards into the adds.
func (st *store) commit(adds []add, entities int, at time.Duration) (took time.Duration, ok bool) {
	took = st.Latency + time.Duration(entities)*st.PerEntity
	var longest time.Duration
	for i := range adds {
		a := &adds[i]
		longest = max(longest, st.wait(&st.counters[a.counter][a.shard], at))
	}
	if longest > st.Patience {
		return took + st.Patience, false
	}
	for i := range adds {
		a := &adds[i]
		e := &st.counters[a.counter][a.shard]
		st.take(e, at)
		e.shards = max(e.shards, a.n)
		a.tally, a.known = e.tally, e.shards
	}
	return took + longest, true
}

// raise makes a counter's record name at least that many shards, and returns how many it
// names then, and whether it was written. With a gap it reads the record and writes it only where
// that names fewer, and was not raised a short while ago.
func (st *store) raise(counter, shards int, at time.Duration) (int, bool) {
	r := &st.records[counter]
	if st.gap > 0 && (r.shards >= shards || r.raised > 0 && at < r.raised+st.gap) {
		return r.shards, false
	}
	if st.wait(&r.entity, at) > st.Patience {
		return 0, false
	}
	st.take(&r.entity, at)
	r.raised = at
	st.grow(counter, shards)
	return r.shards, true
}
