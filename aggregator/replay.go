package aggregator

import (
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A replay counts the dead letters that a person asked for (store.ReplayKey). Each is held like a
// message; removing the letter takes the place of the acknowledgement. Its parts keep their ids
// and times. So a letter counts once, even if several aggregators take it or it comes back after
// its removal. A letter beyond the window becomes a dead letter again.
//
// Before it takes a letter, the replay inserts the decision that the letter is counted
// (store.DecideDeadLetter). A letter that a person has discarded by then is only removed.
//
// The next page of letters is read when all letters of the page before are settled and removed.
type replay struct {
	calling bool
	answers chan replayAnswer
	after   string    // the last key that this round has read
	next    time.Time // the earliest time of the next page
	found   []found   // the letters of the page that are not decided yet
	open    int       // taken letters that are not settled
	spent   []string  // keys of settled letters, to be removed
	counted int       // number of letters among spent that will be gone
}

// A found is a letter to be counted.
type found struct {
	store.DeadLetter
	batch  *wire.Batch
	memory int
}

// A replayAnswer is the result of a read of letters, of a decision, or of a removal.
type replayAnswer struct {
	letters  []store.DeadLetter
	decided  *found
	decision store.Decision
	removed  bool
	counted  int // number of removed letters that were counted
	err      error
}

const (
	// An aggregator holds at most replayPage letters at once. In addition to Config.HeldMemory
	// they may need 1/replayShare of it, plus the memory of one letter.
	replayPage  = 10
	replayShare = 8
	// replayEvery is the longest pause between two rounds. Half of it is random, so that one of
	// several aggregators does most of the work. The first round begins within half of it.
	replayEvery = 20 * time.Second
)

// advanceReplay starts the next call of a replay: it decides about a letter, removes the settled
// letters, or reads the next page. No replay begins while the aggregator drains or the store is
// unavailable. A replay goes on while no more messages may be held: on a busy bus it would else
// wait for ever.
func (l *loop) advanceReplay(now time.Time) {
	r := &l.replay
	rests := l.draining || l.isAway()
	switch {
	case r.calling:
	case len(r.found) > 0 && !rests:
		f := r.found[0]
		r.calling, r.found = true, r.found[1:]
		l.a.cfg.env.Go(func() { r.answers <- l.a.decide(&f) })
	case r.open > 0:
	case len(r.spent) > 0:
		keys, counted := r.spent, r.counted
		r.calling, r.spent, r.counted = true, nil, 0
		l.a.cfg.env.Go(func() { r.answers <- l.a.removeDeadLetters(keys, counted) })
	case len(r.found) == 0 && !rests && !now.Before(r.next):
		after := r.after
		r.calling = true
		l.a.cfg.env.Go(func() { r.answers <- l.a.readDeadLetters(max(after, store.ReplayKey(""))) })
	}
}

// nameOf returns the key of the letter that a replay request is about.
func nameOf(key string) string {
	letter, _ := store.ReplayOf(key)
	return letter
}

func (a *Aggregator) decide(f *found) replayAnswer {
	ctx, cancel := a.callContext()
	defer cancel()
	s := a.settings.Load()
	if s.outdated(a.aging.age()) {
		return replayAnswer{decided: f, err: errOutdated}
	}
	decision, err := store.DecideDeadLetter(ctx, a.store, nameOf(f.Key), store.DecisionCounted, store.Latest(f.Time, a.clock.Now()), s.Settings)
	return replayAnswer{decided: f, decision: decision, err: err}
}

func (a *Aggregator) removeDeadLetters(keys []string, counted int) replayAnswer {
	ctx, cancel := a.callContext()
	defer cancel()
	return replayAnswer{removed: true, counted: counted, err: a.store.DeleteDeadLetters(ctx, keys)}
}

func (a *Aggregator) readDeadLetters(after string) replayAnswer {
	ctx, cancel := a.callContext()
	defer cancel()
	letters, err := a.store.ListDeadLetters(ctx, after, replayPage)
	return replayAnswer{letters: letters, err: err}
}

// afterReplay handles an answer. If a decision or a removal failed, the letter is read again in
// the next round, and its parts are then found to be applied.
func (l *loop) afterReplay(e replayAnswer) {
	r := &l.replay
	r.calling = false
	switch {
	case e.err != nil:
		l.a.cfg.Logger.Warn("replay of dead letters failed, will try again", "err", e.err)
		r.found = nil
		l.endRound()
	case e.removed:
		l.a.stats.replayed.Add(int64(e.counted))
		l.a.cfg.Logger.Info("dead letters replayed", "letters", e.counted)
	case l.draining:
	case e.decided != nil:
		l.replayOne(e.decided, e.decision)
	case !l.sift(e.letters):
		l.endRound()
	default:
		r.next = time.Now().Add(time.Duration(len(e.letters)) * time.Second / time.Duration(l.a.cfg.DeadLetterRate))
	}
}

func (l *loop) endRound() {
	l.replay.after = ""
	l.replay.next = time.Now().Add(replayEvery/2 + l.a.cfg.env.Jitter(replayEvery/2))
}

// sift picks the letters to be counted, and reports whether there may be more.
func (l *loop) sift(letters []store.DeadLetter) bool {
	memory := 0
	for _, d := range letters {
		if memory > l.a.cfg.HeldMemory/replayShare {
			return true // the others are read again when these are settled
		}
		if _, asked := store.ReplayOf(d.Key); !asked {
			return false
		}
		l.replay.after = d.Key
		batch, err := l.a.cfg.Decode(d.Payload)
		if err != nil {
			l.a.cfg.Logger.Warn("dead letter not replayed: this version cannot read it", "key", d.Key, "err", err)
			continue // the letter stays, and so does the request: it may be of a newer version
		}
		f := found{d, batch, memoryOf(len(d.Payload), batch)}
		memory += f.memory
		l.replay.found = append(l.replay.found, f)
	}
	return len(letters) > 0
}

// replayOne takes a letter, unless a person has discarded it.
func (l *loop) replayOne(f *found, decision store.Decision) {
	r := &l.replay
	if decision == store.DecisionDiscarded {
		l.a.cfg.Logger.Info("dead letter not replayed: it was discarded", "key", f.Key)
		r.spend(f.Key)
		return
	}
	h := &held{letter: f.Key, memory: f.memory, time: f.Time, maybe: f.Maybe}
	h.born, h.completionID = f.Time, flushCompletion(f.batch)
	// The letter stays in the store until its parts are settled.
	r.open++
	// A letter may come again even if the bus never repeats a message, so its parts have markers.
	// Its time is the broker's, or a later one.
	l.take(h, f.batch, f.Time, false)
}

// settled removes a replay request whose parts are all settled, and the letter that it is about.
// The letter stays if a part was set aside again under its key.
func (r *replay) settled(h *held) {
	r.open--
	if h.stays {
		r.spent = append(r.spent, h.letter)
		return
	}
	r.counted++
	r.spend(h.letter)
}

// spend removes a letter and then its replay request. While the request exists, an aggregator
// finds out whether the letter was counted.
func (r *replay) spend(key string) { r.spent = append(r.spent, nameOf(key), key) }
