package sim

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cespare/xxhash/v2"

	"github.com/countmill/countmill"
)

// bus is the broker as one process sees it.
type bus struct {
	*broker
	p *proc
}

// Publish hands a message over.
func (b *bus) Publish(_ string, messages ...*message.Message) (err error) {
	m := messages[0]
	uuid, payload := m.UUID, encode(b.p.version, m.Payload)
	var settled chan error
	if !b.park(&step{p: b.p, op: "publish", key: xxhash.Sum64(payload), ctx: m.Context(), run: func(f callEnd) {
		settled, err = b.publish(b.p, m.Context(), uuid, payload, f)
	}, asks: func() string { return payloadText(payload) }, gets: func() string { return answerText(err, nil) }}) {
		return fmt.Errorf("sim: %w", countmill.ErrClosed)
	}
	if settled != nil {
		return <-settled
	}
	return err
}

func (b *broker) publish(p *proc, from context.Context, uuid string, payload []byte, f callEnd) (chan error, error) {
	b.parts.handedOver(uuid, payload)
	put := func() error { b.put(uuid, payload, false); return nil }
	if b.embedded {
		if f != released {
			return nil, countmill.ErrClosed
		}
		settled := make(chan error, 1)
		l := b.put(uuid, payload, false)
		l.from = from
		l.settled = func(err error) { settled <- err }
		p.waiting = append(p.waiting, l)
		return settled, nil
	}
	switch {
	case f != released:
		b.maybe(put)
		return nil, errLost
	case b.away(BusAway):
		b.maybe(put)
		return nil, errLost
	case b.strikes(PublishLost):
		return nil, errLost
	case b.strikes(PublishAnswerLost):
		_ = put()
		return nil, errLost
	case b.strikes(PublishTwice):
		_ = put()
	}
	return nil, put()
}

// movedTopic has the messages that the bus gave up.
const movedTopic = "moved aside"

// Subscribe opens a stream.
func (b *bus) Subscribe(ctx context.Context, topic string) (out <-chan *message.Message, err error) {
	if !b.park(&step{p: b.p, op: "subscribe " + topic, ctx: ctx, run: func(f callEnd) {
		if f != released || b.away(BusAway) || b.strikes(SubscribeFails) {
			err = errLost
			return
		}
		s := &subscription{p: b.p, ctx: ctx, moved: topic == movedTopic, out: make(chan *message.Message)}
		b.subscriptions = append(b.subscriptions, s)
		out = s.out
	}, gets: func() string { return answerText(err, nil) }}) {
		return nil, errFenced
	}
	return out, err
}
