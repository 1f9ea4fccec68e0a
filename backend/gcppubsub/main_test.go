package gcppubsub_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/countmill/countmill/internal/testing/emulator"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(emulator.Around(m),
		// OpenCensus, which the client library still counts with, has a goroutine for ever.
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"),
		// The client library's own, which sees only every 10s that its stream has ended.
		goleak.IgnoreTopFunction("cloud.google.com/go/pubsub/v2.(*messageIterator).streamKeepAliveHandler"))
}
