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

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

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

// Ranges that are recounted at the same time, in small ranges, find and correct together the same as one recount.
func TestRangesAtOnce(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		r.History(200)
		whole := r.Recount(recount.Query{})
		damaged := r.Damage(50)
		x := r.Recounter(r.Store, recount.Config{AtOnce: 3, MostSums: 120})
		all := inRanges(t, x, false)
		if diff := gocmp.Diff(damaged, named(all.Findings)); diff != "" {
			t.Errorf("found in ranges (-damaged +found):\n%s", diff)
		}
		if all.Counters != whole.Counters || len(all.Reasons) > 0 {
			t.Errorf("%d counters in ranges, want %d; not judged: %v", all.Counters, whole.Counters, all.Reasons)
		}
		all = inRanges(t, x, true)
		if diff := gocmp.Diff(damaged, named(all.Findings)); diff != "" || len(all.Reasons) > 0 {
			t.Errorf("not judged: %v; corrected in ranges (-damaged +corrected):\n%s", all.Reasons, diff)
		}
		r.Nothing("after the repair")
	})
}

// inRanges recounts three ranges at the same time.
func inRanges(t *testing.T, x *recount.Recounter, repair bool) (all recount.Result) {
	t.Helper()
	all.Reasons = make(map[string]int)
	var g errgroup.Group
	var mu sync.Mutex
	ranges := 0
	for _, keyRange := range []string{"0000000000000000-3fffffffffffffff", "4000000000000000-cfffffffffffffff", "d000000000000000-ffffffffffffffff"} {
		g.Go(func() error {
			for q := (recount.Query{Range: keyRange, Repair: repair}); ; {
				got, err := x.Recount(t.Context(), q)
				if err != nil {
					return err
				}
				mu.Lock()
				ranges++
				all.Findings, all.Counters = append(all.Findings, got.Findings...), all.Counters+got.Counters
				for reason, n := range got.Reasons {
					all.Reasons[reason] += n
				}
				mu.Unlock()
				if q.Range = got.Next; q.Range == "" {
					return nil
				}
			}
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if ranges <= 3 {
		t.Errorf("%d ranges in 3 ranges: none was made smaller", ranges)
	}
	return all
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
		for _, keyRange := range []string{"0000000000000000-7fffffffffffffff", "8000000000000000-ffffffffffffffff"} {
			got, err := x.Recount(ctx, recount.Query{Range: keyRange})
			if err != nil || got.Next != "" {
				t.Fatalf("the range %s: %v, next %q", keyRange, err, got.Next)
			}
			found, judged = found+len(got.Findings), judged+got.Counters
		}
		if found != 1 || judged != counters {
			t.Errorf("%d findings in %d counters, want 1 in %d", found, judged, counters)
		}
	})
}
