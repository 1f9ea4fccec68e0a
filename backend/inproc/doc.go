// Package inproc is a bus inside one process. It implements Watermill's
// message.Publisher and message.Subscriber.
//
// # Delivery semantics
//
// Subscribers of a topic share its messages: each message goes to one of them. A
// subscriber may hold as many unacked messages as the bus has room for. Order is not
// kept. Messages wait for a subscriber as long as it takes; nothing is ever dropped
// because nobody has subscribed yet. Payloads are handed over, not copied: neither
// side may change them.
//
// With WaitForAck, the way countmill up runs it, Publish answers for the message's
// whole life:
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
// It hands the reply of a message (package wire) to the subscriber: with the ack the publisher knows
// which parts were not counted.
//
// A message that a subscriber holds is never delivered a second time, and there is no
// deadline for its ack: who folds from this bus writes no markers for anonymous parts.
// That is why the end of a subscriber is ErrClosed and not an error that makes a
// publisher send the message again.
//
// Without WaitForAck, Publish returns when the message is in memory, and the message
// is delivered until it is acked: again after a nack, and again when its subscriber
// ends. Closing the bus loses what is not acked.
//
// # Bounds
//
// Messages not settled take at most MaxBytes. Publish waits for room.
package inproc
