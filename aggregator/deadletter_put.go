package aggregator

import (
	"log/slog"
	"slices"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A putResult is the result of a call of PutDeadLetters.
type putResult struct {
	letters [][]*deadLetter    // each inner slice becomes one dead letter
	dead    []store.DeadLetter // as they were sent to the store
	err     error
}

const (
	// maxPut is the most letters of one call.
	maxPut = 10
	// maxJoined is the most letters that are joined in one. It bounds the work of the person who
	// looks at the letter, and is a guess.
	maxJoined = 1000
)

// putDeadLetters writes as many dead letters as the rate allows, and holds the others. So a flood of
// unreadable messages shows in the lag and in the held messages, and does not fill the store.
func (l *loop) putDeadLetters(now time.Time) {
	if l.putting || len(l.letters) == 0 || now.Before(l.putAfter) {
		return
	}
	n := min(maxPut, int(l.limiter.TokensAt(now)))
	if l.putFails > 0 {
		n = min(n, 1) // the store may refuse one of them
	}
	if n < 1 {
		l.putAfter = now.Add(time.Second / time.Duration(l.a.cfg.DeadLetterRate))
		return
	}
	batch := l.nextDeadLetters(n)
	l.limiter.AllowN(now, len(batch))
	for _, joined := range batch {
		for _, dead := range joined {
			if dead.unmarked {
				dead.holders[0].final = true // the write may happen even if it reports an error
			}
		}
	}
	l.putting = true
	l.a.cfg.env.Go(func() { l.puts <- l.a.putAll(batch) })
}

// crowded reports whether more letters wait than can be written within a second.
func (l *loop) crowded() bool { return len(l.letters) > l.a.cfg.DeadLetterRate }

// nextDeadLetters takes up to n letters off the queue. If the queue is crowded, it joins letters with
// the same reason: one request can have thousands of refused parts, and no other message may wait
// behind their letters. After a failed write each letter goes alone.
func (l *loop) nextDeadLetters(n int) (batch [][]*deadLetter) {
	join := l.crowded() && l.putFails == 0
	open := make(map[cause]*joint)
	taken := 0
	for _, d := range l.letters {
		j := open[d.cause()]
		switch {
		case join && j != nil && j.takes(d):
			batch[j.at] = append(batch[j.at], d)
			taken++
			continue
		case len(batch) == n:
			l.letters = slices.Delete(l.letters, 0, taken)
			return batch
		case join && d.joins():
			j = &joint{at: len(batch)}
			open[d.cause()] = j
			j.takes(d)
		}
		batch = append(batch, []*deadLetter{d})
		taken++
	}
	l.letters = slices.Delete(l.letters, 0, taken)
	return batch
}

// A cause is the part of a letter that is the same in all letters joined with it.
type cause struct {
	reason string
	maybe  bool
}

func (d *deadLetter) cause() cause { return cause{d.dead.Reason, d.dead.Maybe} }

// A joint is a letter that other letters can join.
type joint struct{ at, letters, bytes int }

// takes adds a letter to the count if the letter can join and there is room for it.
func (j *joint) takes(d *deadLetter) bool {
	if j.letters == maxJoined || !d.joins() {
		return false
	}
	bytes := j.bytes
	for _, p := range d.parts {
		bytes += wire.SizePart(&p.Part) + joinedTime
	}
	if j.letters > 0 && bytes > wire.MaxBatch {
		return false
	}
	j.letters, j.bytes = j.letters+1, bytes
	return true
}

// joinedTime is the most bytes that a time of its own adds to an encoded part.
const joinedTime = 12

// joins reports whether a letter can be joined with others. A letter of a follower of a request
// cannot: it needs a copy of the head before it.
func (d *deadLetter) joins() bool {
	if d.parts == nil || d.unmarked || d.parts[0].Kind == wire.Follower {
		return false
	}
	// A replay request must keep its key: the person who asked finds the letter by it.
	if slices.ContainsFunc(d.holders, func(h *held) bool { return h.letter != "" }) {
		return false
	}
	// A joined part carries its own time, and 0 means none.
	return !slices.ContainsFunc(d.parts, func(p *part) bool { return p.at.UnixMicro() <= 0 })
}

// joined makes one letter of several. Each part carries its own time.
func joined(letters []*deadLetter) store.DeadLetter {
	full, batch := letters[0].dead, wire.Batch{Time: letters[0].parts[0].holder.time}
	var all []*part
	seen := make(map[wire.Use]struct{}, len(letters))
	for _, d := range letters {
		use := wire.Use{ID: d.parts[0].ID, Fingerprint: d.parts[0].fingerprint}
		if _, ok := seen[use]; ok && len(d.parts) == 1 {
			continue // a copy of a part that is in the letter already
		}
		seen[use] = struct{}{}
		if d.dead.Time.Before(full.Time) {
			full.Time = d.dead.Time
		}
		for _, p := range distinct(d.parts) {
			q := p.Part
			q.Time = p.at
			// Its head was counted, so it need not follow one any more.
			if q.Kind == wire.IdentifiedFollower && p == d.parts[0] {
				q.Kind, q.Request = wire.Identified, 0
			}
			all, batch.Parts = append(all, p), append(batch.Parts, q)
		}
	}
	full.Source, full.Payload = all[0].ID.String(), wire.Append(nil, &batch)
	full.Key = partsKey(&full, all)
	return full
}

func (a *Aggregator) putAll(batch [][]*deadLetter) putResult {
	dead := make([]store.DeadLetter, len(batch))
	for i, letters := range batch {
		if dead[i] = letters[0].complete(); len(letters) > 1 {
			dead[i] = joined(letters)
		}
		dead[i].DeadLetterRefs = a.refsOf(letters, dead[i].Key)
	}
	ctx, cancel := a.callContext()
	defer cancel()
	return putResult{batch, dead, a.store.PutDeadLetters(ctx, dead)}
}

func (l *loop) afterPut(b putResult) {
	l.putting = false
	if b.err != nil {
		l.putFails++
		l.letters = append(l.letters, slices.Concat(b.letters...)...) // at the end, so that they hold up no others
		l.putAfter = time.Now().Add(l.backoff(l.putFails))
		l.a.cfg.Logger.Warn("dead letters not written, will try again", "letters", len(b.dead), "err", b.err)
		return
	}
	l.putFails = 0
	l.a.stats.deadLetters.Add(int64(len(b.dead)))
	l.a.stats.lastDeadLetter.Store(l.a.cfg.env.Now().UnixMicro())
	for i := range b.dead {
		l.writtenLog.add(&b.dead[i])
		for _, d := range b.letters[i] {
			for _, h := range d.holders {
				h.stays = h.stays || h.letter == store.ReplayKey(b.dead[i].Key)
				l.done(h)
			}
		}
	}
	l.writtenLog.write(l.a.cfg.Logger, time.Now())
}

// A writtenLog collects written letters for the log: one line a second.
type writtenLog struct {
	letters int
	first   store.DeadLetter
	next    time.Time // the earliest time of the next line
}

func (e *writtenLog) add(d *store.DeadLetter) {
	if e.letters++; e.letters == 1 {
		e.first = store.DeadLetter{Source: d.Source, Reason: d.Reason, Key: d.Key}
	}
}

// write logs a line if letters were written since the last one and it is time.
func (e *writtenLog) write(log *slog.Logger, now time.Time) {
	if e.letters == 0 || now.Before(e.next) {
		return
	}
	log.Error("dead letters", "letters", e.letters, "source", e.first.Source, "reason", e.first.Reason, "key", e.first.Key)
	*e = writtenLog{next: now.Add(time.Second)}
}
