package admin_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

// indexed is a store with an index over page:{site}:*, which serves.
func indexed(t *testing.T, opts protocoltest.Options) (*protocoltest.Store, store.Settings) {
	t.Helper()
	opts.GrowsInFold = true
	st := protocoltest.New(opts)
	changeIndex(t, st, store.CreateIndex, store.Index{Match: "page:{site}:*", Group: "site:{site}"})
	checked, err := st.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	x := checked.Settings.Rules.Index("sites")
	return st, changeIndex(t, st, store.ServeIndex, store.Index{Number: x.Number, Checked: x.Since.Add(time.Second)})
}

func changeIndex(t *testing.T, st *protocoltest.Store, step store.IndexStep, x store.Index) store.Settings {
	t.Helper()
	x.Name = "sites"
	set, err := st.ChangeRules(t.Context(), store.RuleChange{Index: &store.IndexChange{Step: step, Index: x}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// foldAll folds deltas as they are, without the groups of their counters.
func foldAll(t *testing.T, st *protocoltest.Store, rules int64, deltas map[string]int64) {
	t.Helper()
	c := store.Commit{Rules: rules}
	for counter, delta := range deltas {
		c.Adds = append(c.Adds, store.NewShardDelta(counter, 0, delta))
		c.Growths = append(c.Growths, store.Growth{Counter: counter, Shards: 1})
	}
	slices.SortFunc(c.Growths, func(a, b store.Growth) int { return strings.Compare(a.Counter, b.Counter) })
	slices.SortFunc(c.Adds, func(a, b store.ShardDelta) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), strings.Compare(a.Counter, b.Counter))
	})
	if _, err := st.Fold(t.Context(), &c); err != nil {
		t.Fatal(err)
	}
}

// groupProblems is the groups page of every index.
func groupProblems(t *testing.T, v *admin.Verifier, prefix string) (problems []string, groups int) {
	t.Helper()
	for token := "g"; token != ""; {
		r, err := v.Page(t.Context(), prefix, token, 10, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range r.Problems {
			if p.Kind != admin.WrongGroup || p.Shard != -1 {
				t.Errorf("got %+v", p)
			}
			problems = append(problems, p.Counter+" "+p.Detail[:strings.Index(p.Detail, " as of")]+p.Detail[strings.LastIndex(p.Detail, " "):])
		}
		groups += r.Groups
		token = r.Next
	}
	return problems, groups
}

func TestVerifierComparesGroups(t *testing.T) {
	t.Parallel()
	st, set := indexed(t, protocoltest.Options{})
	v := admin.NewVerifier(st, st).CompareGroups(st)
	want := func(prefix string, groups int, problems ...string) {
		t.Helper()
		if got, n := groupProblems(t, v, prefix); fmt.Sprint(got) != fmt.Sprint(problems) || n != groups {
			t.Errorf("under %q: %d groups, problems %q; want %d, %q", prefix, n, got, groups, problems)
		}
	}
	want("", 0)
	foldAll(t, st, set.Version, map[string]int64{"page:a:1": 5, "page:a:2": -2, "=site:a": 3, "page:b:1": 7, "=site:b": 7, "other": 1, "page:": 9})
	want("", 2)
	foldAll(t, st, set.Version, map[string]int64{"=site:b": 1, "page:c:1": 4, "=site:d": 2})
	want("", 4, "=site:b is 8 7", "=site:c is 0 4", "=site:d is 2 0")
	want("=site:c", 1, "=site:c is 0 4")
	want("page:", 0)
	foldAll(t, st, set.Version, map[string]int64{"page:c:1": math.MaxInt64, "=site:c": 3})
	want("=site:c", 1, "=site:c is 3 9223372036854775811")
	changeIndex(t, st, store.DeleteIndex, store.Index{})
	want("", 0)
}

// More counters than a page.
func TestVerifierComparesLargeGroups(t *testing.T) {
	t.Parallel()
	st, set := indexed(t, protocoltest.Options{})
	deltas := make(map[string]int64)
	for i := range 2500 {
		deltas[fmt.Sprintf("page:s%d:%d", i%3, i)] = 1
		deltas[fmt.Sprintf("=site:s%d", i%3)]++
	}
	for len(deltas) > 0 {
		some := make(map[string]int64)
		for counter, delta := range deltas {
			if some[counter] = delta; len(some) == 200 {
				break
			}
		}
		maps.DeleteFunc(deltas, func(counter string, _ int64) bool { return some[counter] != 0 })
		foldAll(t, st, set.Version, some)
	}
	v := admin.NewVerifier(st, st).CompareGroups(st)
	if got, n := groupProblems(t, v, ""); len(got) != 0 || n != 3 {
		t.Errorf("%d groups, problems %q", n, got)
	}
	for _, op := range []string{"get shard", "scan record", "check"} {
		st.On(op, func(int) protocoltest.Answer { return protocoltest.UnknownNotApplied })
		if _, err := v.Page(t.Context(), "", "g", 10, false); !errors.Is(err, countmill.ErrUnavailable) {
			t.Errorf("without %s: got %v", op, err)
		}
		st.On(op, nil)
	}
	if _, err := admin.NewVerifier(st, st).Page(t.Context(), "", "g", 10, false); !errors.Is(err, countmill.ErrInvalid) {
		t.Errorf("a page of groups where none are compared: got %v", err)
	}
}

// The names of groups can begin as that of their overflow group does: its total is read once.
func TestVerifierComparesGroupsOfAnyName(t *testing.T) {
	t.Parallel()
	st := protocoltest.New(protocoltest.Options{GrowsInFold: true})
	x := changeIndex(t, st, store.CreateIndex, store.Index{Match: "page:{site}:*", Group: "{site}"}).Rules.Index("sites")
	set := changeIndex(t, st, store.ServeIndex, store.Index{Number: x.Number, Checked: x.Since.Add(time.Second)})
	foldAll(t, st, set.Version, map[string]int64{"page:a:1": 5, "=a": 5, "page:b :1": 7, x.Overflow(): 7})
	if got, n := groupProblems(t, admin.NewVerifier(st, st).CompareGroups(st), ""); len(got) != 0 || n != 2 {
		t.Errorf("%d groups, problems %q; want 2 without problems", n, got)
	}
}

// The pages of groups come last.
func TestGroupsAreComparedLast(t *testing.T) {
	t.Parallel()
	st, set := indexed(t, protocoltest.Options{})
	foldAll(t, st, set.Version, map[string]int64{"page:a:1": 5, "=site:a": 4})
	v := admin.NewVerifier(st, st).CompareGroups(st)
	tokens, groups := "", 0
	for from, first := "", true; first || from != ""; first = false {
		r, err := v.Page(t.Context(), "", from, 10, false)
		if err != nil {
			t.Fatal(err)
		}
		from, groups = r.Next, groups+r.Groups
		tokens += from + " "
	}
	if tokens != "g gsites  " || groups != 1 {
		t.Errorf("page tokens %q with %d groups, want g, gsites and the end with 1", tokens, groups)
	}
}

// An index that is deleted while its groups are compared has no problems: they get no more increments.
func TestIndexDeletedDuringTheComparison(t *testing.T) {
	t.Parallel()
	st, set := indexed(t, protocoltest.Options{})
	foldAll(t, st, set.Version, map[string]int64{"page:a:1": 5})
	looks := 0
	st.On("check", func(int) protocoltest.Answer {
		if looks++; looks == 2 { // the one after the look at the counters
			changeIndex(t, st, store.DeleteIndex, store.Index{})
		}
		return protocoltest.OK
	})
	if got, _ := groupProblems(t, admin.NewVerifier(st, st).CompareGroups(st), ""); len(got) != 0 || looks < 3 {
		t.Errorf("problems %q after %d looks", got, looks)
	}
}

func TestIndexesAreChangedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, st := rulesOf(t, protocoltest.Options{})
		st.On("tx meta", protocoltest.Script(protocoltest.UnknownApplied, protocoltest.UnknownNotApplied))
		if err := a.CreateIndex(t.Context(), "sites", "page:{site}:*", "site:{site}"); err != nil {
			t.Fatal(err)
		}
		x, err := a.Index(t.Context(), "sites")
		if err != nil || x.State != admin.IndexBuilding || x.Number != 2 || x.Ranges != 0 {
			t.Errorf("got %+v, %v", x, err)
		}
		ranges := []store.IndexRange{
			{Index: 2, ID: 1, To: 9, Read: x.Since.Add(time.Second), Shards: 7, Corrected: 1},
			{Index: 2, ID: 2, From: 10, To: math.MaxUint64, Read: x.Since, Shards: 9},
		}
		if err := st.SwapRanges(t.Context(), nil, ranges); err != nil {
			t.Fatal(err)
		}
		all, version, err := a.Indexes(t.Context())
		if err != nil || version != 2 || len(all) != 1 || all[0].Ranges != 2 || all[0].Done != 1 || all[0].Shards != 7 || all[0].Corrected != 1 {
			t.Errorf("got %+v, version %d, %v; want one of two ranges", all, version, err)
		}
		changeIndex(t, st, store.ServeIndex, store.Index{Number: 2, Checked: x.Since.Add(time.Second)})
		if x, _ = a.Index(t.Context(), "sites"); x.State != admin.IndexServing {
			t.Errorf("got %s, want serving", x.State)
		}
		for range 2 {
			if err := a.DeleteIndex(t.Context(), "sites"); err != nil {
				t.Fatal(err)
			}
		}
		if x, _ = a.Index(t.Context(), "sites"); x.State != admin.IndexDeleting {
			t.Errorf("got %s, want deleting", x.State)
		}
	})
}

func TestIndexErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, st := rulesOf(t, protocoltest.Options{})
		if all, version, err := a.Indexes(t.Context()); len(all) != 0 || version != 1 || err != nil {
			t.Errorf("without rules: got %v, %d, %v", all, version, err)
		}
		if _, err := a.Index(t.Context(), "sites"); !errors.Is(err, store.ErrNoIndex) {
			t.Errorf("Index: got %v", err)
		}
		if err := a.DeleteIndex(t.Context(), "sites"); !errors.Is(err, store.ErrNoIndex) {
			t.Errorf("DeleteIndex: got %v", err)
		}
		if err := a.CreateIndex(t.Context(), "sites", "=x:{a}", "b:{a}"); !errors.Is(err, countmill.ErrInvalid) {
			t.Errorf("CreateIndex: got %v", err)
		}
		if err := a.CreateIndex(t.Context(), "sites", "page:{a}", "b:{a}"); err != nil {
			t.Fatal(err)
		}
		st.On("scan indexrange", func(int) protocoltest.Answer { return protocoltest.UnknownNotApplied })
		if _, _, err := a.Indexes(t.Context()); !errors.Is(err, countmill.ErrUnavailable) {
			t.Errorf("without ranges: got %v", err)
		}
		st.On("check", func(int) protocoltest.Answer { return protocoltest.UnknownNotApplied })
		_, _, list := a.Indexes(t.Context())
		_, one := a.Index(t.Context(), "sites")
		for _, err := range []error{list, one, a.Grow(t.Context(), "=b:x", 2)} {
			if !errors.Is(err, countmill.ErrUnavailable) {
				t.Errorf("without the store: got %v", err)
			}
		}
	})
}

// A group has the sum of its counters: nobody resets or deletes it alone. It may get more shards.
func TestGroupsAreGrownAndNotReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a, st := rulesOf(t, protocoltest.Options{})
		changeIndex(t, st, store.CreateIndex, store.Index{Match: "page:{site}:*", Group: "site:{site}"})
		_, reset := a.Reset(t.Context(), "=site:a", "")
		_, deleted := a.Delete(t.Context(), "=site:a")
		for what, err := range map[string]error{"reset": reset, "delete": deleted} {
			if field, ok := errors.AsType[*countmill.FieldError](err); !ok || !strings.Contains(field.Problem, "is a group") || !strings.Contains(field.Limit, "delete the index") {
				t.Errorf("%s: got %v", what, err)
			}
		}
		if err := a.Grow(t.Context(), "=site:a", 3); err != nil {
			t.Errorf("grow: %v", err)
		}
		if err := a.Grow(t.Context(), "=other:a", 3); !errors.Is(err, countmill.ErrInvalid) {
			t.Errorf("grow of a group of no index: got %v", err)
		}
		changeIndex(t, st, store.DeleteIndex, store.Index{})
		if err := a.Grow(t.Context(), "=site:b", 3); !errors.Is(err, countmill.ErrInvalid) {
			t.Errorf("grow of a group that is being deleted: got %v", err)
		}
	})
}
