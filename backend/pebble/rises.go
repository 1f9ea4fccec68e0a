package pebble

import (
	"errors"
	"math"
	"sync"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// rises sums everything that raises sums of counters: of each index apart, of all groups together,
// and of counters whose index is not known here. One process has the directory open, so nothing else raises them.
//
// Each change is in begun before any view can show it, and in done after every later view must. So
//
//	begun at t2 - done at t1
//
// is at least the changes that a view pinned before t2 shows and a view pinned after t1 does not. A
// change whose commit failed stays in begun for ever; the process then ends.
type rises struct {
	mu sync.Mutex
	of map[int64]*rise // by the index's number, anyIndex or allGroups
}

// Numbers that no index has.
const (
	anyIndex  = -1
	allGroups = -2
)

// A rise has the sum of positive changes in 128 bits, because a difference of sums that saturate would
// be too small.
type rise struct {
	begun, done    int128
	started, ended uint64 // changes, also those that raise nothing
}

// A risen is the part of one change that is about an index.
type risen struct {
	index int64
	sum   int128
}

// raised is a change that begins.
type raised []risen

func (r *raised) add(index, by int64) {
	all := *r
	for i := range all {
		if all[i].index == index {
			all[i].sum = all[i].sum.plus(fromInt64(max(by, 0)))
			return
		}
	}
	*r = append(all, risen{index, fromInt64(max(by, 0))})
}

// raisedBy returns the amounts by which a commit raises indexes. The sum of an add's minutes can be more than
// its delta: +5 today and -5 yesterday leave the total as it is, and raise today. Such an add names no index.
func raisedBy(c *store.Commit) (r raised) {
	buckets, grouped := c.Buckets, c.Grouped
	for i := range c.Adds {
		by := max(c.Adds[i].Delta, 0)
		if len(buckets) > 0 && buckets[0].Add == i {
			by, buckets = positive(buckets, by)
		}
		switch {
		case len(grouped) > 0 && grouped[0].Add == i:
			for _, index := range grouped[0].Indexes {
				r.add(index, by)
			}
			grouped = grouped[1:]
		case countmill.IsGroup(c.Adds[i].Counter):
			r.add(allGroups, by)
		case c.Correction, c.Adds[i].Delta == 0:
			r.add(anyIndex, by)
		}
	}
	return r
}

// positive is the sum of the positive buckets of the first add, or the largest int64, and returns the
// buckets of the other adds.
func positive(buckets []store.BucketDelta, least int64) (sum int64, rest []store.BucketDelta) {
	n := 0
	for ; n < len(buckets) && buckets[n].Add == buckets[0].Add; n++ {
		if sum += max(buckets[n].Delta, 0); sum < 0 {
			sum = math.MaxInt64
		}
	}
	return max(sum, least), buckets[n:]
}

// begin comes before the commit of a change.
func (s *rises) begin(r raised) {
	s.each(r, func(to *rise, sum int128) { to.begun, to.started = to.begun.plus(sum), to.started+1 })
}

// end comes after its commit.
func (s *rises) end(r raised) {
	s.each(r, func(to *rise, sum int128) { to.done, to.ended = to.done.plus(sum), to.ended+1 })
}

func (s *rises) each(r raised, change func(to *rise, sum int128)) {
	if len(r) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range r {
		to := s.of[r[i].index]
		if to == nil {
			if s.of == nil {
				s.of = make(map[int64]*rise)
			}
			to = new(rise)
			s.of[r[i].index] = to
		}
		change(to, r[i].sum)
	}
}

// parts are the numbers under which rises of the query are.
func parts(q *store.SumsQuery) [2]int64 {
	if q.Groups {
		return [2]int64{allGroups, anyIndex}
	}
	return [2]int64{q.Index.Number, anyIndex}
}

func (s *rises) mark(q *store.SumsQuery) store.RiseMark {
	s.mu.Lock()
	defer s.mu.Unlock()
	var done int128
	var ended uint64
	for _, n := range parts(q) {
		if r := s.of[n]; r != nil {
			done, ended = done.plus(r.done), ended+r.ended
		}
	}
	return store.RiseMark{Hi: done.hi, Lo: done.lo, Changes: ended}
}

func (s *rises) since(q *store.SumsQuery, m store.RiseMark) store.Rise {
	s.mu.Lock()
	defer s.mu.Unlock()
	most, started := int128{m.Hi, m.Lo}.negative(), uint64(0)
	for _, n := range parts(q) {
		if r := s.of[n]; r != nil {
			most, started = most.plus(r.begun), started+r.started
		}
	}
	rise := store.Rise{Known: true, Most: math.MaxInt64, Changed: started != m.Changes}
	if most.fits64() && int64(most.lo) >= 0 {
		rise.Most = int64(most.lo)
	}
	return rise
}

// commitRaising commits and syncs b, which raises sums.
func (s *Store) commitRaising(b *pebbledb.Batch, r raised) error {
	s.rises.begin(r)
	err := s.commit(b)
	if err == nil || errors.Is(err, store.ErrDeployment) { // which is certainly not applied
		s.rises.end(r)
	}
	return err
}

// Risen bounds the rises in this process, which has the directory alone.
func (s *Store) Risen(q *store.SumsQuery, since store.RiseMark) store.Rise {
	return s.rises.since(q, since)
}
