package gcppubsub

import (
	"maps"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/ThreeDotsLabs/watermill-googlecloud/v2/pkg/googlecloud"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/wire"
)

// An unmarshaler makes a message of anything: one that is refused here would be given
// back for ever.
type unmarshaler struct {
	topic string // full name
	stats *stats
}

// Unmarshal never fails. What Pub/Sub knows of the message wins over attributes that
// claim the same names.
func (u unmarshaler) Unmarshal(m *pubsub.Message) (*message.Message, error) {
	u.stats.deliveries.Add(1)
	if m.DeliveryAttempt != nil && *m.DeliveryAttempt > 1 {
		u.stats.redeliveries.Add(1)
	}
	out := message.NewMessage(m.Attributes[googlecloud.UUIDHeaderKey], m.Data)
	maps.Copy(out.Metadata, m.Attributes)
	delete(out.Metadata, googlecloud.UUIDHeaderKey)
	out.Metadata.Set(wire.MetaBrokerID, m.ID)
	out.Metadata.Set(wire.MetaTopic, u.topic)
	out.Metadata.Set(wire.MetaPublished, m.PublishTime.UTC().Format(time.RFC3339Nano))
	sayGivenUp(out.Metadata, m.Attributes)
	m.Data, m.Attributes = nil, nil // the client keeps m until the ack, its subscriber need not
	return out, nil
}

// What Pub/Sub adds to a message that it moves to a dead-letter topic. The copy there has
// an id and a publish time of its own.
const (
	fromSubscription = "CloudPubSubDeadLetterSourceSubscription"
	fromProject      = "CloudPubSubDeadLetterSourceSubscriptionProject"
	fromDeliveries   = "CloudPubSubDeadLetterSourceDeliveryCount"
	fromPublished    = "CloudPubSubDeadLetterSourceTopicPublishTime"
	fromError        = "CloudPubSubDeadLetterSourceDeliveryErrorMessage"
)

// sayGivenUp puts into words what is known of a message that was given up.
func sayGivenUp(metadata message.Metadata, attributes map[string]string) {
	delete(metadata, wire.MetaGivenUp)
	delete(metadata, wire.MetaFirstPublished)
	if attributes[fromSubscription] == "" {
		return
	}
	text := "given up by Pub/Sub on subscription " + attributes[fromSubscription]
	for _, more := range []struct{ words, name string }{
		{" of project ", fromProject}, {" after deliveries: ", fromDeliveries}, {", first published ", fromPublished}, {", last error: ", fromError},
	} {
		if value := attributes[more.name]; value != "" {
			text += more.words + value
		}
	}
	metadata.Set(wire.MetaGivenUp, text)
	if t, err := time.Parse(time.RFC3339Nano, attributes[fromPublished]); err == nil {
		metadata.Set(wire.MetaFirstPublished, t.UTC().Format(time.RFC3339Nano))
	}
}

// Stats are counts since Open.
type Stats struct {
	// Deliveries are messages that Pub/Sub sent here, Redeliveries those among them that
	// it had sent before, here or elsewhere. It tells only on a subscription with a
	// dead-letter policy, and roughly.
	Deliveries, Redeliveries int64
	// Acks and Nacks are those that were passed on. A message that was handed over and not
	// settled when its subscription ended is a nack.
	Acks, Nacks int64
	// Held is how many messages are handed over and not settled.
	Held int64
	// StreamErrors is how often a stream from Pub/Sub ended with an error or could not be
	// opened. Pub/Sub closes streams now and then.
	StreamErrors int64
	// AcksLost is how many acks had not left when CloseTimeout was over: those messages
	// come again.
	AcksLost int64
}

type stats struct {
	deliveries, redeliveries, acks, nacks, held, streamErrors, acksLost atomic.Int64
}

// Stats returns the counts.
func (b *Bus) Stats() Stats {
	return Stats{
		Deliveries:   b.stats.deliveries.Load(),
		Redeliveries: b.stats.redeliveries.Load(),
		Acks:         b.stats.acks.Load(),
		Nacks:        b.stats.nacks.Load(),
		Held:         b.stats.held.Load(),
		StreamErrors: b.stats.streamErrors.Load(),
		AcksLost:     b.stats.acksLost.Load(),
	}
}
