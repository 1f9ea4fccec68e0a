// Package nats is a bus over a JetStream stream of NATS. It implements Watermill's message.Publisher and
// message.Subscriber with NATS's own client. docs/adr/051-nats-by-its-own-client.md says why.
//
// # Delivery semantics
//
// At least once, in no order. Publish returns nil when the stream has the message. After any error but
// countmill.ErrClosed, the stream may have the message, or may get it within 10 s: send it again.
//
// A durable pull consumer delivers each message to one process, until the message is acked. A subscriber
// may hold MaxOutstanding messages, and MaxBytes. Their leases are extended for as long as it holds
// them. So the messages of a process that dies are delivered again within the consumer's ack wait.
//
// When the context of Subscribe ends, or Close is called:
//
//	message                                      goes
//	acked before that                            to NATS as an ack: it does not come back
//	delivered and not settled                    back, to be delivered again
//	taken from NATS and not delivered yet        back
//
// An ack waits for a broken connection to come back. If a sent ack does not arrive, NATS
// delivers the message again.
//
// Every message carries the stream, its publish time and an id under the names wire.Meta... The id is the
// header Nats-Msg-Id of the sender if it has one. Otherwise it is the sequence with the publish time: a
// stream that was made again, or that a crash has shortened, uses its sequences again.
//
// # Messages that are given up
//
// A message that was delivered more than 100 times goes to the channel of GivenUp, not to that of
// Subscribe. The stream keeps it until it is acked.
//
// # The connection
//
// The client connects again by itself, for ever, to any server of the cluster. Every 5 s the bus
// looks the consumer up. Ready reports a failure, and Unseen the age of the oldest message that no
// process has taken.
package nats
