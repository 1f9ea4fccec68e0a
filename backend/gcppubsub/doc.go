// Package gcppubsub is a bus over Google Cloud Pub/Sub. It implements Watermill's
// message.Publisher and message.Subscriber with Watermill's Google publisher and
// subscriber, and adds what a pipeline that must not lose or repeat needs: acks that
// leave before the subscriber ends, one stream a process, errors that name the command
// that mends them, and a subscriber that says when it is deaf.
//
// # Delivery semantics
//
// At least once, in no order. Publish returns nil when Pub/Sub has the messages
// durably. After any error but countmill.ErrClosed the message may have been taken, and
// may still be for PublishTimeout: send it again.
//
// A message is delivered until it is acked; a subscriber may hold MaxOutstanding
// messages. Their leases are extended for MaxExtension, by AckExtension at a time, so
// that those of a process that dies come back within AckExtension.
//
// When the context of Subscribe ends, or Close is called:
//
//	message                                      goes
//	acked before that                            to Pub/Sub as an ack: it does not come back
//	delivered and not settled                    back, to be delivered again
//	taken from Pub/Sub and not delivered yet     back
//
// Watermill's subscriber alone gives back the first kind too, when it has not passed
// the ack on yet (watermill#446).
//
// Payload and attributes are delivered as they are, whoever published them, and are then
// the subscriber's alone: Pub/Sub's client keeps neither until the ack. Every
// message carries Pub/Sub's id, topic and publish time under the names aggregator.Meta...
//
// # What is checked
//
// Open asks for the topic, and that it has a subscription: Pub/Sub drops what is
// published to a topic without one. Subscribe asks for the subscription, refuses one
// that cannot be pulled from, is detached or belongs to another topic, and warns of
// settings that harm. Every ProbeEvery it is asked for again while messages are
// received: a stream to a server that hangs looks like a quiet one.
//
// When Pub/Sub ends the stream for good (the subscription is gone, permission was
// taken away), the channel of Subscribe is closed: subscribe again, and learn why.
// Watermill's subscriber would back off in silence.
//
// # The emulator
//
// With EmulatorHost, or PUBSUB_EMULATOR_HOST in the environment, Google is never
// contacted, no credentials are looked for, and Create is on. Streams to it are half-closed
// and opened again every 3s, because it does not see that a process is dead.
package gcppubsub
