package aggregator_test

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing that an aggregator starts outlives Run.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
