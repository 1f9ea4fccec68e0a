package pebble

import (
	"context"
	"fmt"
	"sync"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// nexts are the calls of NextValues that wait for the lock of markers. The first of them that gets the
// lock puts all of them into one batch. So calls for many sequences share a sync.
type nexts struct {
	mu      sync.Mutex
	waiting []*next
}

// A next is a call of NextValues.
type next struct {
	sequence string
	takes    []store.Take

	done  chan struct{} // closed when given and err are set
	given []store.Given
	err   error
}

// maxNexts is the most calls of one batch: it bounds the time for which folds wait.
const maxNexts = 256

// NextValues commits the sequence's record and the markers in one synced batch, with other calls that
// wait at the same time. It waits for the disk without a limit once its batch has begun, as Fold does.
func (s *Store) NextValues(ctx context.Context, sequence string, takes []store.Take) ([]store.Given, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.closing.RUnlock()
	if err := checkTakes(takes); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, notApplied(err)
	}
	n := &next{sequence: sequence, takes: takes, done: make(chan struct{})}
	s.nexts.add(n)
	select {
	case <-n.done:
	case s.marking <- struct{}{}:
		s.commitNextsLocked(s.nexts.takeWith(n))
		s.unlockMarking()
	case <-ctx.Done():
		if s.nexts.withdraw(n) {
			return nil, notApplied(ctx.Err())
		}
		<-n.done
	}
	return n.given, n.err
}

func checkTakes(takes []store.Take) error {
	for i := range takes {
		if _, err := epochOf(takes[i].At); err != nil {
			return fmt.Errorf("%w: %w: %w", countmill.ErrUnavailable, store.ErrRefused, err)
		}
	}
	return store.CheckTakes(takes)
}

func (x *nexts) add(n *next) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.waiting = append(x.waiting, n)
}

// takeWith takes the calls of a batch out of the queue. own is among them, unless it is done.
func (x *nexts) takeWith(own *next) []*next {
	x.mu.Lock()
	defer x.mu.Unlock()
	select {
	case <-own.done:
		return nil
	default:
	}
	n := min(len(x.waiting), maxNexts)
	taken := x.waiting[:n:n]
	x.waiting = x.waiting[n:]
	for i, w := range x.waiting {
		if w == own { // its caller cannot wait for another one: it has the lock
			taken = append(taken, own)
			x.waiting = append(x.waiting[:i:i], x.waiting[i+1:]...)
			break
		}
	}
	return taken
}

// withdraw removes a call that no batch has.
func (x *nexts) withdraw(n *next) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, w := range x.waiting {
		if w == n {
			x.waiting = append(x.waiting[:i:i], x.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// commitNextsLocked answers all calls: with their values when the batch is on disk, or with its error.
func (s *Store) commitNextsLocked(calls []*next) {
	if len(calls) == 0 {
		return
	}
	b := s.db.NewBatch()
	defer b.Close()
	err := s.giveLocked(b, calls)
	if err == nil && !b.Empty() {
		// Nobody learns a value before it is on disk: another take would get it after a crash.
		err = s.commit(b)
	}
	for _, n := range calls {
		if err != nil {
			n.given, n.err = nil, err
		}
		close(n.done)
	}
}

// giveLocked plans all calls into a batch. A call whose own data is damaged gets an error, and the others
// get their values. An error of giveLocked itself comes before the commit.
func (s *Store) giveLocked(b *pebbledb.Batch, calls []*next) error {
	if err := s.Writable(); err != nil { // first, because in another directory the markers would be missing too
		return notApplied(err)
	}
	if err := s.sweepDailyLocked(); err != nil {
		return notApplied(err)
	}
	g := giving{Store: s, batch: b, states: make(map[string]store.SequenceState), given: make(map[wire.PartID]store.Given)}
	for _, n := range calls {
		if err := g.plan(n); err != nil {
			n.err = notApplied(err)
			continue
		}
		if err := g.writeLocked(n); err != nil {
			return notApplied(err)
		}
	}
	for name, state := range g.states {
		if err := s.setSequence(b, name, state); err != nil {
			return notApplied(err)
		}
	}
	return nil
}

// giving is a batch with the values that it has given so far. The database does not show them yet.
type giving struct {
	*Store
	batch  *pebbledb.Batch
	states map[string]store.SequenceState
	given  map[wire.PartID]store.Given
	fresh  []int // the takes of the planned call that get new values
	after  store.SequenceState
}

// plan sets the values of a call, and writes nothing.
func (g *giving) plan(n *next) (err error) {
	state, began := g.states[n.sequence]
	if !began {
		if state, err = g.getSequence(n.sequence); err != nil {
			return err
		}
	}
	given := make([]store.Given, len(n.takes))
	g.fresh = g.fresh[:0]
	for i := range n.takes {
		found, exists, err := g.find(n.takes[i].ID)
		if err != nil {
			return err
		}
		if exists {
			given[i] = found
		} else if given[i] = state.Give(n.takes[i].Count); given[i].Count > 0 {
			g.fresh = append(g.fresh, i)
		}
	}
	n.given, g.after = given, state
	return nil
}

func (g *giving) find(id wire.PartID) (store.Given, bool, error) {
	if given, ok := g.given[id]; ok {
		return given, true, nil
	}
	marker, err := g.findMarkerLocked(id)
	if err != nil || marker == nil {
		return store.Given{}, false, err
	}
	given, err := decodeGiven(id, marker)
	return given, true, err
}

// writeLocked inserts the markers of the planned call.
func (g *giving) writeLocked(n *next) error {
	for _, i := range g.fresh {
		t := &n.takes[i]
		e, err := epochOf(t.At)
		if err != nil {
			return err // checkTakes has refused it
		}
		// Before the commit: its outcome may be unknown, and the epoch must be listed if it succeeded.
		g.addEpochLocked(e)
		g.given[t.ID] = n.given[i]
		// Values and markers are one batch: after a crash the disk has both or neither.
		if err := g.batch.Set(g.keys.marker(nil, e, t.ID), encodeGiven(n.given[i], t), nil); err != nil {
			return err
		}
	}
	if len(g.fresh) > 0 {
		g.states[n.sequence] = g.after
	}
	return nil
}
