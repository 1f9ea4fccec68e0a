package publisher

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// MaxBatchAhead is how far the time of a batch that comes in may be in the future. It is less than
// the time for which a marker outlives its window, so a repeat always meets its marker or is
// refused.
const MaxBatchAhead = time.Hour

// pastSlack is how long before the window the oldest increment of a request may be when the request comes.
const pastSlack = 24 * time.Hour

// maxMerged is the most increments of which the first part can say that they are merged. Statistics sum them, and more would soon wrap the sums.
const maxMerged = 1 << 32

var (
	// ErrClockSkew: the time of a batch is before the deduplication window, or more than
	// MaxBatchAhead ahead. Nothing of the batch was done.
	ErrClockSkew = errors.New("clock skew")

	// ErrOtherPrincipal: a batch has a key of another caller. Nothing of the batch was done.
	ErrOtherPrincipal = errors.New("another caller's key")
)

// A BatchReceiver puts batches on a bus that other processes have flushed. It takes them from anybody, so it
// checks all that an aggregator believes of a batch. It is safe for concurrent use.
type BatchReceiver struct {
	bus      Bus
	topic    string
	database wire.DatabaseTag
}

// NewBatchReceiver returns a BatchReceiver to the topic of a bus; empty for the default of Config.Topic. database is that
// of Config.
func NewBatchReceiver(bus Bus, topic string, database wire.DatabaseTag) *BatchReceiver {
	return &BatchReceiver{bus, cmp.Or(topic, defaultTopic), database}
}

// A Sender is the caller that a batch came from.
type Sender struct {
	// Name is the principal of the sender's keys; empty if callers are not authenticated.
	Name string
	// Limited is set if the sender may use only some counters. Its parts and completion markers then get ids that no
	// other sender can have. Otherwise it could make another's increments look like a repeat, or like
	// counted.
	Limited bool
	// Journal is that of Config. Parts of such counters get the sender's name.
	Journal func(counter string) bool
	// Past is set if the sender may count in series before the deduplication window, as PublishPast does. The parts
	// of other senders count at the time of the batch, or at their own.
	Past bool
}

// A Delivery is a batch that came in, checked by OpenBatch. It has no more than the bytes that go on
// the bus, because it may have to wait for its turn.
type Delivery struct {
	payload []byte // nil: no part is left
	uuid    string
	receipt wire.Receipt // of the batch as it was taken; zero if it has no flush
	parts   int          // of the batch as it came
	places  []int        // of the parts of payload in the batch as it came; nil: all are there
	expired []int        // places of the other parts
}

// An Outcome says which parts of a batch were not counted. All others are durable. Places are those
// in the batch as it came, from 0.
type Outcome struct {
	// Sent says how to read the other parts back. The receipt is zero if the batch has no flush.
	Sent  Sent
	Parts int // of the batch as it came
	// Reused are the parts whose ids were counted with other increments. A refused head includes all
	// parts that follow it.
	Reused []int
	// Expired are the parts with a time of their own that is before the deduplication window.
	Expired []int
}

// OpenBatch checks a batch that came from a sender at the time now, and gives its parts the ids that
// they count under. It computes the ids of parts with names, and lets nobody use another's
// principal; a key without one gets the sender's. A part whose own time is before the window is left
// out. A limited sender's message gets a flush of the sender's own, which is a hash of the one that
// it came with. So a repeat has the same completion marker and the same receipt. An error matches
// countmill.ErrInvalid, ErrClockSkew or ErrOtherPrincipal. The payload belongs to the Delivery. The
// batch has all parts that came, for their counters; some may count under other ids.
func OpenBatch(payload []byte, from Sender, now time.Time, window time.Duration) (*Delivery, *wire.Batch, error) {
	b, err := wire.Decode(payload)
	if newer, ok := errors.AsType[wire.NewerError](err); ok {
		return nil, nil, fmt.Errorf("%w: the batch has %w: upgrade this process first", countmill.ErrInvalid, newer)
	}
	if err != nil {
		return nil, nil, err
	}
	span := span{now.Add(-window), now.Add(MaxBatchAhead)}
	if err := span.check("batch", b.Time); err != nil {
		return nil, nil, err
	}
	d := &Delivery{payload: payload, parts: len(b.Parts)}
	// The batch gets the names that it is taken under, and its receipt has those.
	changed := from.ownFlush(b)
	for i := range b.Parts {
		if err := span.checkPart(i, &b.Parts[i]); err != nil {
			return nil, nil, err
		}
		own, err := from.own(&b.Parts[i], b.IsSingle())
		if err != nil {
			return nil, nil, fmt.Errorf("part %d: %w", i, err)
		}
		// A sender without Past may have such a minute by PublishPast, or by a window of its own that is longer. To
		// refuse the batch would block its publisher; a part left out would make all merged increments uncertain.
		if p := &b.Parts[i]; !from.Past && p.Minute != 0 && p.Minute.Time().Before(span.from.Add(-pastSlack)) {
			p.Minute, own = 0, true // it counts at its time
		}
		most := int64(0) // a publisher says it in the first part alone
		if i == 0 {
			most = maxMerged
		}
		if p := &b.Parts[i]; p.Increments > most {
			p.Increments, own = most, true
		}
		changed = changed || own
	}
	taken := &wire.Batch{Time: b.Time, Flush: b.Flush, Number: b.Number, Parts: d.drop(b.Parts, span.from)}
	switch {
	case len(taken.Parts) == 0:
		d.payload = nil
	case changed || len(taken.Parts) < len(b.Parts):
		d.payload = wire.Append(make([]byte, 0, len(payload)), taken)
	}
	if b.Flush != (wire.FlushID{}) {
		d.name(taken)
	}
	return d, b, nil
}

// name gives the message its names: that of its envelope, and that in receipts. If no part is left, the
// receipt is about nothing.
func (d *Delivery) name(taken *wire.Batch) {
	d.uuid = taken.Flush.MessageUUID(taken.Number)
	// The completion marker has the batch's time or, if the sender's clock is ahead by up to MaxBatchAhead, that of
	// the batch receiver. A marker outlives its window by more, so the receipt expires before the completion marker is removed.
	d.receipt.Time = taken.Time
	if len(taken.Parts) > 0 {
		d.receipt.Spans = []wire.Span{taken.Span()}
	}
}

// A span is the times that are accepted.
type span struct{ from, to time.Time }

func (s span) check(what string, t time.Time) error {
	switch {
	case t.Before(s.from):
		return fmt.Errorf("%w: %s: time %s is before the deduplication window (limit: %s)", ErrClockSkew, what, stamp(t), stamp(s.from))
	case t.After(s.to):
		return fmt.Errorf("%w: %s: time %s is more than %s ahead (limit: %s)", ErrClockSkew, what, stamp(t), MaxBatchAhead, stamp(s.to))
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func (s span) checkPart(i int, p *wire.Part) error {
	if p.Kind.Local() {
		return fmt.Errorf("%w: part %d: %s parts may only be in dead letters", countmill.ErrInvalid, i, p.Kind)
	}
	if p.Time.IsZero() || p.Time.Before(s.from) { // drop has the second case
		return nil
	}
	return s.check(fmt.Sprintf("part %d", i), p.Time)
}

// ownFlush gives a limited sender's batch a flush of the sender's own, and reports whether that changed
// it. A completion marker of its choice could say that another's message is settled.
func (s Sender) ownFlush(b *wire.Batch) (changed bool) {
	if !s.Limited || b.Flush == (wire.FlushID{}) {
		return false
	}
	single := b.IsSingle()
	b.Flush = wire.SentFlush(s.Name, b.Flush)
	if single { // it remains its own completion marker
		b.Parts[0].ID = b.Flush.Hash().Single(b.Number)
	}
	return true
}

// own makes a part the sender's own, and reports whether that changed it. A single part is its own with its flush.
func (s Sender) own(p *wire.Part, single bool) (changed bool, err error) {
	// Evidence names the token that a batch came in with, and no other.
	kept := s.Journal != nil && slices.ContainsFunc(p.Entries, func(e wire.Entry) bool { return s.Journal(e.Counter) })
	if p.Sender != s.Name && (kept || p.Sender != "") {
		p.Sender, changed = s.Name, true
	}
	if p.Kind == wire.Head && p.Key.Principal != s.Name {
		if p.Key.Principal != "" {
			return false, fmt.Errorf("%w: principal %q is not the caller (limit: %q)", ErrOtherPrincipal, p.Key.Principal, s.Name)
		}
		p.Key.Principal = s.Name // the ids follow from it on the other side
		return true, nil
	}
	// An id that the sender chose must not be that of another's part.
	if s.Limited && p.Kind == wire.Anonymous && !single {
		p.ID = wire.SentID(s.Name, p.ID)
		return true, nil
	}
	return changed, nil
}

// drop leaves out the parts that are too old to be recognised, and all that follows them.
// As dead letters they would let one sender fill the store.
func (d *Delivery) drop(all []wire.Part, from time.Time) (kept []wire.Part) {
	late := false // the nearest head is too old
	for i := range all {
		p := &all[i]
		old := !p.Time.IsZero() && p.Time.Before(from)
		if p.Kind == wire.Head {
			late = old
		}
		if old || late && p.Kind.Follows() {
			d.expired = append(d.expired, i)
		}
	}
	if d.expired == nil {
		return all
	}
	for i := range all {
		if _, gone := slices.BinarySearch(d.expired, i); !gone {
			kept, d.places = append(kept, all[i]), append(d.places, i)
		}
	}
	return kept
}

// Send puts the batch on the bus and returns when the bus has it durably. received is when it came
// in. After an error that matches countmill.ErrUnavailable nothing was or will be counted; every other error matches countmill.ErrOutcomeUnknown.
func (d *BatchReceiver) Send(ctx context.Context, in *Delivery, received time.Time) (Outcome, error) {
	out := Outcome{Parts: in.parts, Expired: in.expired}
	pieces, err := in.pieces()
	if err != nil {
		return out, err
	}
	all := joined{receipt: wire.Receipt{Database: d.database, Time: in.receipt.Time}}
	reused := make(map[wire.Use]struct{})
	for i, p := range pieces {
		reply := new(wire.Reply)
		// The sender may repeat it at any time, so the message is not marked wire.OfferOnce.
		m := message.NewMessageWithContext(wire.OfferReply(ctx, reply), p.uuid, p.payload)
		m.Metadata.Set(wire.MetaPublished, received.UTC().Format(time.RFC3339Nano))
		switch err := d.bus.Publish(d.topic, m); {
		case err == nil:
			all.add([]Sent{sentOf(reply, p.receipt)})
			maps.Copy(reused, reply.Reused())
		case i == 0 && errors.Is(err, countmill.ErrUnavailable) && !errors.Is(err, countmill.ErrOutcomeUnknown):
			return out, err
		default:
			return out, fmt.Errorf("%w: %w", countmill.ErrOutcomeUnknown, unclosed{err})
		}
	}
	out.Sent = all.sent()
	out.Reused, err = in.placesOf(reused)
	return out, err
}

// A piece is a message on the bus.
type piece struct {
	payload []byte
	uuid    string
	receipt wire.Receipt
}

// pieces are the messages of the delivery; none if no part is left. The names of the sender can make a batch six times as large. It then goes in
// several messages, because a bus need not take larger ones. Their flush is a hash of the content: a repeat has the same or
// another one, and never other parts under the same completion marker.
func (d *Delivery) pieces() ([]piece, error) {
	switch {
	case d.payload == nil:
		return nil, nil
	case len(d.payload) <= wire.MaxBatch:
		return []piece{{d.payload, d.uuid, d.receipt}}, nil
	}
	b, err := wire.Decode(d.payload)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(d.payload)
	flush := wire.FlushID(sum[:len(wire.FlushID{})])
	payloads, _ := wire.Pack(b.Time, flush, b.Parts, wire.MaxBatch)
	all := make([]piece, len(payloads))
	for i := range payloads {
		own := wire.Batch{Flush: flush, Number: i}
		all[i] = piece{payloads[i], flush.MessageUUID(i), wire.Receipt{Time: b.Time, Spans: []wire.Span{own.Span()}}}
	}
	return all, nil
}

// placesOf returns the places of the parts that were not counted.
func (d *Delivery) placesOf(reused map[wire.Use]struct{}) (places []int, err error) {
	if len(reused) == 0 {
		return nil, nil
	}
	b, err := wire.Decode(d.payload)
	if err != nil {
		return nil, err
	}
	for i := range b.Parts {
		p := &b.Parts[i]
		if _, ok := reused[wire.Use{ID: p.ID, Fingerprint: p.Fingerprint()}]; !ok || p.Kind == wire.Follower {
			continue
		}
		if d.places != nil {
			i = d.places[i]
		}
		places = append(places, i)
	}
	return places, nil
}
