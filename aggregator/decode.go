package aggregator

import (
	"bytes"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// decode reads a message: a batch of ours, or JSON that somebody put on the topic.
func decode(m *message.Message, topic string, now time.Time, horizon time.Duration) (*wire.Batch, error) {
	if !isJSON(m.Payload) {
		return wire.Decode(m.Payload)
	}
	return nil, fmt.Errorf("%w: JSON", countmill.ErrInvalid)
}

// isJSON tells the two apart: a batch of ours begins with the tag of its version, 8.
func isJSON(payload []byte) bool {
	payload = bytes.TrimLeft(payload, " \t\r\n")
	return len(payload) > 0 && (payload[0] == '{' || payload[0] == '[')
}
