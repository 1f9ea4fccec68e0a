package appengine

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/countmill/countmill/internal/testing/emulator"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(emulator.Around(m),
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start")) // started by Google's libraries at load time
}
