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

// A deadLetter is a dead letter on its way to the store. The messages that its parts came in are
// acknowledged when it is written, not before.
type deadLetter struct {
	dead    store.DeadLetter // without Key, Source and Payload if it is of parts
	parts   []*part          // of the letter; nil if it is of a message
	holders []*held          // one entry for each part that the letter settles
	// unmarked is true for a part without a marker: if its message came again, the part could be
	// counted as well.
	unmarked bool
	// refs has an entry for each message with a completion marker, without the letter's key.
	refs []store.DeadLetterRef
}

// refuse sets a part aside for good. The followers of a head go into the same letter: nothing of
// a refused request is counted.
func (l *loop) refuse(p *part, reason string, maybe bool) {
	if p.isCompletion() {
		l.dropCompletion(p)
		return
	}
	dead := &deadLetter{unmarked: !p.marked, dead: store.DeadLetter{Time: p.from, Reason: reason, Maybe: maybe}}
	var reported []*held
	for _, q := range append([]*part{p}, p.takeFollowers()...) {
		waiting := len(dead.holders)
		q.eachHolder(func(h *held) {
			// A conflict needs no letter if the publisher gets it in a reply.
			if reason == store.ReasonIDReused && h.report(p) {
				reported = append(reported, h)
				return
			}
			dead.holders, h.deadLettered = append(dead.holders, h), true
			dead.note(h, q)
		})
		if len(dead.holders) > waiting {
			dead.parts = append(dead.parts, q)
		}
	}
	l.forget(p)
	if len(reported) > 0 {
		l.a.stats.conflicts.Add(1)
	}
	for _, h := range reported {
		l.done(h)
	}
	if len(dead.parts) > 0 {
		l.queueDeadLetter(dead)
	}
}

// report adds a part to the reply of the message: it was not counted, because its id was applied
// with other increments. It returns false if nobody reads the reply, or if the sender does not
// know the part's id: a follower of a request has none of its own. A sender that could make dead letters
// of such parts could stop all others.
func (h *held) report(p *part) bool {
	if h.reply == nil || p.Kind == wire.Follower {
		return false
	}
	// The sender drops it and goes on.
	h.reply.Add(wire.Use{ID: p.ID, Fingerprint: p.fingerprint})
	return true
}

// complete returns the letter for the store. It encodes the parts only now: a million letters may
// wait, and each may need a copy of its request's head.
func (d *deadLetter) complete() store.DeadLetter {
	if d.parts == nil {
		return d.dead
	}
	kept, full := distinct(d.parts), d.dead
	full.Source, full.Payload = kept[0].ID.String(), batchOf(kept...)
	full.Key = partsKey(&full, kept)
	return full
}

// partsKey is the key of a letter of these parts.
func partsKey(d *store.DeadLetter, kept []*part) string {
	cause := d.Reason
	if strings.HasPrefix(cause, beyondWindow) {
		cause = beyondWindow // one cause for every length of the window
	}
	return deadLetterKey(d.Source, cause, content(kept))
}

// distinct removes duplicate parts. They appear if a request with a key was delivered twice.
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

// content identifies the ids and deltas of parts. It is the same in every delivery; times may
// differ.
func content(parts []*part) []byte {
	var b []byte
	for _, p := range parts {
		b = binary.BigEndian.AppendUint64(append(b, p.ID[:]...), uint64(p.Fingerprint()))
	}
	return b
}

// refuseMessage sets aside a message that cannot be read.
func (l *loop) refuseMessage(h *held, payload []byte, err error) {
	h.open, h.deadLettered = 1, true
	l.queueDeadLetter(&deadLetter{
		dead: store.DeadLetter{
			Key: deadLetterKey(h.source, err.Error(), payload), Source: h.source, Payload: payload, Time: h.time, Reason: err.Error(),
			Maybe: errors.As(err, new(tooOld)),
		},
		holders: []*held{h}, refs: wholeDeadLetterRef(h),
	})
}

// deadLetterKey is the same if the same content is set aside for the same reason. The source is not
// enough to distinguish letters: one id may be reused with different deltas, and every message of
// a request begins with a copy of its head.
func deadLetterKey(source, reason string, content []byte) string {
	sum := sha256.Sum256(append([]byte(source+"\x00"+reason+"\x00"), content...))
	return hex.EncodeToString(sum[:16])
}

// queueDeadLetter queues a letter to be written.
func (l *loop) queueDeadLetter(dead *deadLetter) {
	dead.dead.At = l.a.clock.Now()
	l.letters = append(l.letters, dead)
}

// sourceOf names a message by the broker's id, or by Watermill's UUID. Publishers without
// Watermill set neither on some buses; the name is then a hash of the content.
func sourceOf(m *message.Message) string {
	if id := cmp.Or(m.Metadata.Get(wire.MetaBrokerID), m.UUID); id != "" {
		return id
	}
	sum := sha256.Sum256(m.Payload)
	return "sha256:" + hex.EncodeToString(sum[:])
}
