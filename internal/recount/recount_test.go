package recount_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/recount"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

// A clock is the store's, and moves when a test says so. It moves a little by itself, as clocks do.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(time.Microsecond)
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// kinds are a store that settles at once, and one that takes minutes.
var kinds = map[string]protocoltest.Options{
	"embedded": {GrowsInFold: true, CertainOutcome: true, Entities: 1 << 20, MachineClock: true},
	"apart":    {},
}

func forKinds(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, newRig(t, opts))
		})
	}
}

// Counters that are not in a range come in pages too.
func TestRangesOfManyCounters(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		const counters = 2100
		var growths []store.Growth
		for i := range counters {
			growths = append(growths, store.Growth{Counter: fmt.Sprintf("page:many:%04d", i), Shards: 1})
		}
		for some := range slices.Chunk(growths, 500) {
			if err := r.Grow(t.Context(), some); err != nil {
				t.Fatal(err)
			}
		}
		damage(t, r, "page:many:0042", 5)
		x, found, judged := r.Recounter(r.Store, recount.Config{}), 0, 0
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		before := r.Calls("scan record")
		r.On("scan record", func(n int) protocoltest.Answer {
			if n > before+1000 { // the pages begin again and again
				cancel()
			}
			return protocoltest.OK
		})
		for token, n := "0000000000000000-7fffffffffffffff", 0; n < 2; n++ {
			got, err := x.Recount(ctx, recount.Query{Range: token})
			if err != nil || (got.Next == "") != (n == 1) {
				t.Fatalf("the range %s: %v, next %q", token, err, got.Next)
			}
			found, judged, token = found+len(got.Findings), judged+got.Counters, got.Next
		}
		if found != 1 || judged != counters {
			t.Errorf("%d findings in %d counters, want 1 in %d", found, judged, counters)
		}
	})
}
