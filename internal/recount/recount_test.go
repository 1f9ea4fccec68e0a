package recount_test

import (
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/countmill/countmill/internal/recount"
	"github.com/countmill/countmill/internal/testing/recounttest"
	"github.com/countmill/countmill/store/storetest/fakestore"
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
var kinds = map[string]fakestore.Options{
	"embedded": {GrowsInFold: true, CertainOutcome: true, Entities: 1 << 20, Age: func() time.Duration { return 0 }},
	"apart":    {},
}

func forKinds(t *testing.T, f func(t *testing.T, r *recounttest.Rig)) {
	t.Helper()
	for name, opts := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &clock{at: time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)}
			opts.Clock, opts.Errorf = c.now, t.Errorf
			f(t, recounttest.New(t, fakestore.New(opts), c.pass, c.now))
		})
	}
}

func TestRepairs(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *recounttest.Rig) { recounttest.Repairs(t, r, false) })
}

func TestRepairsWhereIndexesAreChecked(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *recounttest.Rig) { recounttest.Repairs(t, r, true) })
}

// Ranges that are recounted at the same time, in small pieces, find and correct together what one recount does.
func TestRangesAtOnce(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *recounttest.Rig) {
		r.History(200)
		whole := r.Recount(recount.Query{})
		damaged := r.Damage(50)
		x := r.Recounter(r.Store, recount.Config{AtOnce: 3, MostSums: 120})
		ranges := []string{"0000000000000000-3fffffffffffffff", "4000000000000000-cfffffffffffffff", "d000000000000000-ffffffffffffffff"}
		results := make([]recount.Result, len(ranges))
		var pieces atomic.Int64
		for _, repair := range []bool{false, true} {
			var g errgroup.Group
			for i, piece := range ranges {
				g.Go(func() error {
					results[i] = recount.Result{}
					for q := (recount.Query{Piece: piece, Repair: repair}); ; {
						got, err := x.Recount(t.Context(), q)
						if err != nil {
							return err
						}
						pieces.Add(1)
						results[i].Findings = append(results[i].Findings, got.Findings...)
						results[i].Counters, results[i].Groups = results[i].Counters+got.Counters, results[i].Groups+got.Groups
						if q.Piece = got.Next; q.Piece == "" {
							return nil
						}
					}
				})
			}
			if err := g.Wait(); err != nil {
				t.Fatal(err)
			}
			var all recount.Result
			for _, got := range results {
				all.Findings, all.Counters, all.Groups = append(all.Findings, got.Findings...), all.Counters+got.Counters, all.Groups+got.Groups
			}
			if diff := gocmp.Diff(damaged, recounttest.Named(all.Findings)); diff != "" {
				t.Errorf("repair: %t: found in ranges (-damaged +found):\n%s", repair, diff)
			}
			if all.Counters != whole.Counters || all.Groups != whole.Groups {
				t.Errorf("%d counters and %d groups in ranges, want %d and %d", all.Counters, all.Groups, whole.Counters, whole.Groups)
			}
		}
		if pieces.Load() <= 6 {
			t.Errorf("%d pieces in two times 3 ranges: none was made smaller", pieces.Load())
		}
		r.Nothing("after the repair")
	})
}
