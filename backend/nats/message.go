package nats

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/countmill/countmill/wire"
)

// uuidHeader has the UUID of a message, as the buses of Watermill name it.
const uuidHeader = "_watermill_message_uuid"

func marshal(subject string, m *message.Message) *nats.Msg {
	out := &nats.Msg{Subject: subject, Data: m.Payload, Header: nats.Header{uuidHeader: {m.UUID}}}
	for key, value := range m.Metadata {
		out.Header[key] = []string{value}
	}
	return out
}

// unmarshal makes a message of one of the stream. NATS's own data replaces headers of the same names.
func (b *Bus) unmarshal(raw jetstream.Msg, meta *jetstream.MsgMetadata) *message.Message {
	header := raw.Headers()
	b.counts.Deliveries.Add(1)
	id := cmp.Or(header.Get(nats.MsgIdHdr), fmt.Sprintf("%d@%d", meta.Sequence.Stream, meta.Timestamp.UnixNano()))
	m := message.NewMessage(header.Get(uuidHeader), raw.Data())
	for key, values := range header {
		if key != uuidHeader && len(values) > 0 && !strings.HasPrefix(key, "Nats-") {
			m.Metadata.Set(key, values[0])
		}
	}
	delete(m.Metadata, wire.MetaGivenUp)
	delete(m.Metadata, wire.MetaFirstPublished)
	m.Metadata.Set(wire.MetaBrokerID, id)
	m.Metadata.Set(wire.MetaTopic, b.cfg.Stream)
	m.Metadata.Set(wire.MetaPublished, meta.Timestamp.UTC().Format(time.RFC3339Nano))
	if meta.NumDelivered > 1 {
		b.counts.Redeliveries.Add(1)
	}
	if meta.NumDelivered > maxDeliveries {
		m.Metadata.Set(wire.MetaGivenUp, fmt.Sprintf("given up after deliveries: %d, of stream %s to consumer %s", meta.NumDelivered-1, b.cfg.Stream, meta.Consumer))
	}
	return m
}
