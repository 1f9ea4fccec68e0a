package aggregator

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/countmill/countmill/wire"
)

// A replay counts the dead letters of wire versions that this aggregator can read: those
// that an older one set aside before the upgrade. Each is held as a message is; what its
// acknowledgement is to a message, its removal is to a letter. Its parts keep their ids
// and times, so that a letter which several aggregators take, or which comes back after
// its removal, counts once, and one beyond the horizon becomes a letter that says so.
//
// A page of letters is read when all of the one before are settled and removed.
type replay struct {
	calling bool
	answers chan exhumed
	after   string    // the last key of this round
	next    time.Time // when the next page may be read
	open    int       // letters that are not settled
	spent   []string  // the keys of those that are, to be removed
}

// exhumed is the answer to a read of letters, or to their removal.
type exhumed struct {
	letters []Dead
	removed int
	err     error
}

const (
	// replayPage is how many letters are held at most, of wire.MaxBatch bytes each.
	replayPage = 10
	// replayEvery is how long a round waits for the next, half of it at random: of
	// several aggregators one does most of the work. The first begins within half of it.
	replayEvery = 20 * time.Second

	newerPrefix = "newer:"
)

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
		keys := r.spent
		r.calling, r.spent = true, nil
		l.a.cfg.Env.Go(func() { r.answers <- l.a.removeLetters(keys) })
	case !l.draining && !l.isAway() && !now.Before(r.next):
		after := r.after
		r.calling = true
		l.a.cfg.Env.Go(func() { r.answers <- l.a.readLetters(max(after, newerPrefix)) })
	}
}

func (a *Aggregator) removeLetters(keys []string) exhumed {
	ctx, cancel := a.callContext()
	defer cancel()
	return exhumed{removed: len(keys), err: a.store.Discard(ctx, keys)}
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
		l.a.cfg.Logger.Warn("dead letters of a newer wire version not read or not removed, will be tried again", "err", e.err)
		l.endRound()
	case e.removed > 0:
		l.a.stats.replayed.Add(int64(e.removed))
		l.a.cfg.Logger.Info("dead letters counted that could not be read before", "letters", e.removed)
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

// replayAll takes letters in, up to the first of a version that is newer still, and
// reports whether there may be more.
func (l *loop) replayAll(letters []Dead) bool {
	for i := range letters {
		d := &letters[i]
		if !strings.HasPrefix(d.Key, newerPrefix) {
			return false
		}
		batch, err := l.a.cfg.Decode(d.Payload)
		if errors.As(err, new(wire.NewerError)) {
			return false // it stays: those behind it are not older
		}
		h := &held{letter: d.Key, source: d.Source, bytes: len(d.Payload), time: d.Time}
		l.replay.after = d.Key
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

// counted notes that all parts of a letter are settled: it can go.
func (r *replay) counted(key string) {
	r.open--
	r.spent = append(r.spent, key)
}
