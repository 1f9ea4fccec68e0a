package pebble

import (
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/recounttest"
)

// A repair finds and corrects 100 damaged sums, and nothing else.
func TestRecountRepairs(t *testing.T) {
	t.Parallel()
	for name, checked := range map[string]bool{"at once": false, "after a check of the index": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClock()
			s := open(t, c.config(Config{Dir: t.TempDir()}))
			now := func() time.Time { return c.config(Config{}).clock() }
			r := recounttest.New(t, s, func(d time.Duration) { c.pass(t, s, d) }, now)
			recounttest.Repairs(t, r, checked)
		})
	}
}
