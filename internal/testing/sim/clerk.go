package sim

import (
	"context"
	"errors"
	"slices"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
)

// A personStore is the store as seen by the process of a person who looks after dead letters.
type personStore struct{ *simStore }

// Fold decides about a letter.
func (d personStore) Fold(ctx context.Context, c *store.Commit) (folded store.CommitResult, err error) {
	commit := store.Commit{Markers: slices.Clone(c.Markers), Rules: c.Rules}
	err = d.change(ctx, "decide", commitKey(&commit), FoldNotApplied, FoldApplied, FoldLate,
		func() string { return commitText(&commit) }, func() error {
			_, err := d.fake.Fold(background, &commit)
			return err
		})
	return folded, err
}

// DeleteDeadLetters removes letters for a person.
func (d personStore) DeleteDeadLetters(ctx context.Context, keys []string) error {
	keys = slices.Clone(keys)
	return d.change(ctx, "discard", stringsKey(keys), DiscardLost, DiscardAnswerLost, DiscardLate, joined(keys), func() error {
		d.watch.discarding(keys)
		return d.fake.DeleteDeadLetters(background, keys)
	})
}

// GetDeadLetters looks letters up.
func (s *simStore) GetDeadLetters(ctx context.Context, keys []string) (found []store.DeadLetter, err error) {
	keys = slices.Clone(keys)
	err = s.call(ctx, "letters by key", stringsKey(keys), DeadLettersFail,
		joined(keys), func() string { return deadLettersText(found) }, func() (err error) {
			found, err = s.fake.GetDeadLetters(background, keys)
			return err
		})
	return found, err
}

// Check reads the settings.
func (d personStore) Check(ctx context.Context) (checked store.Checked, err error) {
	err = d.call(ctx, "settings", 0, CheckFails, nil, func() string { return "nothing of before " + checked.Settings.ForgetBefore.Format(clockFormat) }, func() (err error) {
		checked, err = d.fake.Check(background)
		return err
	})
	return checked, err
}

// A clerk asks for no replay that the answer says may count twice. So nothing may count twice.
type clerk struct {
	personStore
	settings store.Settings
	found    store.DeadLetter
}

var _ admin.DeadLetterStore = (*clerk)(nil)

var errMaybeTwice = errors.New("sim: it may count twice")

// GetDeadLetters notes the dead letter that it finds.
func (c *clerk) GetDeadLetters(ctx context.Context, keys []string) ([]store.DeadLetter, error) {
	found, err := c.personStore.GetDeadLetters(ctx, keys)
	if len(found) > 0 {
		if _, asked := store.ReplayOf(found[0].Key); !asked {
			c.found = found[0]
		}
	}
	return found, err
}

// Check notes the settings.
func (c *clerk) Check(ctx context.Context) (checked store.Checked, err error) {
	checked, err = c.personStore.Check(ctx)
	c.settings = checked.Settings
	return checked, err
}

// PutDeadLetters asks for a replay.
func (c *clerk) PutDeadLetters(ctx context.Context, requests []store.DeadLetter) error {
	if c.settings.Refuses(c.found.Time) {
		return errMaybeTwice
	}
	return c.personStore.PutDeadLetters(ctx, requests)
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
	for _, s := range opr.oracles.ledger.increments(d) {
		s.discarded = s.discarded || kind == discardOp
		s.renewed = s.renewed || kind == asNewOp && d.IDTaken()
	}
	c := &clerk{personStore: personStore{&simStore{opr.db, p, nil}}}
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
		opr.oracles.forbid(&o.letter)
	}
}
