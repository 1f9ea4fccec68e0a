package recount_test

import (
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/recounttest"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

// A store may defer any key, as Datastore does: a sum that was not looked up is not missing.
func TestAStoreThatDefersKeys(t *testing.T) {
	t.Parallel()
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &clock{at: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)}
			opts.Clock, opts.Errorf, opts.Defers = c.now, t.Errorf, true
			r := recounttest.New(t, protocoltest.New(opts), c.pass, c.now)
			r.History(300)
			r.Nothing("of a store that defers")
		})
	}
}
