//go:build !nogoogle

package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/backend/gcppubsub"
)

// pubsubBus carries batches over Google's Pub/Sub.
func pubsubBus() backend.Bus {
	return backend.Bus{
		Scheme: "pubsub", Usage: "pubsub://PROJECT/TOPIC?subscription=NAME", Params: []string{"subscription", "dead_letter"},
		Check: func(u backend.URL, c backend.BusConfig) error {
			_, err := pubsubNames(u, c)
			return err
		},
		Open: openPubSub,
		Examine: func(ctx context.Context, u backend.URL, r *backend.Report) {
			if n, err := pubsubNames(u, backend.BusConfig{}); err == nil { // Check has refused others
				gcppubsub.Examine(ctx, gcppubsub.Config{Project: n.project, Topic: n.topic, Subscription: n.subscription, DeadLetterTopic: n.givenUp}, r)
			}
		},
	}
}

func openPubSub(ctx context.Context, u backend.URL, c backend.BusConfig) (b backend.OpenBus, err error) {
	n, err := pubsubNames(u, c)
	if err != nil {
		return b, err
	}
	bus, err := gcppubsub.Open(ctx, gcppubsub.Config{
		Project: n.project, Topic: n.topic, Subscription: n.subscription, DeadLetterTopic: n.givenUp,
		Create: c.Create, ReceiveOnly: !c.Publish, MaxOutstanding: c.Messages, MaxBytes: c.Bytes, Logger: c.Logger,
	})
	if err != nil {
		return b, err
	}
	b = backend.OpenBus{Channel: bus, Topic: n.topic}
	if !c.Receive {
		return b, nil
	}
	b.Ready = bus.Ready
	if n.givenUp == "" {
		return b, nil
	}
	givenUp, err := gcppubsub.Open(ctx, gcppubsub.Config{
		Project: n.project, Topic: n.givenUp, Subscription: n.givenUp, ReceiveOnly: true, AnyTopic: true,
		MaxOutstanding: 10, MaxBytes: 16 << 20, ProbeEvery: time.Minute, // messages are rare, and not urgent
		Logger: c.Logger.With("subscription", n.givenUp),
	})
	if err != nil {
		return b, errors.Join(fmt.Errorf("dead_letter: %w", err), bus.Close())
	}
	b.GivenUp, b.GivenUpTopic = givenUp, n.givenUp
	return b, nil
}

// names are the names in a pubsub: URL. givenUp is the subscription of messages that Pub/Sub
// has given up delivering.
type names struct{ project, topic, subscription, givenUp string }

// pubsubNames reads a URL. Only an aggregator needs a subscription.
func pubsubNames(u backend.URL, c backend.BusConfig) (n names, err error) {
	pieces, err := u.Path(2, 2, "pubsub://PROJECT/TOPIC?subscription=NAME")
	if err != nil {
		return n, err
	}
	n = names{pieces[0], pieces[1], u.Params.Get("subscription"), u.Params.Get("dead_letter")}
	if n.subscription == "" && (c.Receive || u.Params.Has("subscription")) {
		return n, fmt.Errorf("names no subscription to take batches from; write pubsub://%s/%s?subscription=NAME", n.project, n.topic)
	}
	if u.Params.Has("dead_letter") && (n.givenUp == "" || n.givenUp == n.subscription || n.givenUp == n.topic) {
		return n, fmt.Errorf("parameter dead_letter must name the subscription that keeps the messages that Pub/Sub gives up, "+
			"another than the one batches come from; got %q", n.givenUp)
	}
	return n, nil
}
