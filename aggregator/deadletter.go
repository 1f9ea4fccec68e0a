package aggregator

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A letter is a dead letter on its way to the store. The messages that it came in are
// acknowledged when it is there, not before.
type deadLetter struct {
	dead    store.DeadLetter // without Key, Source and Payload where it is of parts
	parts   []*part          // that it is of; nil where it is of a message
	holders []*held          // one entry per part that the letter settles
	// unmarked is true for a part without a marker: if its message came again the part
	// could be counted and stand here as well.
	unmarked bool
}

// refuse sets a part aside for good. Followers of a head share its fate and its
// letter: a request that was refused has nothing of it counted.
func (l *loop) refuse(p *part, reason string, maybe bool) {
	dead := &deadLetter{unmarked: !p.marked, dead: store.DeadLetter{Time: p.from, Reason: reason, Maybe: maybe}}
	var told []*held
	p.takeApart()
	for _, q := range append([]*part{p}, p.takeFollowers()...) {
		waiting := len(dead.holders)
		q.eachHolder(func(h *held) {
			// A conflict that the publisher hears of needs no letter; all others do.
			if reason == idReused && h.tell(p) {
				told = append(told, h)
				return
			}
			dead.holders = append(dead.holders, h)
		})
		if len(dead.holders) > waiting {
			dead.parts = append(dead.parts, q)
		}
	}
	l.forget(p)
	if len(told) > 0 {
		l.a.stats.conflicts.Add(1)
	}
	for _, h := range told {
		l.done(h)
	}
	if len(dead.parts) > 0 {
		l.setAside(dead)
	}
}

// tell adds a part to the reply of the message: it was not counted, because its id was applied with
// other increments. It reports false where nobody reads that. A rest of a request whose head
// was applied has no id that its sender knows.
func (h *held) tell(p *part) bool {
	if h.reply == nil || p.Kind == wire.Rest || p.Kind == wire.Anonymous {
		return false
	}
	// Its sender drops it, and goes on.
	h.reply.Add(wire.Use{ID: p.ID, Fingerprint: p.fingerprint})
	return true
}

// complete returns the letter as the store gets it. A letter of parts is encoded only now:
// a million letters may wait, and each may need a copy of its request's head.
func (d *deadLetter) complete() store.DeadLetter {
	if d.parts == nil {
		return d.dead
	}
	kept, full := distinct(d.parts), d.dead
	full.Source, full.Payload = kept[0].ID.String(), batchOf(kept...)
	full.Key = partsKey(&full, kept)
	return full
}

// partsKey is the key of a letter that holds these parts.
func partsKey(d *store.DeadLetter, kept []*part) string {
	cause := d.Reason
	if strings.HasPrefix(cause, beyondWindow) {
		cause = beyondWindow // the same whatever the window is
	}
	return letterKey(d.Source, cause, content(kept))
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
	l.setAside(&deadLetter{
		dead: store.DeadLetter{
			Key: letterKey(h.source, err.Error(), payload), Source: h.source, Payload: payload, Time: h.time, Reason: err.Error(),
			Maybe: errors.As(err, new(tooOld)),
		},
		holders: []*held{h},
	})
}

// letterKey is the same for the same thing set aside for the same reason. The source
// alone does not tell things apart: one id may be reused with ever other deltas, and
// every message of a request begins with a copy of its head.
func letterKey(source, reason string, content []byte) string {
	sum := sha256.Sum256(append([]byte(source+"\x00"+reason+"\x00"), content...))
	return hex.EncodeToString(sum[:16])
}

// setAside queues a letter.
func (l *loop) setAside(dead *deadLetter) {
	dead.dead.At = l.a.clock.Now()
	l.letters = append(l.letters, dead)
}

// sourceOf names a message: the broker's id where there is one, else Watermill's, which
// is empty for messages of other publishers; then its content has to do.
func sourceOf(m *message.Message) string {
	if id := cmp.Or(m.Metadata.Get(wire.MetaBrokerID), m.UUID); id != "" {
		return id
	}
	sum := sha256.Sum256(m.Payload)
	return "sha256:" + hex.EncodeToString(sum[:])
}
