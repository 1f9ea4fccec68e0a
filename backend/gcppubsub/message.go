package gcppubsub

import (
	"maps"
	"sync/atomic"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/ThreeDotsLabs/watermill-googlecloud/v2/pkg/googlecloud"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/wire"
)

// An unmarshaler accepts every message: a refused one would be delivered again for ever.
type unmarshaler struct {
	topic string // full name
	stats *stats
}

// Unmarshal never fails. Pub/Sub's own data replaces attributes of the same names.
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
	m.Data, m.Attributes = nil, nil // the client keeps m until the ack; the subscriber need not keep its data that long
	return out, nil
}

// Attributes that Pub/Sub adds when it moves a message to a dead-letter topic. The moved copy has an id
// and a publish time of its own.
const (
	fromSubscription = "CloudPubSubDeadLetterSourceSubscription"
	fromProject      = "CloudPubSubDeadLetterSourceSubscriptionProject"
	fromDeliveries   = "CloudPubSubDeadLetterSourceDeliveryCount"
	fromPublished    = "CloudPubSubDeadLetterSourceTopicPublishTime"
	fromError        = "CloudPubSubDeadLetterSourceDeliveryErrorMessage"
)

// sayGivenUp adds a text about a message that Pub/Sub has given up.
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

type stats struct {
	deliveries, redeliveries, acks, nacks, held, streamErrors, acksLost atomic.Int64
}

// Stats returns the counts since Open. Pub/Sub reports redeliveries only on a subscription with a dead-letter
// policy, and roughly. It closes streams now and then.
func (b *Bus) Stats() backend.BusStats {
	return backend.BusStats{
		Deliveries:   b.stats.deliveries.Load(),
		Redeliveries: b.stats.redeliveries.Load(),
		Acks:         b.stats.acks.Load(),
		Nacks:        b.stats.nacks.Load(),
		Held:         b.stats.held.Load(),
		StreamErrors: b.stats.streamErrors.Load(),
		AcksLost:     b.stats.acksLost.Load(),
	}
}
