package wire

import (
	"context"
	"time"
)

// A Use is one use of a part's id. The same id with another fingerprint is another Use.
type Use struct {
	ID          PartID
	Fingerprint Fingerprint
}

// A Reply reports to the publisher of a message whether it was counted, and which of its parts were
// not, because their ids were applied with other increments. An aggregator that has a Reply writes no dead
// letter for such a part. The aggregator adds to the Reply until it acknowledges the message. The
// publisher reads it after the bus has reported the acknowledgement.
type Reply struct {
	reused      map[Use]struct{}
	expired     map[Use]struct{}
	passed      bool // the bus hands it over
	counted     bool
	countedAsOf time.Time
	receipt     Receipt
}

// Count notes that each part of the message is in the store, or in Reused. The aggregator calls it
// right before the acknowledgement, unless it has set a part aside.
func (r *Reply) Count() { r.counted = true }

// Passed reports whether the bus passes replies. If it does not, nobody reports anything here.
func (r *Reply) Passed() bool { return r.passed }

// Counted reports whether Count was called.
func (r *Reply) Counted() bool { return r.counted }

// Add notes a part that was not counted. A refused head includes all parts that follow it.
func (r *Reply) Add(u Use) {
	if r.reused == nil {
		r.reused = make(map[Use]struct{})
	}
	r.reused[u] = struct{}{}
}

// Reused returns the parts that were not counted; nil if there are none.
func (r *Reply) Reused() map[Use]struct{} { return r.reused }

// AddExpired notes a part that the other end of the bus leaves out, because its time is before the deduplication
// window there. An earlier try may have been counted: the outcome is unknown.
func (r *Reply) AddExpired(u Use) {
	if r.expired == nil {
		r.expired = make(map[Use]struct{})
	}
	r.expired[u] = struct{}{}
}

// Expired returns the parts of AddExpired; nil if there are none.
func (r *Reply) Expired() map[Use]struct{} { return r.expired }

type (
	offeredReply struct{}
	heldReply    struct{}
)

// OfferReply adds a reply to the context of a message before it is published.
func OfferReply(ctx context.Context, r *Reply) context.Context {
	return context.WithValue(ctx, offeredReply{}, r)
}

// PassReply copies the reply from the context of a published message to the context of its
// delivery. Only a bus may call it whose Publish returns nil exactly if the message was
// acknowledged. With another bus an aggregator would write no dead letter, and nobody would read
// the reply.
func PassReply(delivered, published context.Context) context.Context {
	if r, ok := published.Value(offeredReply{}).(*Reply); ok {
		r.passed = true
		return context.WithValue(delivered, heldReply{}, r)
	}
	return delivered
}

type offeredOnce struct{}

// OfferOnce marks the context of a message before it is published: its sender sends it again only
// after an error that says that nobody applied it. A batch that came in from another process may
// come in again at any time, and is not marked.
func OfferOnce(ctx context.Context) context.Context {
	return context.WithValue(ctx, offeredOnce{}, true)
}

// OfferedOnce reports whether the context of a published message is marked (OfferOnce).
func OfferedOnce(published context.Context) bool { return published.Value(offeredOnce{}) != nil }

type deliveredOnce struct{}

// DeliverOnce marks the context of a delivered message: its content never comes again after an
// aggregator may have applied it. Only a bus inside the process can say so, and only of a message
// whose sender says so too (OfferOnce).
func DeliverOnce(delivered context.Context) context.Context {
	return context.WithValue(delivered, deliveredOnce{}, true)
}

// DeliveredOnce reports whether the message of a context cannot come again (DeliverOnce).
func DeliveredOnce(ctx context.Context) bool { return ctx.Value(deliveredOnce{}) != nil }

// ReplyOf returns the reply of a delivered message; nil if it has none.
func ReplyOf(ctx context.Context) *Reply {
	r, _ := ctx.Value(heldReply{}).(*Reply)
	return r
}

// Answer notes the answer of the other end of the bus to the message. receipt is the message's name there,
// where it may have another flush; zero if it has none. If the message is counted already, totals of
// countedAsOf or later contain it; otherwise countedAsOf is zero.
func (r *Reply) Answer(receipt Receipt, countedAsOf time.Time) {
	r.passed, r.counted = true, !countedAsOf.IsZero()
	r.receipt, r.countedAsOf = receipt, countedAsOf
}

// Receipt is the receipt of Answer.
func (r *Reply) Receipt() Receipt { return r.receipt }

// CountedAsOf is the moment of Answer.
func (r *Reply) CountedAsOf() time.Time { return r.countedAsOf }

// OfferedReply returns the reply in the context of a published message, for a bus that gets the
// answer itself; nil if the publisher asks for none. Call Answer, and Add, before Publish returns nil.
func OfferedReply(published context.Context) *Reply {
	r, _ := published.Value(offeredReply{}).(*Reply)
	return r
}
