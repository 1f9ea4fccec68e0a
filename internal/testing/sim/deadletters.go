package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// drawDeadLetters draws whether the bus gives messages up and somebody asks for dead letters.
func (pl *plan) drawDeadLetters() {
	rng := pl.rng
	if rng.IntN(4) > 0 {
		return
	}
	pl.rates[ReplayAsked] = 0.3
	if rng.IntN(2) == 0 {
		pl.rates[GivenUp] = 0.1
	}
	for _, f := range []Fault{AskedAsNew, DeadLetterDiscarded} {
		if rng.IntN(2) == 0 {
			pl.rates[f] = 0.3
		}
	}
	switch rng.IntN(4) { // letters that do not say that they may have been counted
	case 0:
		pl.rates[IDReused] = 0.3
	case 1:
		pl.rates[Poison], pl.cured = 0.3, 1+rng.IntN(300)
	}
	if rng.IntN(3) == 0 {
		pl.rates[UnreadableAsked] = 0.3
	}
	for _, f := range append(discards.all(), DeadLettersFail) {
		if rng.IntN(2) == 0 {
			pl.rates[f] = 0.3
		}
	}
}

// askUnreadable has a person ask for more letters that nobody can read than an aggregator looks
// at together. They stay where they are, before most others, and so do the wishes.
func (opr *operator) askUnreadable() bool {
	if opr.unreadable {
		return false
	}
	opr.unreadable = true
	for i := range page + opr.rng.IntN(3) {
		d := store.DeadLetter{Key: fmt.Sprintf("-%031x", i), Payload: fmt.Appendf(nil, "\xffletter %d", i), Time: opr.wall(), At: opr.wall()}
		wish := d
		wish.Key = store.ReplayKey(d.Key)
		_ = opr.db.other.PutDeadLetters(background, []store.DeadLetter{d, wish})
	}
	opr.say(nil, "letters that nobody can read are asked for")
	return true
}

// askReplay has a person ask for a letter, which may be in process or gone by then.
func (opr *operator) askReplay() bool {
	letters := append(opr.db.readable(), opr.replays...)
	if len(letters) == 0 {
		return false
	}
	d := pick(opr.rng, letters)
	opr.replays = append(opr.replays, d)
	opr.say(nil, "letter %s is asked for", d.Key)
	d.Key = store.ReplayKey(d.Key)
	_ = opr.db.other.PutDeadLetters(background, []store.DeadLetter{d})
	return true
}

// replay has a person ask for a letter, through a process or not.
func (opr *operator) replay() bool {
	if opr.rng.IntN(2) == 0 {
		return opr.lookAfter(replayOp)
	}
	return opr.askReplay()
}

// deadLetterSums returns the delta of each increment in dead letters, by counter.
func deadLetterSums(letters []store.DeadLetter) map[string][]int64 {
	sums := make(map[string][]int64)
	for _, d := range letters {
		for _, p := range partsIn(d) {
			for _, e := range p.Entries {
				sums[e.Counter] = append(sums[e.Counter], e.Delta)
			}
		}
	}
	return sums
}

// partsIn returns the parts that a dead letter is about. For a message that nobody read these are
// all its parts. Otherwise a head is left out if it is only there for the part that follows it.
func partsIn(d store.DeadLetter) []wire.Part {
	if e, ok := foreignEntry(d.Payload); ok {
		return []wire.Part{{Entries: []wire.Entry{e}}}
	}
	b, err := decode(d.Payload)
	if err != nil {
		return nil
	}
	if d.Reason == givenUp {
		return b.Parts
	}
	if head := &b.Parts[0]; head.Kind == wire.Head && d.Source != head.ID.String() {
		return b.Parts[1:]
	}
	return b.Parts
}

// foreignEntry returns the increment of a message that no publisher made (oddMessage).
func foreignEntry(payload []byte) (e wire.Entry, ok bool) {
	var inc struct {
		Counter string
		Delta   int64
	}
	err := json.Unmarshal(payload, &inc)
	return wire.Entry{Counter: inc.Counter, Delta: inc.Delta}, err == nil
}

// entry returns the increment of a message that no publisher made.
func (l *busMessage) entry() (e wire.Entry, ok bool) {
	if !l.foreign {
		return e, false
	}
	return foreignEntry(l.payload)
}

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
