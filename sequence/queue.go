package sequence

import (
	"fmt"
	"slices"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A queue has the calls for one sequence, in their order. One transaction of it runs at a time.
type queue struct {
	sequence string
	waiting  []*call
	// busy: the queue is ready, or its transaction runs, or it pauses before the next one.
	busy     bool
	failures int // in a row
}

// A call is one Next. The fields after done are guarded by Issuer.mu until done is closed, or its caller has left.
type call struct {
	take  store.Take
	asked time.Time // NextRequest.Time

	done  chan struct{} // closed when given and err are set
	given store.Given
	err   error

	last   error // of the last transaction that had it
	trying bool  // a transaction has it
	maybe  bool  // an earlier transaction had it, with an unknown outcome
	gone   bool  // its caller has left
}

// answered reports whether the call has its answer. Its caller sees it when done is closed.
func (c *call) answered() bool { return c.given.Count > 0 || c.err != nil }

// enter puts a call into the queue of its sequence.
func (x *Issuer) enter(sequence string, c *call) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return fmt.Errorf("sequence %q: %w", sequence, countmill.ErrClosed)
	}
	l := x.queues[sequence]
	switch {
	case x.waiting >= x.cfg.MaxCalls:
		return fmt.Errorf("%w: %d calls for values of sequences wait (limit: %d)", countmill.ErrOverloaded, x.waiting, x.cfg.MaxCalls)
	case l != nil && len(l.waiting) >= x.cfg.MaxCallsOfOne:
		return fmt.Errorf("%w: %d calls for values of sequence %q wait (limit: %d)", countmill.ErrOverloaded, len(l.waiting), sequence, x.cfg.MaxCallsOfOne)
	case l == nil:
		l = &queue{sequence: sequence}
		x.queues[sequence] = l
	}
	l.waiting = append(l.waiting, c)
	x.waiting++
	if !l.busy {
		l.busy = true
		x.queueLocked(l)
	}
	return nil
}

// queueLocked gives the queue a turn, after the queues that wait longer.
func (x *Issuer) queueLocked(l *queue) {
	x.ready = append(x.ready, l)
	if x.running < x.cfg.Transactions {
		x.running++
		x.cfg.env.Go(x.work)
	}
}

// work runs transactions of the queues that are ready, one of each in turn, until none is.
func (x *Issuer) work() {
	for {
		x.mu.Lock()
		if len(x.ready) == 0 {
			x.running--
			x.endLocked()
			x.mu.Unlock()
			return
		}
		l := x.ready[0]
		x.ready = x.ready[1:]
		batch := x.beginLocked(l)
		x.mu.Unlock()
		var failed error
		if len(batch) > 0 {
			failed = x.attempt(l.sequence, batch)
		}
		x.finish(l, batch, failed)
	}
}

// beginLocked takes the calls of the next transaction out of the queue. Of two calls with one id the
// second waits for the next transaction, which finds the marker.
func (x *Issuer) beginLocked(l *queue) (batch []*call) {
	taken := make(map[wire.PartID]bool)
	l.waiting = slices.DeleteFunc(l.waiting, func(c *call) bool {
		if len(batch) == store.MaxTakes || taken[c.take.ID] {
			return false
		}
		taken[c.take.ID], c.trying = true, true
		batch = append(batch, c)
		return true
	})
	x.waiting -= len(batch)
	return batch
}

// finish ends a turn of the queue. The calls that have no answer are repeated after a pause, before the
// calls that came later.
func (x *Issuer) finish(l *queue, batch []*call, failed error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var again []*call
	for _, c := range batch {
		c.trying = false
		switch {
		case c.gone:
		case c.answered():
			close(c.done)
		default:
			again = append(again, c)
		}
	}
	l.waiting = append(again, l.waiting...)
	x.waiting += len(again)
	if failed == nil {
		l.failures = 0
	} else {
		l.failures++
	}
	switch {
	case len(l.waiting) == 0:
		l.busy = false
		delete(x.queues, l.sequence)
	case failed == nil:
		x.ready = append(x.ready, l) // this worker goes on
	default:
		x.pauseLocked(l)
	}
}

// pauseLocked gives the queue its next turn later: another process may be at the same sequence. A pausing queue
// holds up no other one.
func (x *Issuer) pauseLocked(l *queue) {
	time.AfterFunc(x.backoff(l.failures), func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.queueLocked(l)
	})
}

func (x *Issuer) backoff(failures int) time.Duration {
	return x.cfg.env.Backoff(failures, 10*time.Millisecond, 2*time.Second)
}

// leave ends a call whose context has ended. A call that has its answer keeps it. Its answer does
// not change any more.
func (x *Issuer) leave(sequence string, c *call, cause error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c.answered() {
		return
	}
	if l := x.queues[sequence]; l != nil && !c.trying {
		if i := slices.Index(l.waiting, c); i >= 0 {
			l.waiting = slices.Delete(l.waiting, i, i+1)
			x.waiting--
		}
	}
	c.gone = true
	switch {
	case c.trying || c.maybe:
		c.err = fmt.Errorf("%w: %v (last error: %v)", countmill.ErrOutcomeUnknown, cause, c.last) // not %w: it says less
	case c.last != nil:
		c.err = fmt.Errorf("%w: %w (last error: %w)", countmill.ErrUnavailable, cause, c.last)
	default:
		c.err = fmt.Errorf("%w: %w", countmill.ErrUnavailable, cause)
	}
}
