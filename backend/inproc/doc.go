// Package inproc is a bus inside one process. It implements Watermill's message.Publisher and
// message.Subscriber.
//
// # Delivery semantics
//
// The subscribers of a topic share its messages: each message goes to one of them. A subscriber may
// hold as many unacked messages as the bus has room for. Order is not kept. A message waits for a
// subscriber without a limit; the bus never drops one because nobody has subscribed yet. Payloads are
// handed over, not copied: neither side may change them.
//
// With WaitForAck, as countmill up runs it, Publish waits for the message's outcome:
//
//	Publish returns               when
//	nil                           the subscriber acked the message
//	an error                      it nacked the message: certainly not applied, send it
//	                              again
//	ErrUnavailable                the message's context ended before a subscriber had it
//	ErrOutcomeUnknown             ... while a subscriber had it
//	ErrClosed                     the bus was closed, or the subscriber that had the
//	                              message ended without settling it: maybe applied
//
// The subscriber gets the message's reply (package wire), in which it lists the parts that were not
// counted. The publisher reads it after the ack.
//
// A message that a subscriber holds is never delivered a second time, and its ack has no deadline. If
// its sender repeats no message that may be applied (wire.OfferOnce), the aggregator writes no markers
// for its anonymous parts. If the subscriber ends, Publish returns ErrClosed, because any other error
// would make the publisher send the message again.
//
// Without WaitForAck, Publish returns when the message is in memory. The bus delivers the message until
// it is acked: again after a nack, and again when its subscriber ends. Closing the bus loses unacked
// messages.
//
// # Bounds
//
// Unsettled messages take at most MaxBytes. Publish waits for room.
package inproc
