package sim

import (
	"context"
	"errors"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/publisher"
)

// send lets a client send increments through p.
func (cs *clients) send(o *op, p *proc) {
	cs.ask(o, p, func(ctx context.Context) (err error) {
		if o.n%3 == 0 {
			ctx = publisher.WithSender(ctx, "sender")
		}
		switch {
		case !o.past.IsZero():
			o.sent, err = p.pub.PublishPast(ctx, o.past, "", o.key, o.incs...)
			return err
		case o.key != "":
			o.sent, err = p.pub.PublishKeyed(ctx, "", o.key, o.incs...)
			return err
		}
		o.sent, err = p.pub.Publish(ctx, o.incs...)
		return err
	})
}

// finishSend takes in an answer to a request with increments.
func (cs *clients) finishSend(o *op) {
	switch {
	case o.p.dead || errors.Is(o.err, countmill.ErrOutcomeUnknown):
		o.unknown = true
		for _, s := range o.sums {
			s.maybe()
		}
	case o.err == nil:
		for _, s := range o.sums {
			s.durable()
		}
		cs.noteWritten(o, o.sums)
		return
	case errors.Is(o.err, countmill.ErrIDsReused):
		cs.finishConflicts(o)
		return
	case !notCounted(o.err):
		return // refused for good: conflict, beyond the window
	}
	// An increment without an id may be sent again where it was certainly not counted. One
	// with an id may always, with its time within the window, without it if no time passed.
	if o.unknown && o.incs[0].ID == "" && o.key == "" || o.repeats == 0 {
		return
	}
	o.repeats--
	cs.again = append(cs.again, o)
}

// notCounted reports whether the error says that nothing was counted, and may be when it is sent again.
func notCounted(err error) bool {
	return errors.Is(err, countmill.ErrUnavailable) || errors.Is(err, countmill.ErrOverloaded) || errors.Is(err, countmill.ErrClosed)
}

// repeat sends an op again, through any publisher.
func (cs *clients) repeat() bool {
	lives := cs.procs.publishers()
	if len(cs.again) == 0 || len(lives) == 0 {
		return false
	}
	i := cs.rng.IntN(len(cs.again))
	o := cs.again[i]
	cs.again = append(cs.again[:i:i], cs.again[i+1:]...)
	if o.stale(cs.kernel) {
		return true
	}
	p := pick(cs.rng, lives)
	if p != o.p {
		cs.hit(OtherPublisher)
	}
	cs.send(o, p)
	return true
}

// finishConflicts takes in an answer that names the increments of an op that were not counted. All
// others were.
func (cs *clients) finishConflicts(o *op) {
	var told *countmill.ConflictsError
	if !errors.As(o.err, &told) || len(told.Conflicts) == 0 {
		cs.violate("a caller was told of conflicts, and not which: %v", o.err)
		return
	}
	named := make(map[int]bool)
	for _, c := range told.Conflicts {
		if c.Position < 0 || c.Position >= len(o.incs) || o.incs[c.Position].ID != c.ID || c.ID == "" {
			cs.violate("a caller was told that position %d of %d increments conflicts by the id %q", c.Position, len(o.incs), c.ID)
			return
		}
		named[c.Position] = true
		cs.say(o.p, "increment %d of op %d conflicts", c.Position, o.n)
	}
	for i, s := range o.sums {
		if named[i] {
			cs.ledger.conflicted(s)
		} else {
			s.durable()
		}
	}
}
