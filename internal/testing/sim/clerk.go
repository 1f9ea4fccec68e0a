package sim

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/sysenv"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A desk is the store as the process of a person sees it who looks after dead letters.
type desk struct{ *simStore }

// Fold decides about a letter.
func (d desk) Fold(ctx context.Context, c *store.Commit) (folded store.CommitResult, err error) {
	commit := store.Commit{Markers: slices.Clone(c.Markers)}
	err = d.change(ctx, "decide", commitKey(&commit), FoldNotApplied, FoldApplied, FoldLate,
		func() string { return commitText(&commit) }, func() error {
			_, err := d.w.fake.Fold(background, &commit)
			return err
		})
	return folded, err
}

// DeleteDeadLetters removes letters for a person.
func (d desk) DeleteDeadLetters(ctx context.Context, keys []string) error {
	keys = slices.Clone(keys)
	return d.change(ctx, "discard", stringsKey(keys), DiscardLost, DiscardAnswerLost, DiscardLate, joined(keys), func() error {
		d.w.toss(keys)
		return d.w.fake.DeleteDeadLetters(background, keys)
	})
}

// GetDeadLetters looks letters up.
func (s *simStore) GetDeadLetters(ctx context.Context, keys []string) (found []store.DeadLetter, err error) {
	keys = slices.Clone(keys)
	err = s.call(ctx, "letters by key", stringsKey(keys), LettersFail,
		joined(keys), func() string { return lettersText(found) }, func() (err error) {
			found, err = s.w.fake.GetDeadLetters(background, keys)
			return err
		})
	return found, err
}

// Check reads the settings.
func (d desk) Check(ctx context.Context) (checked store.Checked, err error) {
	err = d.call(ctx, "settings", 0, CheckFails, nil, func() string { return "nothing of before " + checked.Settings.ForgetBefore.Format(clockFormat) }, func() (err error) {
		checked, err = d.w.fake.Check(background)
		return err
	})
	return checked, err
}

// A clerk asks for no replay that the answer says may count twice. So nothing may count twice.
type clerk struct {
	desk
	settings store.Settings
	found    store.DeadLetter
}

var _ admin.DeadLetterStore = (*clerk)(nil)

var errMaybeTwice = errors.New("sim: it may count twice")

// GetDeadLetters notes the dead letter that it finds.
func (c *clerk) GetDeadLetters(ctx context.Context, keys []string) ([]store.DeadLetter, error) {
	found, err := c.desk.GetDeadLetters(ctx, keys)
	if len(found) > 0 {
		if _, asked := store.ReplayOf(found[0].Key); !asked {
			c.found = found[0]
		}
	}
	return found, err
}

// Check notes the settings.
func (c *clerk) Check(ctx context.Context) (checked store.Checked, err error) {
	checked, err = c.desk.Check(ctx)
	c.settings = checked.Settings
	return checked, err
}

// PutDeadLetters asks for a replay.
func (c *clerk) PutDeadLetters(ctx context.Context, requests []store.DeadLetter) error {
	if c.settings.Refuses(c.found.Time) {
		return errMaybeTwice
	}
	return c.desk.PutDeadLetters(ctx, requests)
}

// The kinds of ops of a person who looks after letters.
const (
	replayOp  = "replay"
	asNewOp   = "replay as new"
	discardOp = "discard"
)

// lookAfter has a person do that with a letter, which may be in process or gone by then.
func (w *World) lookAfter(kind string) bool {
	lives := w.lives(reading)
	all := w.readable()
	if kind == discardOp && w.crowd != nil { // a crowd is counted by its sum
		all = slices.DeleteFunc(all, func(d store.DeadLetter) bool { return hasCounter(partsIn(d), w.crowd.counter) })
	}
	if len(lives) == 0 || len(all) == 0 {
		return false
	}
	p, d := pick(w, lives), pick(w, all)
	o := w.newOp(kind)
	o.letter, o.names = d, []string{d.Key}
	for _, s := range w.increments(d) {
		s.tossed = s.tossed || kind == discardOp
		s.renewed = s.renewed || kind == asNewOp && d.IDTaken()
	}
	c := &clerk{desk: desk{&simStore{w, p, nil}}}
	l := admin.NewDeadLetters(c, admin.DeadLettersConfig{Env: &sysenv.Env{Wall: p.wall}})
	w.ask(o, p, func(ctx context.Context) error {
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

// readable is the letters that can be read.
func (w *World) readable() []store.DeadLetter {
	return slices.DeleteFunc(w.fake.Letters(), func(d store.DeadLetter) bool {
		_, asked := store.ReplayOf(d.Key)
		_, err := decode(d.Payload)
		return asked || err != nil
	})
}

// increments is what of the ledger is in a letter.
func (w *World) increments(d store.DeadLetter) []*sum {
	parts := partsIn(d)
	return slices.DeleteFunc(slices.Clone(w.ledger), func(s *sum) bool {
		return !slices.ContainsFunc(parts, func(p wire.Part) bool { return s.in(&p) })
	})
}

// finishLetter takes in what became of a letter.
func (w *World) finishLetter(o *op) {
	switch {
	case o.err != nil || o.p.dead:
	case o.became.Twice:
		w.violate("a letter may count twice, and was asked for: %s", o.letter.Reason)
	case o.became.Result == admin.ResultDiscarded:
		w.forbid(&o.letter)
	}
}

// toss notes the parts of discarded letters that are being removed.
func (w *World) toss(keys []string) {
	for _, d := range w.fake.Letters() {
		if !slices.Contains(keys, d.Key) {
			continue
		}
		if !w.discarded(d.Key) {
			w.gone = append(w.gone, d)
		}
		for _, p := range partsIn(d) {
			w.tossed[p.ID], w.tossed[wire.RenewedID(&p)] = true, true
		}
	}
}

// discarded reports whether it was decided that no aggregator counts the letter.
func (w *World) discarded(key string) bool {
	letter, _ := store.ReplayOf(key)
	if m, ok := w.fake.Marker(wire.LetterID(letter)); ok {
		return store.Fate(m.Fingerprint) == store.FateDiscarded
	}
	return w.doomed[letter]
}

// doom notes the letters that somebody decided to discard, before the store forgets the decisions:
// a process that has read such a decision may still act by it.
func (w *World) doom() {
	for _, d := range w.fake.Letters() {
		if letter, _ := store.ReplayOf(d.Key); w.discarded(letter) {
			w.doomed[letter] = true
		}
	}
}

// forbid notes that a letter was discarded, for good: from here on nobody counts its parts, but
// from another letter, which an aggregator may have read before somebody removed it, or from a
// message that somebody holds or gets.
func (w *World) forbid(d *store.DeadLetter) {
	others := slices.DeleteFunc(append(w.fake.Letters(), w.gone...), func(o store.DeadLetter) bool {
		letter, _ := store.ReplayOf(o.Key)
		return letter == d.Key
	})
	for _, p := range partsIn(*d) {
		renewed := wire.RenewedID(&p)
		if holdPart(others, p.ID) || holdPart(others, renewed) || w.bus.mayFold(p.ID) {
			continue
		}
		w.forbidden[renewed] = w.Steps
		if !d.IDTaken() { // then it is another's
			w.forbidden[p.ID] = w.Steps
		}
	}
}

// mayFold reports whether somebody has a message with that part.
func (b *broker) mayFold(id wire.PartID) bool {
	return slices.ContainsFunc(b.deliveries, func(d *delivery) bool {
		return !d.sub.p.dead && !closed(d.msg.Acked()) && !closed(d.msg.Nacked()) && slices.Contains(d.parcel.ids(), id)
	})
}

// ids returns the ids of the message's parts.
func (l *parcel) ids() []wire.PartID {
	b, err := l.batch()
	if err != nil {
		return nil
	}
	ids := make([]wire.PartID, len(b.Parts))
	for i := range b.Parts {
		ids[i] = b.Parts[i].ID
	}
	return ids
}

// batch returns the parts of the message, however long it waited.
func (l *parcel) batch() (*wire.Batch, error) {
	if _, foreign := foreignEntry(l.payload); !foreign {
		return decode(l.payload)
	}
	incs, err := wire.DecodeJSON(l.payload, wire.JSON, l.published, store.MaxWindow)
	if err != nil {
		return nil, err
	}
	return wire.CutMessage("countmill", strconv.Itoa(l.n), l.published, incs)
}

// allow notes that a message is delivered, or becomes a letter: its parts may be counted from it.
func (w *World) allow(l *parcel) {
	if len(w.forbidden) == 0 {
		return
	}
	for _, id := range l.ids() {
		delete(w.forbidden, id)
	}
}

// checkForbidden: a discarded letter stays uncounted. came is when the fold was called.
func (w *World) checkForbidden(p *proc, c *store.Commit, came int) {
	for _, m := range c.Markers {
		if at, ok := w.forbidden[m.ID]; ok && came > at {
			w.violate("%s counted part %s of a letter that was discarded", p.name, m.ID)
		}
	}
}
