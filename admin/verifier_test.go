package admin_test

import (
	"context"
	"errors"
	"fmt"
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

// A rig is a verifier of a fake store.
type rig struct {
	*admin.Verifier
	store *protocoltest.Store
}

func newRig() *rig {
	st := protocoltest.New(protocoltest.Options{})
	return &rig{admin.NewVerifier(st, st), st}
}

var asOf = time.Date(2026, 11, 21, 5, 4, 3, 120_000_000, time.UTC)

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
		sum.Shards += page.Shards
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
	result, err := admin.NewVerifier(onePage{page}, raised).Page(t.Context(), "", "", 10, true)
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

type failingGrowths []error

func (f *failingGrowths) Grow(context.Context, []store.Growth) (err error) {
	err, *f = (*f)[0], (*f)[1:]
	return err
}

// A repair that failed says that nothing was done only where that is certain.
func TestVerifyingMaybeRepairs(t *testing.T) {
	t.Parallel()
	page := onePage{store.ShardPage{Records: map[string]int{"a": 1, "b": 1}, Shards: []store.Shard{{Counter: "a", Number: 1}, {Counter: "b", Number: 1}}}}
	refused := fmt.Errorf("secret: %w", store.ErrNotApplied)
	for name, c := range map[string]struct {
		growths failingGrowths
		want    error
	}{
		"nothing was done":   {failingGrowths{refused}, countmill.ErrUnavailable},
		"maybe done":         {failingGrowths{errors.New("secret")}, countmill.ErrOutcomeUnknown},
		"the first was done": {failingGrowths{nil, refused}, countmill.ErrOutcomeUnknown},
	} {
		_, err := admin.NewVerifier(page, &c.growths).Page(t.Context(), "", "", 10, true)
		for _, kind := range []error{countmill.ErrUnavailable, countmill.ErrOutcomeUnknown} {
			if errors.Is(err, kind) != (kind == c.want) {
				t.Errorf("%s: got %v, want %v", name, err, c.want)
			}
		}
	}
}

func TestVerifyingAStoreThatIsUnavailable(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.store.On("scan shard", protocoltest.Script(protocoltest.Deployment, protocoltest.Deployment))
	if _, err := r.Page(t.Context(), "", "", 10, false); !errors.Is(err, countmill.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
	if _, err := r.ShardsOf(t.Context(), "a"); !errors.Is(err, countmill.ErrUnavailable) {
		t.Errorf("got %v, want ErrUnavailable", err)
	}
}
