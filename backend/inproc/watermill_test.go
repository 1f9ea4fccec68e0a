package inproc_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"

	"github.com/countmill/countmill/backend/inproc"
)

// TestWatermillSuite runs without WaitForAck: the suite publishes before it subscribes.
func TestWatermillSuite(t *testing.T) {
	tests.TestPubSub(t, tests.Features{
		ConsumerGroups:        false,
		ExactlyOnceDelivery:   true, // no message is delivered again once it was acked
		GuaranteedOrder:       false,
		Persistent:            false,
		RequireSingleInstance: true,
	}, func(t *testing.T) (message.Publisher, message.Subscriber) {
		bus, err := inproc.New(inproc.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return bus, bus
	}, nil)
}
