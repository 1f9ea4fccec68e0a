package recount_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/recount"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// Damage changes n sums at random, each once, and returns their names.
func (r *rig) Damage(n int) (damaged []string) {
	r.t.Helper()
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(r.State().Totals)), countmill.IsGroup)
	seen := make(map[string]bool)
	for len(damaged) < n {
		name := names[r.Rand.IntN(len(names))]
		minute := r.first + wire.Minute(r.Rand.IntN(int(wire.MinuteOf(r.Now())-r.first)))
		delta := r.Rand.Int64N(100) + 1
		if r.Rand.IntN(2) == 0 {
			delta = -delta
		}
		c := &store.Commit{Correction: true, Rules: r.Settings().Version, Archive: r.Limits().Ring.Archive(r.Now()), Markers: []store.Marker{r.marker(r.NewID())}}
		what := ""
		switch {
		case !strings.HasPrefix(name, "billing:") && r.Rand.IntN(2) == 0:
			what = fmt.Sprintf("%s %s %d", recount.WrongBucket, name, minute)
			c.Buckets = []store.BucketDelta{{Minute: minute, Delta: delta}}
			delta = 0
		default:
			what = fmt.Sprintf("%s %s 0", recount.WrongTotal, name)
		}
		if seen[what] {
			continue
		}
		seen[what] = true
		c.Adds = []store.ShardDelta{store.NewShardDelta(name, r.Rand.IntN(shards), delta)}
		r.ok(r.fold(c))
		damaged = append(damaged, what)
	}
	slices.Sort(damaged)
	return damaged
}

// named returns the findings as Damage names them.
func named(findings []recount.Finding) (names []string) {
	for _, f := range findings {
		names = append(names, fmt.Sprintf("%s %s %d", f.Kind, f.Name, f.Minute))
	}
	slices.Sort(names)
	return names
}

// Nothing wants a recount that compares everything and finds nothing.
func (r *rig) Nothing(what string) {
	r.t.Helper()
	got := r.Recount(recount.Query{})
	if len(got.Findings) > 0 || got.Counters == 0 || got.Buckets == 0 || len(got.Reasons) > 0 {
		r.t.Fatalf("%s: %d counters and %d buckets compared, not compared: %v; found %+v", what, got.Counters, got.Buckets, got.Reasons, got.Findings)
	}
}

// A recount finds each of 100 damaged shards and buckets, and corrects exactly these, although the process is killed between.
func TestRepairs(t *testing.T) {
	t.Parallel()
	for _, checked := range []bool{false, true} {
		forKinds(t, func(t *testing.T, r *rig) { repairs(t, r, checked) })
	}
}

// With checked the index is checked after the damage, so the remainders of groups follow it.
func repairs(t *testing.T, r *rig, checked bool) {
	r.History(400)
	r.Nothing("before the damage")
	want := r.State()
	damaged := r.Damage(100)
	if checked {
		r.Check1()
	}
	if diff := gocmp.Diff(damaged, named(r.Recount(recount.Query{}).Findings)); diff != "" {
		t.Fatalf("found (-damaged +found):\n%s", diff)
	}
	for _, after := range []int{0, 13, 40} {
		last := r.FoldCalls() + after
		r.OnFold(func(n int, _ *store.Commit) protocoltest.Answer {
			if n > last {
				return protocoltest.Deployment
			}
			return protocoltest.OK
		})
		if _, err := r.Recounter(r.Store, recount.Config{}).Recount(context.Background(), recount.Query{Repair: true}); err == nil {
			t.Fatalf("killed after %d corrections: no error", after)
		}
	}
	r.OnFold(nil)
	left := r.Recount(recount.Query{Repair: true})
	// A commit corrects all damaged minutes of a quarter hour.
	if n := len(left.Findings); n == 0 || n > 100-13-40 {
		t.Errorf("%d were left after 53 corrections", n)
	}
	for _, f := range left.Findings {
		if !f.Fixed {
			t.Errorf("not corrected: %+v", f)
		}
	}
	if checked {
		r.Check1()
	}
	got := r.State()
	if diff := gocmp.Diff(want.Totals, got.Totals); diff != "" {
		t.Errorf("totals (-before the damage +after the repair):\n%s", diff)
	}
	if diff := gocmp.Diff(want.Series, got.Series); diff != "" {
		t.Errorf("series (-before the damage +after the repair):\n%s", diff)
	}
	r.untouched(damaged, &want, &got)
	r.Nothing("after the repair")
	r.History(20)
	r.Nothing("after more increments")
}

// untouched wants every shard of the counters that were not damaged as it was.
func (r *rig) untouched(damaged []string, want, got *state) {
	r.t.Helper()
	for name := range want.Shards {
		touched := slices.ContainsFunc(damaged, func(d string) bool { return strings.HasSuffix(d, " "+name+" 0") })
		if !touched && !slices.Equal(want.Shards[name], got.Shards[name]) {
			r.t.Errorf("the shards of %s, which was not damaged, are %v, were %v", name, got.Shards[name], want.Shards[name])
		}
	}
}
