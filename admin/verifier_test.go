package admin_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

// A rig is a verifier of a fake store and of fake totals.
type rig struct {
	*admin.Verifier
	store  *protocoltest.Store
	totals *fakeTotals
}

func newRig() *rig {
	st := protocoltest.New(protocoltest.Options{})
	totals := &fakeTotals{now: asOf, cached: map[string]admin.Cached{}, past: map[string]int64{}}
	return &rig{admin.NewVerifier(st, st, totals), st, totals}
}

var asOf = time.Date(2026, 11, 21, 5, 4, 3, 120_000_000, time.UTC)

// fakeTotals has cached totals, and their values at asOf.
type fakeTotals struct {
	now     time.Time
	cached  map[string]admin.Cached
	past    map[string]int64
	dropped []string
	err     error
}

func (f *fakeTotals) Counters(_ context.Context, prefix, after string, limit int) (names []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(f.past)) {
		if strings.HasPrefix(name, prefix) && name > after && len(names) < limit {
			names = append(names, name)
		}
	}
	return names, f.err
}

func (f *fakeTotals) Cached(_ context.Context, counters []string) (found []admin.Cached, err error) {
	for _, name := range counters {
		if c, ok := f.cached[name]; ok {
			found = append(found, c)
		}
	}
	return found, nil
}

func (f *fakeTotals) Drop(_ context.Context, counters []string) error {
	f.dropped = append(f.dropped, counters...)
	return nil
}

func (f *fakeTotals) Now(context.Context) (time.Time, error) { return f.now, nil }

func (f *fakeTotals) At(_ context.Context, counter string, at time.Time) (int64, bool, error) {
	if strings.HasPrefix(counter, "overflow") {
		return 0, false, fmt.Errorf("%w", countmill.ErrOverflow)
	}
	return f.past[counter], at.After(f.now.Add(-time.Hour)), nil
}

func (r *rig) fold(t *testing.T, counter string, record int, shards ...int) {
	t.Helper()
	if record > 0 {
		if err := r.store.Grow(t.Context(), []store.Growth{{Counter: counter, Shards: record}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range shards {
		_, err := r.store.Fold(t.Context(), &store.Commit{Adds: []store.ShardDelta{store.NewShardDelta(counter, n, int64(n+1))}})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// all is the problems of all pages, as "kind counter shard detail".
func (r *rig) all(t *testing.T, prefix string, limit int, fix bool) (problems []string, sum admin.VerifyResult) {
	t.Helper()
	from := ""
	for range 1000 {
		page, err := r.Page(t.Context(), prefix, from, limit, fix)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range page.Problems {
			line := fmt.Sprint(p.Kind, " ", p.Counter, " ", p.Shard, " ", p.Detail)
			if p.Fixed {
				line += " (fixed)"
			}
			problems = append(problems, line)
		}
		sum.Shards, sum.Cached, sum.Unchecked = sum.Shards+page.Shards, sum.Cached+page.Cached, sum.Unchecked+page.Unchecked
		if from = page.Next; from == "" {
			slices.Sort(problems)
			return problems, sum
		}
	}
	t.Fatal("no end of pages")
	return nil, sum
}

func wantProblems(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestShardsThatNoTotalHas(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 1000} {
		r := newRig()
		r.fold(t, "a", 3, 0, 1, 2)
		r.fold(t, "b", 2, 0, 1, 4)
		r.fold(t, "b2", 0, 1, 3)
		r.fold(t, "c", 1, 0)
		found := []string{"beyond b 4 holds 5, and the record names 2 shards",
			"orphan b2 1 holds 2, and its counter has no record", "orphan b2 3 holds 4, and its counter has no record"}
		for range 2 { // looking changes nothing
			got, sum := r.all(t, "", limit, false)
			wantProblems(t, got, found...)
			if sum.Shards != 9 {
				t.Errorf("%d shards, want 9", sum.Shards)
			}
		}
		got, _ := r.all(t, "b2", limit, false)
		wantProblems(t, got, found[1:]...)
		got, _ = r.all(t, "a", limit, true)
		wantProblems(t, got)
		got, _ = r.all(t, "", limit, true)
		if len(got) < 2 || !strings.HasSuffix(got[0], "(fixed)") || !strings.HasSuffix(got[1], "(fixed)") {
			t.Errorf("limit %d: %q, want all of it fixed", limit, got)
		}
		got, _ = r.all(t, "", limit, false)
		wantProblems(t, got)
		shards, err := r.store.Shards(t.Context(), []string{"a", "b", "b2", "c"})
		if err != nil || fmt.Sprint(shards) != "[3 5 4 1]" {
			t.Errorf("records name %v shards (%v), want 3, 5, 4 and 1", shards, err)
		}
	}
}

// Beyond the most shards that a record may name only a person can help.
func TestOnlyAPersonRepairs(t *testing.T) {
	t.Parallel()
	page := store.ShardPage{At: asOf, Records: map[string]int{"a": 1}, Shards: []store.Shard{
		{Counter: "a", Number: countmill.MaxShards, Count: int128.Of(3)}, {Counter: "a", Number: countmill.MaxShards - 1, Count: int128.Of(4)}, {Counter: "a", Number: 2, Bad: "cut off"},
	}}
	raised := growths{}
	result, err := admin.NewVerifier(onePage{page}, raised, nil).Page(t.Context(), "", "", 10, true)
	if err != nil || len(result.Problems) != 3 || result.Next != "" {
		t.Fatalf("got %+v, %v; want three problems and the end", result, err)
	}
	for i, fixed := range []bool{false, true, false} {
		if result.Problems[i].Fixed != fixed {
			t.Errorf("%+v, want it fixed: %t", result.Problems[i], fixed)
		}
	}
	if result.Problems[2].Kind != admin.Unreadable || raised["a"] != countmill.MaxShards || len(raised) != 1 {
		t.Errorf("%+v; raised %v, want a alone to %d", result.Problems[2], raised, countmill.MaxShards)
	}
}

type onePage struct{ page store.ShardPage }

func (o onePage) ShardsOf(context.Context, string) (store.ShardPage, error) { return o.page, nil }
func (o onePage) ShardPage(context.Context, string, string, int) (store.ShardPage, error) {
	return o.page, nil
}

type growths map[string]int

func (r growths) Grow(_ context.Context, list []store.Growth) error {
	for _, g := range list {
		r[g.Counter] = g.Shards
	}
	return nil
}

func TestCachedTotals(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 3, 1000} {
		r := newRig()
		for i, test := range []struct {
			name          string
			cached, truth int64
			age           time.Duration
		}{
			{"right", 7, 7, time.Second}, {"wrong", 8, 7, time.Second}, {"wrong and old", 8, 7, 2 * time.Hour}, {"a moment ahead", 8, 7, -time.Second},
			{"to come", 7, 7, -time.Second - time.Microsecond}, {"overflow", 1, 0, time.Second}, {"zero", 0, 0, time.Minute}, {"not cached", 0, 3, 0},
		} {
			name := fmt.Sprint(i, test.name)
			if test.name == "overflow" {
				name = test.name
			}
			r.totals.past[name] = test.truth
			if test.name != "not cached" {
				r.totals.cached[name] = admin.Cached{Counter: name, Total: test.cached, AsOf: asOf.Add(-test.age)}
			}
		}
		wrong := []string{
			"cached 1wrong -1 8 as of 2026-11-21T05:04:02.120000Z, when the total was 7",
			"cached 4to come -1 7 as of 2026-11-21T05:04:04.120001Z, which is to come: it is 2026-11-21T05:04:03.120000Z",
			"cached overflow -1 1 as of 2026-11-21T05:04:02.120000Z, when the total did not fit 64 bits",
		}
		got, sum := r.all(t, "", limit, false)
		wantProblems(t, got, wrong...)
		if sum.Cached != 7 || sum.Unchecked != 2 || len(r.totals.dropped) != 0 {
			t.Errorf("%d cached, %d unchecked, dropped %q; want 7, 2 and none", sum.Cached, sum.Unchecked, r.totals.dropped)
		}
		got, _ = r.all(t, "1", limit, true)
		wantProblems(t, got, wrong[0]+" (fixed)")
		wantProblems(t, r.totals.dropped, "1wrong")
	}
}

// A process that serves no totals has no cache to look at.
func TestWithoutACache(t *testing.T) {
	t.Parallel()
	r := newRig()
	v := admin.NewVerifier(r.store, r.store, nil)
	if page, err := v.Page(t.Context(), "", "", 10, false); err != nil || page.Next != "" {
		t.Errorf("got %+v, %v; want the end", page, err)
	}
	if _, err := v.Page(t.Context(), "", "c", 10, false); !errors.Is(err, countmill.ErrInvalid) {
		t.Errorf("a page of cached totals: %v, want ErrInvalid", err)
	}
}

func TestVerifyingAStoreThatIsUnavailable(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.totals.err = errors.New("secret")
	if _, err := r.Page(t.Context(), "", "c", 10, false); !errors.Is(err, countmill.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	r.store.On("scan shard", protocoltest.Script(protocoltest.Deployment, protocoltest.Deployment))
	if _, err := r.Page(t.Context(), "", "", 10, false); !errors.Is(err, countmill.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	if _, err := r.ShardsOf(t.Context(), "a"); !errors.Is(err, countmill.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}
