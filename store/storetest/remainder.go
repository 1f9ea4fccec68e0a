package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
)

func remainder(group string, n int64) store.GroupRemainder {
	return store.GroupRemainder{Group: group, Remainder: of(n)}
}

// setting repeats a call with an unclear outcome: a set has no effect twice.
func setting(ctx context.Context, s store.Store, p *store.IndexRange, remainders ...store.GroupRemainder) (err error) {
	for range 100 {
		if err = s.SetRemainders(ctx, p, remainders); err == nil || errors.Is(err, store.ErrChanged) || certain(err) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func setRemainders(t testing.TB, s store.Store, p *store.IndexRange, remainders ...store.GroupRemainder) {
	t.Helper()
	if err := setting(t.Context(), s, p, remainders...); err != nil {
		t.Fatalf("SetRemainders of %d: %v", len(remainders), err)
	}
}

// wantRemainders reads the remainders of a range in pages of two.
func wantRemainders(t testing.TB, what string, s store.Store, p *store.IndexRange, want ...store.GroupRemainder) {
	t.Helper()
	var got []store.GroupRemainder
	for after := ""; ; {
		page, err := s.RemaindersOf(t.Context(), p, after, 2)
		if err != nil || len(page) > 2 {
			t.Fatalf("%s: RemaindersOf after %q: %+v, %v", what, after, page, err)
		}
		if got = append(got, page...); len(page) < 2 {
			break
		}
		after = page[1].Group
	}
	if diff := cmp.Diff(want, got, equateEmpty); diff != "" {
		t.Errorf("%s: remainders (-want +got):\n%s", what, diff)
	}
}

// wantRecord checks the remainder of a group's record, in a look-up and in a list.
func wantRecord(t testing.TB, what string, s store.Store, group string, want int128.Int) {
	t.Helper()
	v := s.View()
	defer v.Close()
	got := lookup(t, v, store.Key{Counter: group, Shard: store.RecordKey})[0]
	if !got.Exists || got.Shards < 1 || got.Remainder != want {
		t.Errorf("%s: the record of %q is %+v; want a remainder of %d", what, group, got, want)
	}
	listed, err := v.List(t.Context(), group, "", 1)
	if err != nil || len(listed) != 1 || listed[0].Counter != group || listed[0].Remainder != want {
		t.Errorf("%s: the list has %+v, %v; want %q with a remainder of %d", what, listed, err, group, want)
	}
}

// A remainder replaces the one before, and the record has the sum over the ranges.
func testSetRemainders(t *testing.T, su *suite) {
	s := su.open(t)
	x := createIndex(t, s, "sites")
	p, q := allPlaces(x, 1), allPlaces(x, 2)
	mustSwap(t, s, nil, []store.IndexRange{p, q})
	grow(t, s, store.Growth{Counter: "=sites:b", Shards: 7})
	setRemainders(t, s, &p, remainder("=sites:a", 5), remainder("=sites:b", -3), remainder("=sites:c", 0), remainder("=sites:d", 1<<40+3))
	wantRemainders(t, "set", s, &p, remainder("=sites:a", 5), remainder("=sites:b", -3), remainder("=sites:d", 1<<40+3))
	wantRecord(t, "set", s, "=sites:a", of(5))
	wantRecord(t, "set", s, "=sites:b", of(-3))
	wantRecord(t, "set", s, "=sites:d", of(1<<40+3))
	if got := shards(t, s, "=sites:b", "=sites:c"); got[0] != 7 || got[1] != 0 {
		t.Errorf("numbers of shards: got %d, want 7 as before, and no record for a remainder of 0", got)
	}
	v := s.View()
	defer v.Close()
	lookup(t, v, store.Key{Counter: "zzz"})
	for range 2 {
		setRemainders(t, s, &p, remainder("=sites:a", 8), remainder("=sites:b", 0))
		setRemainders(t, s, &q, remainder("=sites:a", -20), remainder("=sites:b", math.MinInt64+9))
	}
	wantRemainders(t, "set again", s, &p, remainder("=sites:a", 8), remainder("=sites:d", 1<<40+3))
	wantRemainders(t, "of another range", s, &q, remainder("=sites:a", -20), remainder("=sites:b", math.MinInt64+9))
	wantRecord(t, "of both ranges", s, "=sites:a", of(-12))
	wantRecord(t, "of the other range", s, "=sites:b", of(math.MinInt64+9))
	if got := lookup(t, v, store.Key{Counter: "=sites:a", Shard: store.RecordKey})[0]; got.Remainder != of(5) {
		t.Errorf("a view from before shows a remainder of %d, want 5", got.Remainder)
	}
	setRemainders(t, s, &p, remainder("=sites:a", 0))
	setRemainders(t, s, &q, remainder("=sites:a", 0))
	wantRecord(t, "taken back", s, "=sites:a", of(0))
	mustFold(t, s, withRules(commit(nil, add("=sites:d", 0, 4)), x.Version))
	if got := look(t, s, "=sites:d"); got.Sum != of(1<<40+7) {
		t.Errorf("a group of a remainder and a shard: got %+v, want 2^40+7", got)
	}
	if got := look(t, s, "page:a:1"); got.Exists {
		t.Errorf("a counter was made: %+v", got)
	}
}

// A worker that lost its range sets nothing.
func testSetRemaindersNeedsTheRange(t *testing.T, su *suite) {
	s := su.open(t)
	x := createIndex(t, s, "sites")
	p := *newRange(t, s, x)
	setRemainders(t, s, &p, remainder("=sites:a", 5))
	taken := p
	taken.Worker, taken.Round = "another", 1
	mustSwap(t, s, []store.IndexRange{p}, []store.IndexRange{taken})
	gone := allPlaces(x, 9)
	for what, lost := range map[string]*store.IndexRange{"a range in other hands": &p, "a range that is missing": &gone} {
		if err := setting(t.Context(), s, lost, remainder("=sites:a", 50), remainder("=sites:b", 1)); !errors.Is(err, store.ErrChanged) {
			t.Errorf("%s: got %v, want ErrChanged", what, err)
		}
	}
	wantRemainders(t, "after refused remainders", s, &taken, remainder("=sites:a", 5))
	wantRecord(t, "after refused remainders", s, "=sites:a", of(5))
	if got := shards(t, s, "=sites:b"); got[0] != 0 {
		t.Errorf("a refused remainder made a record of %d shards", got[0])
	}
	setRemainders(t, s, &taken, remainder("=sites:a", 6))
	wantRecord(t, "of the new worker", s, "=sites:a", of(6))
}

func testSetRemaindersTakesLimits(t *testing.T, su *suite) {
	s := su.open(t)
	x := createIndex(t, s, "sites")
	p := newRange(t, s, x)
	n := s.Limits().Remainders
	if n < 1 {
		t.Fatal("Limits.Remainders is 0")
	}
	var remainders []store.GroupRemainder
	for i := range n {
		remainders = append(remainders, remainder(fmt.Sprintf("=sites:%05d%s", i, long("é")[:400]), int64(i+1)))
	}
	setRemainders(t, s, p, remainders...)
	found, err := s.RemaindersOf(t.Context(), p, "", n+1)
	if diff := cmp.Diff(remainders, found); err != nil || diff != "" {
		t.Errorf("%d remainders: %v (-want +got):\n%s", n, err, diff)
	}
	wantRecord(t, "the last of many", s, remainders[n-1].Group, of(int64(n)))
}

func testRemaindersTakeAnyName(t *testing.T, su *suite) {
	s := su.open(t)
	x := createIndex(t, s, "sites")
	p, q := allPlaces(x, 1), allPlaces(x, 11)
	mustSwap(t, s, nil, []store.IndexRange{p, q})
	var remainders []store.GroupRemainder
	for i, name := range oddNames {
		if len(name) < 400 {
			remainders = append(remainders, remainder("=sites:"+name, int64(i+1)))
		}
	}
	for some := range slices.Chunk(remainders, s.Limits().Remainders) {
		setRemainders(t, s, &p, some...)
	}
	setRemainders(t, s, &q, remainder("=sites:q", 1))
	slices.SortFunc(remainders, func(a, b store.GroupRemainder) int { return strings.Compare(a.Group, b.Group) })
	wantRemainders(t, "odd names", s, &p, remainders...)
	wantRemainders(t, "of a range whose number begins with the other's", s, &q, remainder("=sites:q", 1))
	for _, r := range remainders {
		if got := look(t, s, r.Group); !got.Exists || got.Sum != r.Remainder {
			t.Errorf("group %q is %+v, want %d", r.Group, got, r.Remainder)
		}
	}
}

// Remainders and their sums are exact beyond int64, and leave no trace when they go.
func testRemaindersBeyondInt64(t *testing.T, su *suite) {
	s := su.open(t)
	x := createIndex(t, s, "sites")
	p, q := allPlaces(x, 1), allPlaces(x, 2)
	mustSwap(t, s, nil, []store.IndexRange{p, q})
	const group = "=sites:a"
	far := of(math.MaxInt64).Add(of(math.MaxInt64))
	large := store.GroupRemainder{Group: group, Remainder: far}
	setRemainders(t, s, &q, remainder(group, -5))
	setRemainders(t, s, &p, large)
	wantRecord(t, "a remainder beyond int64", s, group, far.Sub(of(5)))
	wantRemainders(t, "a remainder beyond int64", s, &p, large)
	setRemainders(t, s, &q, large)
	wantRecord(t, "two of them", s, group, far.Add(far))
	setRemainders(t, s, &p, store.GroupRemainder{Group: group, Remainder: far.Neg()})
	wantRecord(t, "above and below", s, group, of(0))
	setRemainders(t, s, &q, remainder(group, math.MinInt64))
	wantRecord(t, "below", s, group, of(math.MinInt64).Sub(far))
	setRemainders(t, s, &p, remainder(group, 12))
	wantRecord(t, "back in range", s, group, of(math.MinInt64+12))
}

// No group of another index goes, nor any counter, and a later index begins with nothing.
func testDropGroups(t *testing.T, su *suite) {
	s := seriesStore(t, su)
	m := today(t, s)
	x, y := createIndex(t, s, "sites"), createIndex(t, s, "site")
	p, q := allPlaces(x, 1), allPlaces(y, 1)
	mustSwap(t, s, nil, []store.IndexRange{p})
	mustSwap(t, s, nil, []store.IndexRange{q})
	groups := []string{"=sites:a", "=sites:b", "=sites:c", x.Overflow()}
	for _, name := range append(groups, "=site:a", y.Overflow(), "page:a:1") {
		grow(t, s, store.Growth{Counter: name, Shards: 3})
		c := seriesCommit(nil, bucketed{name, 0, m, 1}, bucketed{name, 2, m - 3*store.DayMinutes, 1})
		c.Archive = archiveOf(t, s)
		mustFold(t, s, withRules(c, y.Version))
	}
	setRemainders(t, s, &p, remainder("=sites:a", 5), remainder("=sites:d", 6))
	setRemainders(t, s, &q, remainder("=site:a", 7))
	before := look(t, s, "=site:a")
	for what, wrong := range map[string]*store.Index{"an index in force": x, "an index of another number": {Name: "sites", Number: x.Number + 1000, Match: x.Match, Group: x.Group}} {
		if err := wrong.Parse(); err != nil {
			t.Fatal(err)
		}
		if n, err := s.DropGroups(t.Context(), wrong, 10); !errors.Is(err, store.ErrChanged) || n != 0 {
			t.Errorf("DropGroups of %s: got %d, %v, want ErrChanged", what, n, err)
		}
	}
	x = indexOf(t, changeIndex(t, s, store.DeleteIndex, store.Index{Name: "sites"}), "sites")
	for calls := 0; ; calls++ {
		n, err := s.DropGroups(t.Context(), x, 2)
		if err != nil || calls > 100 {
			t.Fatalf("call %d of DropGroups: %d, %v", calls, n, err)
		}
		if n == 0 {
			break
		}
	}
	for _, name := range append(groups, "=sites:d") {
		checkLook(t, s, name, store.Sum{})
		wantSeries(t, name, seriesOf(t, s, name))
		if got := sum(t, s, name, 3); got != 0 {
			t.Errorf("the shards of group %q hold %d", name, got)
		}
	}
	wantRemainders(t, "of an index that is gone", s, &p)
	if after := look(t, s, "=site:a"); after.Sum != of(9) || after.Sum != before.Sum || look(t, s, y.Overflow()).Sum != of(2) || look(t, s, "page:a:1").Sum != of(2) {
		t.Errorf("a group of another index is %+v, and was %+v; or another counter has changed", after, before)
	}
	wantRemainders(t, "of another index", s, &q, remainder("=site:a", 7))
}

// A group that was deleted goes with its remainder, unless the remainder has moved since.
func testSweepTakesGroups(t *testing.T, su *suite) {
	s := su.open(t)
	x := createIndex(t, s, "sites")
	p := newRange(t, s, x)
	setRemainders(t, s, p, remainder("=sites:gone", 5), remainder("=sites:moved", 6))
	mustFold(t, s, withRules(commit(nil, add("=sites:gone", 0, 2)), x.Version))
	for _, group := range []string{"=sites:gone", "=sites:moved"} {
		d := resetOf(group, look(t, s, group))
		d.Delete = true
		reset(t, s, d)
	}
	setRemainders(t, s, p, remainder("=sites:moved", 10))
	sweepAll(t, s, 1)
	checkLook(t, s, "=sites:gone", store.Sum{})
	if got := look(t, s, "=sites:moved"); got.Sum.Sub(got.Baseline) != of(4) || !got.DeletedAt.IsZero() {
		t.Errorf("a group whose remainder has moved since its delete: %+v, want a total of 4, and not deleted", got)
	}
	setRemainders(t, s, p, remainder("=sites:gone", 8))
	if got := look(t, s, "=sites:gone"); got.Sum != of(3) {
		t.Errorf("a group that was swept, and whose remainder moved by 3: %+v, want 3", got)
	}
}
