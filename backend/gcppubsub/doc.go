// Package gcppubsub is a bus over Google Cloud Pub/Sub. It implements Watermill's message.Publisher and
// message.Subscriber with Watermill's Google publisher and subscriber. It adds four things that a
// pipeline without loss or repetition needs: acks are sent before the subscriber ends, each process has
// one stream, errors name the command that fixes them, and a subscriber that receives nothing reports
// it.
//
// # Delivery semantics
//
// At least once, in no order. Publish returns nil when Pub/Sub has stored the messages durably. After
// any error but countmill.ErrClosed, Pub/Sub may have the message, or may get it within PublishTimeout:
// send it again.
//
// Pub/Sub delivers a message until it is acked. A subscriber may hold MaxOutstanding messages. Their
// leases are extended for up to an hour, by 10 s at a time. So the messages of a process
// that dies are delivered again within 10 s.
//
// When the context of Subscribe ends, or Close is called:
//
//	message                                      goes
//	acked before that                            to Pub/Sub as an ack: it does not come back
//	delivered and not settled                    back, to be delivered again
//	taken from Pub/Sub and not delivered yet     back
//
// Watermill's subscriber alone also gives back a message of the first kind if it has not sent the ack
// yet (watermill#446).
//
// Payload and attributes are delivered unchanged, whoever published them. They then belong to the
// subscriber alone: Pub/Sub's client does not keep them until the ack. Every message carries Pub/Sub's
// id, topic and publish time under the names aggregator.Meta...
//
// # Checks
//
// Open looks up the topic, and whether it has a subscription: Pub/Sub drops messages that are published
// to a topic without one. Subscribe looks up the subscription. It refuses it if it cannot be pulled
// from, is detached or belongs to another topic, and warns of harmful settings. While messages are
// received, the bus looks the subscription up every ProbeEvery: the stream of a hanging server looks
// the same as a stream without messages.
//
// When Pub/Sub ends the stream for good (the subscription is gone, permission was revoked), the channel
// of Subscribe is closed. The next Subscribe returns the reason. Watermill's subscriber alone would
// retry without a word.
//
// # The emulator
//
// With EmulatorHost, or PUBSUB_EMULATOR_HOST in the environment, the bus never contacts Google, needs
// no credentials, and Create is on. Every 3s it half-closes its stream to the emulator and opens
// another, because the emulator does not notice that a process is dead.
package gcppubsub
