package aggregator

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// A letter is a dead letter on its way to the store. The messages that it came in are
// acknowledged when it is there, not before.
type letter struct {
	dead    Dead
	holders []*held // one entry per part that the letter settles
}

// refuse sets a part aside for good. Followers of a head share its fate and its
// letter: a request that was refused has nothing of it counted.
func (l *loop) refuse(p *part, reason string, maybe bool) {
	parts := append([]*part{p}, p.followers...)
	p.followers = nil
	dead := &letter{dead: Dead{
		Source: p.ID.String(), Payload: batchOf(parts...), Time: p.at, Reason: reason, Maybe: maybe,
	}}
	for _, q := range parts {
		q.eachHolder(func(h *held) { dead.holders = append(dead.holders, h) })
	}
	l.forget(p)
	l.setAside(dead)
}

func (l *loop) setAside(dead *letter) {
	dead.dead.At = l.a.clock.now()
	dead.dead.Key = letterKey(dead.dead.Source, dead.dead.Reason)
	l.letters = append(l.letters, dead)
	l.a.cfg.Logger.Error("dead letter", "source", dead.dead.Source, "reason", dead.dead.Reason, "key", dead.dead.Key)
}

// letterKey is the same for the same thing set aside for the same reason.
func letterKey(source, reason string) string {
	sum := sha256.Sum256([]byte(source + "\x00" + reason))
	return hex.EncodeToString(sum[:16])
}

// A burial is the answer to a write of dead letters.
type burial struct {
	letters []*letter
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
	if n < 1 {
		l.buryAfter = now.Add(time.Second / time.Duration(l.a.cfg.DeadLetterRate))
		return
	}
	l.limiter.AllowN(now, n)
	batch := l.letters[:n:n]
	l.letters, l.burying = l.letters[n:], true
	go func() { l.buried <- burial{batch, l.a.buryAll(batch)} }()
}

func (a *Aggregator) buryAll(batch []*letter) error {
	dead := make([]Dead, len(batch))
	for i := range batch {
		dead[i] = batch[i].dead
	}
	ctx, cancel := a.callContext()
	defer cancel()
	return a.store.Bury(ctx, dead)
}

func (l *loop) afterBurial(b burial) {
	l.burying = false
	if b.err != nil {
		l.buryFails++
		l.letters = append(b.letters, l.letters...)
		l.buryAfter = time.Now().Add(backoff(l.buryFails))
		l.a.cfg.Logger.Warn("dead letters not written, will be tried again", "letters", len(b.letters), "err", b.err)
		return
	}
	l.buryFails = 0
	l.a.stats.deadLetters.Add(int64(len(b.letters)))
	for _, dead := range b.letters {
		for _, h := range dead.holders {
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
