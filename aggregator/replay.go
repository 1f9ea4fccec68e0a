package aggregator

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/countmill/countmill/wire"
)

// A replay counts the dead letters that a person asked for (AskKey), and those of wire
// versions that this aggregator can read: an older one set them aside before the upgrade.
// Each is held as a message is; what its
// acknowledgement is to a message, its removal is to a letter. Its parts keep their ids
// and times, so that a letter which several aggregators take, or which comes back after
// its removal, counts once, and one beyond the window becomes a letter that says so.
//
// A page of letters is read when all of the one before are settled and removed.
type replay struct {
	calling bool
	answers chan exhumed
	after   string    // the last key of this round
	next    time.Time // when the next page may be read
	open    int       // letters that are not settled
	spent   []string  // the keys of those that are, to be removed
	counted int       // letters among them that are done with
}

// exhumed is the answer to a read of letters, or to their removal.
type exhumed struct {
	letters []Dead
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

	newerPrefix = "newer:"
	askedPrefix = "manual:"

	// AskedEnd comes behind the keys of all copies that ask for replays (AskKey), and
	// before those of other letters behind them.
	AskedEnd = "manual;"
)

// AskKey is the key of the copy of a letter by which a person asks for its replay: the
// letter as it is, or a batch with what it holds under other ids. Bury asks, and asks
// once however often it is repeated; Discard takes that back. The store is the way
// because whoever is asked may run apart from every bus, and because a batch on a bus
// gets a new time there: beyond the window it would be taken for young. The letter stays
// until it is counted, and stays for good when it is set aside again for the same reason.
//
// Such keys stand together behind those of all other letters but newer ones.
func AskKey(letter string) string { return askedPrefix + letter }

// AskedFor returns the key of the letter that such a copy is of.
func AskedFor(key string) (letter string, asked bool) { return strings.CutPrefix(key, askedPrefix) }

// newerKey is the key of a letter of a newer wire version. Those of one version stand
// together, behind all other letters and in the order of versions, so that an aggregator
// finds what it can read without reading the rest. It is the same whatever the version of
// the aggregator that sets it aside.
func newerKey(version uint64, source string, payload []byte) string {
	return fmt.Sprintf("%s%016x:%s", newerPrefix, version, letterKey(source, newerPrefix, payload))
}

// exhume removes the letters that are settled, else reads the next page where it is time
// for it. Letters wait while the aggregator drains or the store is away; that much is held
// that no more messages are taken does not keep them waiting, or a busy bus would for ever.
func (l *loop) exhume(now time.Time) {
	r := &l.replay
	switch {
	case r.calling || r.open > 0:
	case len(r.spent) > 0:
		keys, counted := r.spent, r.counted
		r.calling, r.spent, r.counted = true, nil, 0
		l.a.cfg.Env.Go(func() { r.answers <- l.a.removeLetters(keys, counted) })
	case !l.draining && !l.isAway() && !now.Before(r.next):
		after := r.after
		r.calling = true
		l.a.cfg.Env.Go(func() { r.answers <- l.a.readLetters(max(after, askedPrefix)) })
	}
}

func (a *Aggregator) removeLetters(keys []string, counted int) exhumed {
	ctx, cancel := a.callContext()
	defer cancel()
	return exhumed{removed: true, counted: counted, err: a.store.Discard(ctx, keys)}
}

func (a *Aggregator) readLetters(after string) exhumed {
	ctx, cancel := a.callContext()
	defer cancel()
	letters, err := a.store.Dead(ctx, after, replayPage)
	return exhumed{letters: letters, err: err}
}

// afterReplay takes the letters of a page in. A letter whose removal failed is read again
// in the next round, and its parts found applied.
func (l *loop) afterReplay(e exhumed) {
	r := &l.replay
	r.calling = false
	switch {
	case e.err != nil:
		l.a.cfg.Logger.Warn("dead letters to be counted not read or not removed, will be tried again", "err", e.err)
		l.endRound()
	case e.removed:
		l.a.stats.replayed.Add(int64(e.counted))
		l.a.cfg.Logger.Info("dead letters replayed", "letters", e.counted)
	case l.draining:
	case !l.replayAll(e.letters):
		l.endRound()
	default:
		r.next = time.Now().Add(time.Duration(len(e.letters)) * time.Second / time.Duration(l.a.cfg.DeadLetterRate))
	}
}

func (l *loop) endRound() {
	l.replay.after = ""
	l.replay.next = time.Now().Add(replayEvery/2 + l.a.cfg.Env.Jitter(replayEvery/2))
}

// replayAll takes letters in, up to the first of a version that is newer still and that
// nobody asked for, and reports whether there may be more.
func (l *loop) replayAll(letters []Dead) bool {
	before := l.heldMemory
	for i := range letters {
		if l.heldMemory-before > l.a.cfg.HeldMemory/replayShare {
			return true // the rest is read again when these are settled
		}
		d := &letters[i]
		_, asked := AskedFor(d.Key)
		if !asked && !strings.HasPrefix(d.Key, newerPrefix) {
			return false
		}
		batch, err := l.a.cfg.Decode(d.Payload)
		if !asked && errors.As(err, new(wire.NewerError)) {
			return false // it stays: those behind it are not older
		}
		l.replay.after = d.Key
		if asked && err != nil {
			l.a.cfg.Logger.Warn("a dead letter cannot be replayed, as it cannot be read here", "key", d.Key, "err", err)
			continue // the letter stays, and so does the wish: it may be of a newer version
		}
		h := &held{letter: d.Key, source: d.Source, memory: memoryOf(len(d.Payload), batch), time: d.Time, maybe: d.Maybe}
		h.born = d.Time
		// The letter stays in the store until its parts are settled.
		l.replay.open++
		if err != nil {
			l.hold(h)
			l.refuseMessage(h, d.Payload, err)
			continue
		}
		// A letter may come again even where the bus never repeats a message, so its parts
		// have markers. Its time is the broker's, or a later one.
		l.take(h, batch, d.Time, false)
	}
	return len(letters) > 0
}

// settled notes that all parts of a letter are: it can go, and so can the letter that it
// is a copy of, unless a part was set aside again under that letter's key.
func (r *replay) settled(h *held) {
	r.open--
	r.spent = append(r.spent, h.letter)
	if h.stays {
		return
	}
	r.counted++
	if letter, asked := AskedFor(h.letter); asked {
		r.spent = append(r.spent, letter)
	}
}
