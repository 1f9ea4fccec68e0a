package gcppubsub_test

import (
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/backend/gcppubsub"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/internal/testing/longtest"
	"github.com/countmill/countmill/wire"
)

// A message that Pub/Sub has given up is read from any topic, with Pub/Sub's data about it.
func TestWhatWasGivenUp(t *testing.T) {
	t.Parallel()
	host, id := emulator.PubSub(t), emulator.Project()
	open(t, host, project(id), func(c *gcppubsub.Config) { c.DeadLetterTopic = "increments-dead" })
	kept := open(t, host, project(id), func(c *gcppubsub.Config) {
		c.Topic, c.Subscription, c.ReceiveOnly, c.AnyTopic = "given-up", "increments-dead", true, true
	})
	messages, err := kept.Subscribe(t.Context(), "given-up")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		attributes         map[string]string
		givenUp, published string
	}{
		"all": {map[string]string{
			"CloudPubSubDeadLetterSourceSubscription": "increments", "CloudPubSubDeadLetterSourceSubscriptionProject": "p",
			"CloudPubSubDeadLetterSourceDeliveryCount": "100", "CloudPubSubDeadLetterSourceTopicPublishTime": "2026-01-02T15:04:05.678+00:00",
			wire.MetaGivenUp: "forged",
		}, "given up by Pub/Sub on subscription increments of project p after deliveries: 100, first published 2026-01-02T15:04:05.678+00:00", "2026-01-02T15:04:05.678Z"},
		"another form of time": {map[string]string{
			"CloudPubSubDeadLetterSourceSubscription": "increments", "CloudPubSubDeadLetterSourceTopicPublishTime": "yesterday",
		}, "given up by Pub/Sub on subscription increments, first published yesterday", ""},
		"put there by hand": {map[string]string{wire.MetaGivenUp: "forged", wire.MetaFirstPublished: "2001-01-01T00:00:00Z"}, "", ""},
	} {
		post(t, host, id, "increments-dead", []byte("x"), test.attributes)
		m := receive(t, messages, 20*time.Second)
		if got := m.Metadata.Get(wire.MetaGivenUp); got != test.givenUp {
			t.Errorf("%s: got %q, want %q", name, got, test.givenUp)
		}
		if got := m.Metadata.Get(wire.MetaFirstPublished); got != test.published {
			t.Errorf("%s: first published %q, want %q", name, got, test.published)
		}
		m.Ack()
	}
}

// AnyTopic makes no missing subscription, even against an emulator.
func TestAnyTopicMakesNothing(t *testing.T) {
	t.Parallel()
	_, err := gcppubsub.Open(t.Context(), gcppubsub.Config{
		Project: emulator.Project(), Topic: "given-up", Subscription: "given-up", ReceiveOnly: true, AnyTopic: true, EmulatorHost: emulator.PubSub(t),
	})
	mentions(t, err, "subscription projects/", "create it: gcloud pubsub subscriptions create given-up")
	_, err = gcppubsub.Open(t.Context(), gcppubsub.Config{Project: "p", Topic: "given-up", AnyTopic: true, EmulatorHost: "127.0.0.1:1"})
	mentions(t, err, "AnyTopic needs ReceiveOnly")
}

// After 100 deliveries Pub/Sub itself moves a message there.
func TestPubSubGivesUp(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "gives a message back 100 times")
	host, id := emulator.PubSub(t), emulator.Project()
	bus := open(t, host, project(id), func(c *gcppubsub.Config) { c.DeadLetterTopic = "increments-dead" })
	kept := open(t, host, project(id), func(c *gcppubsub.Config) {
		c.Topic, c.Subscription, c.ReceiveOnly, c.AnyTopic = "given-up", "increments-dead", true, true
	})
	dead, err := kept.Subscribe(t.Context(), "given-up")
	if err != nil {
		t.Fatal(err)
	}
	publish(t, bus, "x", []byte("payload"))
	messages := subscribe(t, bus)
	for end := time.After(2*time.Minute + busy); ; {
		select {
		case m := <-messages:
			m.Nack()
		case m := <-dead:
			if got := m.Metadata.Get(wire.MetaGivenUp); string(m.Payload) != "payload" || m.Metadata.Get(wire.MetaFirstPublished) == "" ||
				!strings.HasPrefix(got, "given up by Pub/Sub on subscription aggregators of project "+id+" after deliveries: 100, first published ") {
				t.Errorf("got %q with %v", m.Payload, m.Metadata)
			}
			m.Ack()
			return
		case <-end:
			t.Fatal("not given up in time")
		}
	}
}
