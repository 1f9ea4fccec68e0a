package gcppubsub

import (
	"maps"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"github.com/ThreeDotsLabs/watermill-googlecloud/v2/pkg/googlecloud"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/wire"
)

// An unmarshaler accepts every message: a refused one would be delivered again for ever.
type unmarshaler struct {
	topic  string // full name
	counts *backend.BusCounts
}

// Unmarshal never fails. Pub/Sub's own data replaces attributes of the same names.
func (u unmarshaler) Unmarshal(m *pubsub.Message) (*message.Message, error) {
	u.counts.Deliveries.Add(1)
	if m.DeliveryAttempt != nil && *m.DeliveryAttempt > 1 {
		u.counts.Redeliveries.Add(1)
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
