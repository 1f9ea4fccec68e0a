package sim

import (
	"fmt"

	"github.com/countmill/countmill/store"
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
