package pebble

import (
	"testing"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest"
)

// The walk over all shards finds what looking up each counter finds.
func TestSumsWalk(t *testing.T) {
	t.Parallel()
	storetest.RunSums(t, func(t *testing.T) store.Store { return open(t, Config{Dir: t.TempDir(), looked: -1}) })
}
