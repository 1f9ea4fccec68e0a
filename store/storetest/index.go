package storetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countmill/countmill/store"
)

func changeIndex(t testing.TB, s store.Store, step store.IndexStep, x store.Index) store.Settings {
	t.Helper()
	return changeSettings(t, fmt.Sprintf("step %d of index %q", step, x.Name), func() (store.Settings, error) {
		return s.ChangeRules(t.Context(), store.RuleChange{Index: &store.IndexChange{Step: step, Index: x}})
	})
}

// createIndex makes an index of the counters page:SITE:ANY, whose groups are =NAME:SITE.
func createIndex(t testing.TB, s store.Store, name string) *store.Index {
	t.Helper()
	return indexOf(t, changeIndex(t, s, store.CreateIndex, store.Index{Name: name, Match: "page:{site}:*", Group: name + ":{site}"}), name)
}

func indexOf(t testing.TB, set store.Settings, name string) *store.Index {
	t.Helper()
	x := set.Rules.Index(name)
	if x == nil {
		t.Fatalf("no index %q in %+v", name, set.Rules)
	}
	return x
}

// sameIndexes compares the stored fields of indexes.
var sameIndexes = cmpopts.IgnoreUnexported(store.Index{})

func wantIndexes(t testing.TB, what string, s store.Store, want store.Settings) {
	t.Helper()
	got := check(t, s).Settings
	if diff := cmp.Diff(want.Rules, got.Rules, sameTimes, sameIndexes); diff != "" || got.Version != want.Version {
		t.Errorf("%s: version %d, want %d; rules (-want +got):\n%s", what, got.Version, want.Version, diff)
	}
	if got.Rules == nil {
		return
	}
	for i := range got.Rules.Indexes {
		x := &got.Rules.Indexes[i]
		if group, ok := x.GroupOf("page:a:1"); !ok || group != "="+x.Name+":a" {
			t.Errorf("%s: the group of page:a:1 in %s is %q, %t", what, x.Name, group, ok)
		}
	}
}

// An index is stored in all its states, beside other rules.
func testIndexesChange(t *testing.T, su *suite) {
	s := su.open(t)
	ruled := addRule(t, s, "a*", keep)
	before := readTime(t, s)
	set := changeIndex(t, s, store.CreateIndex, store.Index{Name: "sites", Match: "page:{site}:*", Group: "sites:{site}"})
	x := indexOf(t, set, "sites")
	if set.Version != ruled.Version+1 || x.Number != set.Version || x.Version != set.Version || !x.InForce() || set.Rules.SeriesOf("a") == nil {
		t.Errorf("an index was created in %+v: got %+v with %+v", ruled, set, x)
	}
	least, most := before.Add(-time.Second), time.Now().Add(400*24*time.Hour)
	if !s.Limits().RefusesOldRules {
		least = before.Add(store.RulesSettle - time.Second)
	}
	if x.Since.Before(least) || x.Since.After(most) {
		t.Errorf("the index is in force since %s, want %s or later", x.Since, least)
	}
	wantIndexes(t, "created", s, set)
	if again := changeIndex(t, s, store.CreateIndex, store.Index{Name: "sites", Match: "page:{site}:*", Group: "sites:{site}"}); again.Version != set.Version {
		t.Errorf("the same index again is version %d, want %d", again.Version, set.Version)
	}
	createIndex(t, s, "other")
	served := changeIndex(t, s, store.ServeIndex, store.Index{Name: "sites", Number: x.Number, Checked: x.Since.Add(time.Hour)})
	if y := indexOf(t, served, "sites"); y.Serving.IsZero() || !y.Checked.Equal(x.Since.Add(time.Hour)) {
		t.Errorf("the index was served: got %+v", y)
	}
	wantIndexes(t, "served", s, served)
	ended := changeIndex(t, s, store.DeleteIndex, store.Index{Name: "sites"})
	if y := indexOf(t, ended, "sites"); y.InForce() || y.Version != ended.Version || y.Number != x.Number {
		t.Errorf("the index was deleted: got %+v", y)
	}
	wantIndexes(t, "deleted", s, ended)
	removed := changeIndex(t, s, store.RemoveIndex, store.Index{Name: "sites", Number: x.Number})
	if removed.Rules.Index("sites") != nil || removed.Rules.Index("other") == nil || removed.Rules.SeriesOf("a") == nil {
		t.Errorf("the index was removed: got %+v", removed.Rules)
	}
	wantIndexes(t, "removed", s, removed)
}

// allPlaces is a range of an index with all shards.
func allPlaces(x *store.Index, id int) store.IndexRange {
	return store.IndexRange{Index: x.Number, ID: id, To: math.MaxUint64}
}

// newRange stores a range with all shards.
func newRange(t testing.TB, s store.Store, x *store.Index) *store.IndexRange {
	t.Helper()
	p := allPlaces(x, 1)
	mustSwap(t, s, nil, []store.IndexRange{p})
	return &p
}

// swap repeats a call with an unclear outcome. Its own earlier attempt may have changed the ranges.
func swap(t testing.TB, s store.Store, old, next []store.IndexRange) (err error) {
	t.Helper()
	for range 100 {
		if err = s.SwapRanges(t.Context(), old, next); err == nil || errors.Is(err, store.ErrChanged) || errors.Is(err, store.ErrNoIndex) || certain(err) {
			return err
		}
	}
	return err
}

func mustSwap(t testing.TB, s store.Store, old, next []store.IndexRange) {
	t.Helper()
	if err := swap(t, s, old, next); err != nil {
		t.Fatalf("SwapRanges of %d ranges for %d: %v", len(next), len(old), err)
	}
}

func rangesOf(t testing.TB, s store.Store, x *store.Index) []store.IndexRange {
	t.Helper()
	ranges, err := s.Ranges(t.Context(), x.Number)
	if err != nil {
		t.Fatalf("Ranges: %v", err)
	}
	slices.SortFunc(ranges, func(a, b store.IndexRange) int { return a.ID - b.ID })
	return ranges
}

func wantRanges(t testing.TB, what string, s store.Store, x *store.Index, want ...store.IndexRange) {
	t.Helper()
	got := rangesOf(t, s, x)
	if !slices.EqualFunc(want, got, func(a, b store.IndexRange) bool { return cmp.Equal(a, b, sameTimes) }) {
		t.Errorf("%s: ranges\n got %+v\nwant %+v", what, got, want)
	}
}

// Ranges are swapped if the old ones are stored exactly so, all of them or none.
func testRangesSwap(t *testing.T, su *suite) {
	s := su.open(t)
	x, other := createIndex(t, s, "sites"), createIndex(t, s, "other")
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.UTC) // a worker's clock has nanoseconds
	one, two := allPlaces(x, 1), allPlaces(x, 12)
	one.To, two.From = math.MaxUint64/2, math.MaxUint64/2+1
	foreign := allPlaces(other, 1)
	mustSwap(t, s, nil, []store.IndexRange{one, two})
	mustSwap(t, s, nil, []store.IndexRange{foreign})
	wantRanges(t, "made", s, x, one, two)
	full := store.IndexRange{
		Index: x.Number, ID: 1, From: 1, To: math.MaxUint64 - 1, Worker: "w 1", Until: at, Round: 3, Read: at.Add(time.Hour),
		Shards: 1 << 40, Remainders: 5, Corrected: 6,
	}
	mustSwap(t, s, []store.IndexRange{one}, []store.IndexRange{full})
	wantRanges(t, "changed", s, x, full, two)
	for what, change := range map[string]func(p *store.IndexRange){
		"another worker": func(p *store.IndexRange) { p.Worker = "w 2" }, "another round": func(p *store.IndexRange) { p.Round++ },
		"another lease": func(p *store.IndexRange) { p.Until = p.Until.Add(time.Second) }, "another range": func(p *store.IndexRange) { p.From++ },
		"a range that is missing": func(p *store.IndexRange) { p.ID = 5 }, "a range before its change": func(p *store.IndexRange) { *p = one },
	} {
		wrong := full
		change(&wrong)
		next := []store.IndexRange{{Index: x.Number, ID: 30}}
		if err := swap(t, s, []store.IndexRange{two, wrong}, next); !errors.Is(err, store.ErrChanged) {
			t.Errorf("%s: got %v, want ErrChanged", what, err)
		}
	}
	if err := swap(t, s, []store.IndexRange{full}, []store.IndexRange{two}); !errors.Is(err, store.ErrChanged) {
		t.Errorf("a new range that exists: got %v, want ErrChanged", err)
	}
	wantRanges(t, "after refused changes", s, x, full, two)
	retired := store.IndexRange{Index: x.Number, ID: 1, Retired: true, Round: 4}
	third, fourth := allPlaces(x, 13), allPlaces(x, 14)
	mustSwap(t, s, []store.IndexRange{full}, []store.IndexRange{retired, third, fourth})
	wantRanges(t, "split", s, x, retired, two, third, fourth)
	mustSwap(t, s, []store.IndexRange{retired, two, third, fourth}, nil)
	wantRanges(t, "removed", s, x)
	wantRanges(t, "of another index", s, other, foreign)
}

// The first ranges are made only while the rules have the index, and range 1 goes with it.
func testRangesEndWithTheirIndex(t *testing.T, su *suite) {
	s := su.open(t)
	x, other := createIndex(t, s, "sites"), createIndex(t, s, "other")
	p, foreign := newRange(t, s, x), newRange(t, s, other)
	changeIndex(t, s, store.DeleteIndex, store.Index{Name: "sites"})
	if err := swap(t, s, nil, []store.IndexRange{*p}); !errors.Is(err, store.ErrChanged) {
		t.Errorf("the first range again while the index is deleted: got %v, want ErrChanged", err)
	}
	wantRanges(t, "the index is deleted", s, x, *p)
	changeIndex(t, s, store.RemoveIndex, store.Index{Name: "sites", Number: x.Number})
	wantRanges(t, "the index is gone", s, x)
	next := createIndex(t, s, "sites")
	if err := swap(t, s, nil, []store.IndexRange{*p}); !errors.Is(err, store.ErrNoIndex) {
		t.Errorf("the first range of an index that is gone: got %v, want ErrNoIndex", err)
	}
	wantRanges(t, "after a refused range", s, x)
	wantRanges(t, "another index of the name", s, next, *newRange(t, s, next))
	wantRanges(t, "another index", s, other, *foreign)
}

func testRangesTakeLimits(t *testing.T, su *suite) {
	s := su.open(t)
	x := createIndex(t, s, "sites")
	var ranges, next []store.IndexRange
	for i := range 100 {
		p := allPlaces(x, i+1)
		ranges = append(ranges, p)
		p.Round++
		next = append(next, p)
	}
	mustSwap(t, s, nil, ranges)
	mustSwap(t, s, ranges, next)
	wantRanges(t, "a hundred at once", s, x, next...)
	mustSwap(t, s, next, nil)
	wantRanges(t, "a hundred removed", s, x)
}
