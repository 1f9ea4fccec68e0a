package gcppubsub_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/countmill/countmill/internal/testing/emulator"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(emulator.Around(m),
		// The client library still counts with OpenCensus, whose goroutine never ends.
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"),
		// The client library's own goroutine, which notices only every 10s that its stream has ended.
		goleak.IgnoreTopFunction("cloud.google.com/go/pubsub/v2.(*messageIterator).streamKeepAliveHandler"))
}
