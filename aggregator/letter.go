package aggregator

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/wire"
)

// A letter is a dead letter on its way to the store. The messages that it came in are
// acknowledged when it is there, not before.
type letter struct {
	dead    Dead    // without Key, Source and Payload where it is of parts
	parts   []*part // that it is of; nil where it is of a message
	holders []*held // one entry per part that the letter settles
	// unmarked is true for a part without a marker: if its message came again the part
	// could be counted and stand here as well.
	unmarked bool
}

// refuse sets a part aside for good. Followers of a head share its fate and its
// letter: a request that was refused has nothing of it counted.
func (l *loop) refuse(p *part, reason string, maybe bool) {
	parts := append([]*part{p}, p.takeFollowers()...)
	dead := &letter{unmarked: !p.marked, parts: parts, dead: Dead{Time: p.from, Reason: reason, Maybe: maybe}}
	for _, q := range parts {
		q.eachHolder(func(h *held) { dead.holders = append(dead.holders, h) })
	}
	l.forget(p)
	l.setAside(dead)
}

// complete returns the letter as the store gets it. A letter of parts is encoded only now:
// a million letters may wait, and each may need a copy of its request's head.
func (d *letter) complete() Dead {
	if d.parts == nil {
		return d.dead
	}
	kept, full := distinct(d.parts), d.dead
	full.Source, full.Payload = kept[0].ID.String(), batchOf(kept...)
	cause := full.Reason
	if strings.HasPrefix(cause, beyondWindow) {
		cause = beyondWindow // the same whatever the window is
	}
	full.Key = letterKey(full.Source, cause, content(kept))
	return full
}

// distinct leaves out the copies that followers of copies of a head are.
func distinct(parts []*part) (kept []*part) {
	seen := make(map[wire.PartID]struct{}, len(parts))
	for _, p := range parts {
		if _, ok := seen[p.ID]; !ok {
			seen[p.ID] = struct{}{}
			kept = append(kept, p)
		}
	}
	return kept
}

// content names what parts hold, the same in every delivery: times may differ.
func content(parts []*part) []byte {
	var b []byte
	for _, p := range parts {
		b = binary.BigEndian.AppendUint64(append(b, p.ID[:]...), uint64(p.Fingerprint()))
	}
	return b
}

// refuseMessage sets a message aside that cannot be read.
func (l *loop) refuseMessage(h *held, payload []byte, err error) {
	h.open = 1
	key := letterKey(h.source, err.Error(), payload)
	var newer wire.NewerError
	if errors.As(err, &newer) && len(payload) <= wire.MaxBatch {
		key = newerKey(newer.Version, h.source, payload)
	}
	l.setAside(&letter{
		dead: Dead{
			Key: key, Source: h.source, Payload: payload, Time: h.time, Reason: err.Error(),
			Maybe: errors.As(err, new(tooOld)),
		},
		holders: []*held{h},
	})
}

func (l *loop) setAside(dead *letter) {
	dead.dead.At = l.a.clock.Now()
	l.letters = append(l.letters, dead)
}

// letterKey is the same for the same thing set aside for the same reason. The source
// alone does not tell things apart: one id may be reused with ever other deltas, and
// every message of a request begins with a copy of its head.
func letterKey(source, reason string, content []byte) string {
	sum := sha256.Sum256(append([]byte(source+"\x00"+reason+"\x00"), content...))
	return hex.EncodeToString(sum[:16])
}

// A burial is the answer to a write of dead letters.
type burial struct {
	letters []*letter
	dead    []Dead // as the store got them
	err     error
}

// maxBurial is how many letters are written in one call.
const maxBurial = 10

// bury writes dead letters, as many as the rate allows; the rest is held. A flood of
// them is then loud (lag, held messages) and does not fill the store.
func (l *loop) bury(now time.Time) {
	if l.burying || len(l.letters) == 0 || now.Before(l.buryAfter) {
		return
	}
	n := min(len(l.letters), maxBurial, int(l.limiter.TokensAt(now)))
	if l.buryFails > 0 {
		n = min(n, 1) // it may be one of them that cannot be written
	}
	if n < 1 {
		l.buryAfter = now.Add(time.Second / time.Duration(l.a.cfg.DeadLetterRate))
		return
	}
	l.limiter.AllowN(now, n)
	batch := slices.Clone(l.letters[:n])
	for _, dead := range batch {
		if dead.unmarked {
			dead.holders[0].final = true // whatever the answer to the write will be
		}
	}
	l.letters, l.burying = slices.Delete(l.letters, 0, n), true
	l.a.cfg.Env.Go(func() { l.buried <- l.a.buryAll(batch) })
}

func (a *Aggregator) buryAll(batch []*letter) burial {
	dead := make([]Dead, len(batch))
	for i := range batch {
		dead[i] = batch[i].complete()
	}
	ctx, cancel := a.callContext()
	defer cancel()
	return burial{batch, dead, a.store.Bury(ctx, dead)}
}

func (l *loop) afterBurial(b burial) {
	l.burying = false
	if b.err != nil {
		l.buryFails++
		l.letters = append(l.letters, b.letters...) // at the end: they hold up no others
		l.buryAfter = time.Now().Add(l.backoff(l.buryFails))
		l.a.cfg.Logger.Warn("dead letters not written, will be tried again", "letters", len(b.letters), "err", b.err)
		return
	}
	l.buryFails = 0
	l.a.stats.deadLetters.Add(int64(len(b.letters)))
	for i, d := range b.dead {
		// Not before: the rate keeps a flood out of the log as well.
		l.a.cfg.Logger.Error("dead letter", "source", d.Source, "reason", d.Reason, "key", d.Key)
		for _, h := range b.letters[i].holders {
			h.stays = h.stays || h.letter == AskKey(d.Key)
			l.done(h)
		}
	}
}

// sourceOf names a message: the broker's id where there is one, else Watermill's, which
// is empty for messages of other publishers; then its content has to do.
func sourceOf(m *message.Message) string {
	if id := cmp.Or(m.Metadata.Get(MetaBrokerID), m.UUID); id != "" {
		return id
	}
	sum := sha256.Sum256(m.Payload)
	return "sha256:" + hex.EncodeToString(sum[:])
}
