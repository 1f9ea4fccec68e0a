package aggregator

import (
	"cmp"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// decode reads a message: a batch, or JSON that another program published on the topic.
func (a *Aggregator) decode(m *message.Message) (*wire.Batch, error) {
	if !wire.IsJSON(m.Payload) {
		return fromBus(a.cfg.Decode(m.Payload))
	}
	id := m.Metadata.Get(wire.MetaBrokerID)
	if id == "" {
		return nil, fmt.Errorf("%w: JSON without a broker's message id cannot be counted once; the bus must set one", countmill.ErrInvalid)
	}
	published, err := publishedAt(m)
	if err != nil {
		return nil, fmt.Errorf("%w: JSON without a broker's publish time: %w", countmill.ErrInvalid, err)
	}
	// Times are checked against the publish time, so that every delivery is read in the same way
	// while the window does not change.
	incs, err := wire.DecodeJSON(m.Payload, wire.JSON, published, a.Settings().Window)
	if err != nil {
		if _, other := wire.DecodeJSON(m.Payload, wire.JSON, published, store.MaxWindow); other == nil {
			return nil, tooOld{err}
		}
		return nil, err
	}
	topic := cmp.Or(m.Metadata.Get(wire.MetaTopic), a.cfg.Topic)
	return wire.CutMessage(topic, id, published, incs)
}

// fromBus refuses a batch that has parts of the kinds that only dead letters have.
func fromBus(b *wire.Batch, err error) (*wire.Batch, error) {
	if err != nil {
		return nil, err
	}
	for i := range b.Parts {
		if kind := b.Parts[i].Kind; kind.Local() {
			return nil, fmt.Errorf("%w: part %d: %s parts may only be in dead letters, not on a bus", countmill.ErrInvalid, i, kind)
		}
	}
	return b, nil
}

// A tooOld error refuses a message that a longer window would accept: an earlier delivery of it
// may have been counted.
type tooOld struct{ error }

func (e tooOld) Unwrap() error { return e.error }

// publishedAt is the broker's publish time of a message.
func publishedAt(m *message.Message) (time.Time, error) { return brokersTime(m, wire.MetaPublished) }

// brokersTime is a time in the metadata of a message. Any publisher on the topic may have set it,
// so it is checked.
func brokersTime(m *message.Message, name string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, m.Metadata.Get(name))
	if err == nil && !wire.InRange(t) {
		return time.Time{}, fmt.Errorf("%s %q is out of range (limit: 1970 to 2261)", name, m.Metadata.Get(name))
	}
	return t, err
}
