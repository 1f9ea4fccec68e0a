package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/countmill/countmill/store"
)

// givenUp is why a message that the bus gave up is a dead letter.
const givenUp = "given up by the bus"

// mail draws, with numbers of its own, whether messages are given up and letters asked for:
// the schedules of seeds that have neither are what they were before there was either.
func (pl *plan) drawDeadLetters() {
	rng := rand.New(rand.NewPCG(pl.seed, 0x6c657474657273))
	if rng.IntN(4) > 0 {
		return
	}
	pl.rates[ReplayAsked] = 0.3
	if rng.IntN(2) == 0 {
		pl.rates[GivenUp] = 0.1
	}
	for _, f := range []Fault{AskedAsNew, LetterDiscarded} {
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
	for _, f := range []Fault{LettersFail, DiscardLost, DiscardAnswerLost, DiscardLate} {
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
		_ = opr.db.fake.PutDeadLetters(background, []store.DeadLetter{d, wish})
	}
	opr.say(nil, "letters that nobody can read are asked for")
	return true
}

// giveUp makes a dead letter of a message that is to be delivered, maybe again, as an intake
// does: whether it was applied nobody knows.
func (w *World) giveUp() bool {
	i := slices.IndexFunc(w.bus.queue, func(l *parcel) bool { return !l.foreign && l.settled == nil })
	if i < 0 {
		return false
	}
	l := w.bus.queue[i]
	w.bus.queue, l.acked = slices.Delete(w.bus.queue, i, i+1), true
	w.say(nil, "message %d is given up", l.n)
	w.oracles.delivered(l)
	_ = w.db.fake.PutDeadLetters(background, []store.DeadLetter{{
		Key: fmt.Sprintf("%032x", l.n), Payload: l.payload, Source: "copy of " + strconv.Itoa(l.n),
		Time: l.published, Reason: givenUp, Maybe: true, At: w.wall(),
	}})
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
	_ = opr.db.fake.PutDeadLetters(background, []store.DeadLetter{d})
	return true
}
