package aggregator

import (
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A replay counts the dead letters that a person asked for (ReplayKey). Each is held as a message is; what its
// acknowledgement is to a message, its removal is to a letter. Its parts keep their ids
// and times, so that a letter which several aggregators take, or which comes back after
// its removal, counts once, and one beyond the window becomes a letter that says so. Before
// that the replay decides that the letter is counted (Decide). A letter that a person has
// discarded by then is only removed.
//
// A page of letters is read when all of the one before are settled and removed.
type replay struct {
	calling bool
	answers chan replayAnswer
	after   string    // the last key of this round
	next    time.Time // when the next page may be read
	found   []found   // the page, as far as it is not decided about
	open    int       // letters that are not settled
	spent   []string  // the keys of those that are, to be removed
	counted int       // letters among them that are done with
}

// A found letter is one to be counted.
type found struct {
	store.DeadLetter
	batch  *wire.Batch
	memory int
}

// replayAnswer is the answer to a read of letters, to the decision about one, or to their removal.
type replayAnswer struct {
	letters []store.DeadLetter
	decided *found
	fate    store.Fate
	removed bool
	counted int // letters that were removed because they are done with
	err     error
}

const (
	// An aggregator holds at most replayPage letters. Beyond Config.HeldMemory they may need a
	// replayShare-th of it, and the memory of one more letter.
	replayPage  = 10
	replayShare = 8
	// replayEvery is how long a round waits for the next, half of it at random: of
	// several aggregators one does most of the work. The first begins within half of it.
	replayEvery = 20 * time.Second
)

// advanceReplay decides about the letters of a page, one after the other, removes settled letters, or
// reads the next page when it is time. Letters wait while the aggregator drains or the store is
// unavailable. They do not wait while no more messages may be held: on a busy bus that could
// take for ever.
func (l *loop) advanceReplay(now time.Time) {
	r := &l.replay
	rests := l.draining || l.isAway()
	switch {
	case r.calling:
	case len(r.found) > 0 && !rests:
		f := r.found[0]
		r.calling, r.found = true, r.found[1:]
		l.a.cfg.Env.Go(func() { r.answers <- l.a.decide(&f) })
	case r.open > 0:
	case len(r.spent) > 0:
		keys, counted := r.spent, r.counted
		r.calling, r.spent, r.counted = true, nil, 0
		l.a.cfg.Env.Go(func() { r.answers <- l.a.removeLetters(keys, counted) })
	case len(r.found) == 0 && !rests && !now.Before(r.next):
		after := r.after
		r.calling = true
		l.a.cfg.Env.Go(func() { r.answers <- l.a.readLetters(max(after, store.ReplayKey(""))) })
	}
}

// nameOf is the key of the letter that a copy is of.
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
	fate, err := store.DecideFate(ctx, a.store, nameOf(f.Key), store.FateCounted, store.Latest(f.Time, a.clock.Now()), s.Settings)
	return replayAnswer{decided: f, fate: fate, err: err}
}

func (a *Aggregator) removeLetters(keys []string, counted int) replayAnswer {
	ctx, cancel := a.callContext()
	defer cancel()
	return replayAnswer{removed: true, counted: counted, err: a.store.DeleteDeadLetters(ctx, keys)}
}

func (a *Aggregator) readLetters(after string) replayAnswer {
	ctx, cancel := a.callContext()
	defer cancel()
	letters, err := a.store.ListDeadLetters(ctx, after, replayPage)
	return replayAnswer{letters: letters, err: err}
}

// afterReplay goes on with an answer. A letter about which nothing could be decided, or whose
// removal failed, is read again in the next round, and its parts are found applied.
func (l *loop) afterReplay(e replayAnswer) {
	r := &l.replay
	r.calling = false
	switch {
	case e.err != nil:
		l.a.cfg.Logger.Warn("dead letters to be counted not read, decided about or removed, will be tried again", "err", e.err)
		r.found = nil
		l.endRound()
	case e.removed:
		l.a.stats.replayed.Add(int64(e.counted))
		l.a.cfg.Logger.Info("dead letters replayed", "letters", e.counted)
	case l.draining:
	case e.decided != nil:
		l.replayOne(e.decided, e.fate)
	case !l.sift(e.letters):
		l.endRound()
	default:
		r.next = time.Now().Add(time.Duration(len(e.letters)) * time.Second / time.Duration(l.a.cfg.DeadLetterRate))
	}
}

func (l *loop) endRound() {
	l.replay.after = ""
	l.replay.next = time.Now().Add(replayEvery/2 + l.a.cfg.Env.Jitter(replayEvery/2))
}

// sift finds the letters to be counted, and reports whether there may be more.
func (l *loop) sift(letters []store.DeadLetter) bool {
	memory := 0
	for _, d := range letters {
		if memory > l.a.cfg.HeldMemory/replayShare {
			return true // the rest is read again when these are settled
		}
		if _, asked := store.ReplayOf(d.Key); !asked {
			return false
		}
		l.replay.after = d.Key
		batch, err := l.a.cfg.Decode(d.Payload)
		if err != nil {
			l.a.cfg.Logger.Warn("a dead letter cannot be replayed, as it cannot be read here", "key", d.Key, "err", err)
			continue // the letter stays, and so does the wish: it may be of a newer version
		}
		f := found{d, batch, memoryOf(len(d.Payload), batch)}
		memory += f.memory
		l.replay.found = append(l.replay.found, f)
	}
	return len(letters) > 0
}

// replayOne takes a letter in, unless a person has discarded it.
func (l *loop) replayOne(f *found, fate store.Fate) {
	r := &l.replay
	if fate == store.FateDiscarded {
		l.a.cfg.Logger.Info("a dead letter that was discarded is not counted", "key", f.Key)
		r.spend(f.Key)
		return
	}
	h := &held{letter: f.Key, source: f.Source, memory: f.memory, time: f.Time, maybe: f.Maybe}
	h.born = f.Time
	// The letter stays in the store until its parts are settled.
	r.open++
	// A letter may come again even where the bus never repeats a message, so its parts
	// have markers. Its time is the broker's, or a later one.
	l.take(h, f.batch, f.Time, false)
}

// settled notes that all parts of a letter are: it can go, and so can the letter that it
// is a copy of, unless a part was set aside again under that letter's key.
func (r *replay) settled(h *held) {
	r.open--
	if h.stays {
		r.spent = append(r.spent, h.letter)
		return
	}
	r.counted++
	r.spend(h.letter)
}

// spend has a letter removed, before the copy of it: as long as there is a copy, somebody
// finds out what became of the letter.
func (r *replay) spend(key string) { r.spent = append(r.spent, nameOf(key), key) }
