package sim

import (
	"context"
	"errors"
	"slices"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
)

// A clerk asks for no replay that the answer says may count twice. So nothing may count twice.
type clerk struct {
	*simStore
	settings store.Settings
	found    store.DeadLetter
}

var _ admin.DeadLetterStore = (*clerk)(nil)

var errMaybeTwice = errors.New("sim: it may count twice")

// GetDeadLetters notes the dead letter that it finds.
func (c *clerk) GetDeadLetters(ctx context.Context, keys []string) ([]store.DeadLetter, error) {
	found, err := c.simStore.GetDeadLetters(ctx, keys)
	if len(found) > 0 {
		if _, asked := store.ReplayOf(found[0].Key); !asked {
			c.found = found[0]
		}
	}
	return found, err
}

// Check notes the settings.
func (c *clerk) Check(ctx context.Context) (checked store.Checked, err error) {
	checked, err = c.simStore.Check(ctx)
	c.settings = checked.Settings
	return checked, err
}

// PutDeadLetters asks for a replay.
func (c *clerk) PutDeadLetters(ctx context.Context, requests []store.DeadLetter) error {
	if c.settings.Refuses(c.found.Time) {
		return errMaybeTwice
	}
	return c.simStore.PutDeadLetters(ctx, requests)
}

// The kinds of ops of a person who looks after letters.
const (
	replayOp  = "replay"
	asNewOp   = "replay as new"
	discardOp = "discard"
)

// lookAfter has a person do that with a letter, which may be in process or gone by then.
func (opr *operator) lookAfter(kind string) bool {
	lives := opr.procs.lives(reading)
	all := opr.db.readable()
	if kind == discardOp && opr.crowd != nil { // a crowd is counted by its sum
		all = slices.DeleteFunc(all, func(d store.DeadLetter) bool { return hasCounter(partsIn(d), opr.crowd.counter) })
	}
	if len(lives) == 0 || len(all) == 0 {
		return false
	}
	p, d := pick(opr.rng, lives), pick(opr.rng, all)
	o := opr.newOp(kind, opr.finishDeadLetter)
	o.letter, o.names = d, []string{d.Key}
	for _, s := range opr.ledger.increments(d) {
		s.discarded = s.discarded || kind == discardOp
		s.renewed = s.renewed || kind == asNewOp && d.IDTaken()
	}
	c := &clerk{simStore: opr.db.storeOf(p, nil)}
	l := clock.With(admin.NewDeadLetters(c), &clock.Env{Wall: p.wall})
	opr.ask(o, p, func(ctx context.Context) error {
		var done []admin.DeadLetterOutcome
		var err error
		if kind == discardOp {
			done, err = l.Discard(ctx, []string{d.Key})
		} else {
			done, err = l.Replay(ctx, []string{d.Key}, kind == asNewOp)
		}
		if err == nil {
			o.became = done[0]
		}
		return err
	})
	return true
}

// finishDeadLetter takes in what became of a letter.
func (opr *operator) finishDeadLetter(o *op) {
	switch {
	case o.err != nil || o.p.dead:
	case o.became.Twice:
		opr.violate("a letter may count twice, and was asked for: %s", o.letter.Reason)
	case o.became.Result == admin.ResultDiscarded:
		opr.parts.forbid(&o.letter)
	}
}
