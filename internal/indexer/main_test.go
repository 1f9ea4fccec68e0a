package indexer

import (
	"testing"

	"go.uber.org/goleak"
)

// Nothing that an Indexer starts outlives Run.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
