package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/store"
)

func rest(group string, n int64) store.GroupRest { return store.GroupRest{Group: group, Rest: n} }

// setting repeats a call with an unclear outcome: a set has no effect twice.
func setting(ctx context.Context, s store.Store, p *store.Piece, rests ...store.GroupRest) (err error) {
	for range 100 {
		if err = s.SetRests(ctx, p, rests); err == nil || errors.Is(err, store.ErrChanged) || certain(err) || ctx.Err() != nil {
			return err
		}
	}
	return err
}

func setRests(t testing.TB, s store.Store, p *store.Piece, rests ...store.GroupRest) {
	t.Helper()
	if err := setting(t.Context(), s, p, rests...); err != nil {
		t.Fatalf("SetRests of %d: %v", len(rests), err)
	}
}

// wantRests reads the rests of a piece in pages of two.
func wantRests(t testing.TB, what string, s store.Store, p *store.Piece, want ...store.GroupRest) {
	t.Helper()
	var got []store.GroupRest
	for after := ""; ; {
		page, err := s.RestsOf(t.Context(), p, after, 2)
		if err != nil || len(page) > 2 {
			t.Fatalf("%s: RestsOf after %q: %+v, %v", what, after, page, err)
		}
		if got = append(got, page...); len(page) < 2 {
			break
		}
		after = page[1].Group
	}
	if diff := cmp.Diff(want, got, equateEmpty); diff != "" {
		t.Errorf("%s: rests (-want +got):\n%s", what, diff)
	}
}

// wantRecord checks the rest of a group's record, in a look-up and in a list.
func wantRecord(t testing.TB, what string, s store.Store, group string, want int64, overflow bool) {
	t.Helper()
	v := s.View()
	defer v.Close()
	got := lookup(t, v, store.Key{Counter: group, Shard: store.RecordKey})[0]
	if !got.Exists || got.Value < 1 || got.Overflow != overflow || !overflow && got.Rest != want {
		t.Errorf("%s: the record of %q is %+v; want a rest of %d, an overflow: %t", what, group, got, want, overflow)
	}
	listed, err := v.List(t.Context(), group, "", 1)
	if err != nil || len(listed) != 1 || listed[0].Counter != group || listed[0].Overflow != overflow || !overflow && listed[0].Rest != want {
		t.Errorf("%s: the list has %+v, %v; want %q with a rest of %d, an overflow: %t", what, listed, err, group, want, overflow)
	}
}

// A rest replaces the one before, and the record has the sum over the pieces.
func testSetRests(t *testing.T, su *suite) {
	s := su.open(t)
	x := createIndex(t, s, "sites")
	p, q := allPlaces(x, 1), allPlaces(x, 2)
	mustSwap(t, s, nil, []store.Piece{p, q})
	grow(t, s, store.Growth{Counter: "=sites:b", Shards: 7})
	setRests(t, s, &p, rest("=sites:a", 5), rest("=sites:b", -3), rest("=sites:c", 0), rest("=sites:d", 1<<40+3))
	wantRests(t, "set", s, &p, rest("=sites:a", 5), rest("=sites:b", -3), rest("=sites:d", 1<<40+3))
	wantRecord(t, "set", s, "=sites:a", 5, false)
	wantRecord(t, "set", s, "=sites:b", -3, false)
	wantRecord(t, "set", s, "=sites:d", 1<<40+3, false)
	if got := shards(t, s, "=sites:b", "=sites:c"); got[0] != 7 || got[1] != 0 {
		t.Errorf("numbers of shards: got %d, want 7 as before, and no record for a rest of 0", got)
	}
	v := s.View()
	defer v.Close()
	lookup(t, v, store.Key{Counter: "zzz"})
	for range 2 {
		setRests(t, s, &p, rest("=sites:a", 8), rest("=sites:b", 0))
		setRests(t, s, &q, rest("=sites:a", -20), rest("=sites:b", math.MinInt64+9))
	}
	wantRests(t, "set again", s, &p, rest("=sites:a", 8), rest("=sites:d", 1<<40+3))
	wantRests(t, "of another piece", s, &q, rest("=sites:a", -20), rest("=sites:b", math.MinInt64+9))
	wantRecord(t, "of both pieces", s, "=sites:a", -12, false)
	wantRecord(t, "of the other piece", s, "=sites:b", math.MinInt64+9, false)
	if got := lookup(t, v, store.Key{Counter: "=sites:a", Shard: store.RecordKey})[0]; got.Rest != 5 {
		t.Errorf("a view from before shows a rest of %d, want 5", got.Rest)
	}
	setRests(t, s, &p, rest("=sites:a", 0))
	setRests(t, s, &q, rest("=sites:a", 0))
	wantRecord(t, "taken back", s, "=sites:a", 0, false)
	mustFold(t, s, withRules(commit(nil, add("=sites:d", 0, 4)), x.Version))
	if got := look(t, s, "=sites:d"); got.Sum != 1<<40+7 {
		t.Errorf("a group of a rest and a shard: got %+v, want 2^40+7", got)
	}
	if got := look(t, s, "page:a:1"); got.Exists {
		t.Errorf("a counter was made: %+v", got)
	}
}

// A worker that lost its piece sets nothing.
func testSetRestsNeedsThePiece(t *testing.T, su *suite) {
	s := su.open(t)
	x := createIndex(t, s, "sites")
	p := *newPiece(t, s, x)
	setRests(t, s, &p, rest("=sites:a", 5))
	taken := p
	taken.Worker, taken.Round = "another", 1
	mustSwap(t, s, []store.Piece{p}, []store.Piece{taken})
	gone := allPlaces(x, 9)
	for what, lost := range map[string]*store.Piece{"a piece in other hands": &p, "a piece that is missing": &gone} {
		if err := setting(t.Context(), s, lost, rest("=sites:a", 50), rest("=sites:b", 1)); !errors.Is(err, store.ErrChanged) {
			t.Errorf("%s: got %v, want ErrChanged", what, err)
		}
	}
	wantRests(t, "after refused rests", s, &taken, rest("=sites:a", 5))
	wantRecord(t, "after refused rests", s, "=sites:a", 5, false)
	if got := shards(t, s, "=sites:b"); got[0] != 0 {
		t.Errorf("a refused rest made a record of %d shards", got[0])
	}
	setRests(t, s, &taken, rest("=sites:a", 6))
	wantRecord(t, "of the new worker", s, "=sites:a", 6, false)
}

func testSetRestsTakesLimits(t *testing.T, su *suite) {
	s := su.open(t)
	x := createIndex(t, s, "sites")
	p := newPiece(t, s, x)
	n := s.Limits().Rests
	if n < 1 {
		t.Fatal("Limits.Rests is 0")
	}
	var rests []store.GroupRest
	for i := range n {
		rests = append(rests, rest(fmt.Sprintf("=sites:%05d%s", i, long("é")[:400]), int64(i+1)))
	}
	setRests(t, s, p, rests...)
	found, err := s.RestsOf(t.Context(), p, "", n+1)
	if diff := cmp.Diff(rests, found); err != nil || diff != "" {
		t.Errorf("%d rests: %v (-want +got):\n%s", n, err, diff)
	}
	wantRecord(t, "the last of many", s, rests[n-1].Group, int64(n), false)
}

func testRestsTakeAnyName(t *testing.T, su *suite) {
	s := su.open(t)
	x := createIndex(t, s, "sites")
	p, q := allPlaces(x, 1), allPlaces(x, 11)
	mustSwap(t, s, nil, []store.Piece{p, q})
	var rests []store.GroupRest
	for i, name := range oddNames {
		if len(name) < 400 {
			rests = append(rests, rest("=sites:"+name, int64(i+1)))
		}
	}
	for some := range slices.Chunk(rests, s.Limits().Rests) {
		setRests(t, s, &p, some...)
	}
	setRests(t, s, &q, rest("=sites:q", 1))
	slices.SortFunc(rests, func(a, b store.GroupRest) int { return strings.Compare(a.Group, b.Group) })
	wantRests(t, "odd names", s, &p, rests...)
	wantRests(t, "of a piece whose number begins with the other's", s, &q, rest("=sites:q", 1))
	for _, r := range rests {
		if got := look(t, s, r.Group); !got.Exists || got.Sum != r.Rest {
			t.Errorf("group %q is %+v, want %d", r.Group, got, r.Rest)
		}
	}
}

// A rest of math.MaxInt64 makes its group overflow, and leaves no trace when it goes. A sum beyond int64 is an
// overflow too, until it fits again.
func testRestsReportOverflow(t *testing.T, su *suite) {
	s := su.open(t)
	x := createIndex(t, s, "sites")
	p, q := allPlaces(x, 1), allPlaces(x, 2)
	mustSwap(t, s, nil, []store.Piece{p, q})
	const group = "=sites:a"
	setRests(t, s, &q, rest(group, -5))
	setRests(t, s, &p, rest(group, math.MaxInt64))
	wantRecord(t, "a rest that does not fit", s, group, 0, true)
	wantRests(t, "a rest that does not fit", s, &p, rest(group, math.MaxInt64))
	setRests(t, s, &q, rest(group, math.MinInt64+9))
	wantRecord(t, "with another far below 0", s, group, 0, true)
	setRests(t, s, &q, rest(group, math.MaxInt64))
	wantRecord(t, "two that do not fit", s, group, 0, true)
	setRests(t, s, &q, rest(group, math.MaxInt64-1))
	setRests(t, s, &p, rest(group, 12))
	wantRecord(t, "a sum beyond int64", s, group, 0, true)
	setRests(t, s, &q, rest(group, -7))
	wantRecord(t, "back in range", s, group, 5, false)
	setRests(t, s, &p, rest(group, math.MinInt64+1))
	setRests(t, s, &q, rest(group, -9))
	wantRecord(t, "a sum below int64", s, group, 0, true)
	setRests(t, s, &q, rest(group, 100))
	wantRecord(t, "back in range again", s, group, math.MinInt64+101, false)
}

// Pieces move one record at once, beside growths.
func testRestsBesideGrowths(t *testing.T, su *suite) {
	s := su.open(t)
	x := createIndex(t, s, "sites")
	pieces := []store.Piece{allPlaces(x, 1), allPlaces(x, 2), allPlaces(x, 3)}
	mustSwap(t, s, nil, pieces)
	rounds := max(su.rounds/20, 3)
	var all sync.WaitGroup
	for i := range pieces {
		all.Go(func() {
			for n := range rounds {
				if err := setting(t.Context(), s, &pieces[i], rest("=sites:a", int64(n-3)), rest("=sites:b", int64(10*n))); err != nil {
					t.Errorf("SetRests beside others: %v", err)
				}
			}
		})
	}
	all.Go(func() {
		for n := range rounds {
			for try := 0; s.Grow(t.Context(), []store.Growth{{Counter: "=sites:a", Shards: n + 1}}) != nil && try < 100; try++ {
			}
			_, _ = foldRetrying(t.Context(), s, withRules(commit(one(marker()), add("=sites:a", 0, 1)), x.Version))
		}
	})
	all.Wait()
	last := int64(rounds - 1)
	wantRecord(t, "after rests at once", s, "=sites:a", 3*(last-3), false)
	wantRecord(t, "after rests at once", s, "=sites:b", 30*last, false)
	if got := shards(t, s, "=sites:a"); got[0] != rounds {
		t.Errorf("the record names %d shards, want %d", got[0], rounds)
	}
}

// No group of another index goes, nor any counter, and a later index begins with nothing.
func testDropGroups(t *testing.T, su *suite) {
	s := seriesStore(t, su)
	m := today(t, s)
	x, y := createIndex(t, s, "sites"), createIndex(t, s, "site")
	p, q := allPlaces(x, 1), allPlaces(y, 1)
	mustSwap(t, s, nil, []store.Piece{p})
	mustSwap(t, s, nil, []store.Piece{q})
	groups := []string{"=sites:a", "=sites:b", "=sites:c", x.Overflow()}
	for _, name := range append(groups, "=site:a", y.Overflow(), "page:a:1") {
		grow(t, s, store.Growth{Counter: name, Shards: 3})
		c := seriesCommit(nil, bucketed{name, 0, m, 1}, bucketed{name, 2, m - 3*store.DayMinutes, 1})
		c.Archive = archiveOf(t, s)
		mustFold(t, s, withRules(c, y.Version))
	}
	setRests(t, s, &p, rest("=sites:a", 5), rest("=sites:d", 6))
	setRests(t, s, &q, rest("=site:a", 7))
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
	wantRests(t, "of an index that is gone", s, &p)
	if after := look(t, s, "=site:a"); after.Sum != 9 || after.Sum != before.Sum || look(t, s, y.Overflow()).Sum != 2 || look(t, s, "page:a:1").Sum != 2 {
		t.Errorf("a group of another index is %+v, and was %+v; or another counter has changed", after, before)
	}
	wantRests(t, "of another index", s, &q, rest("=site:a", 7))
}

// A group that was deleted goes with its rest, unless the rest has moved since.
func testSweepTakesGroups(t *testing.T, su *suite) {
	s := su.open(t)
	x := createIndex(t, s, "sites")
	p := newPiece(t, s, x)
	setRests(t, s, p, rest("=sites:gone", 5), rest("=sites:moved", 6))
	mustFold(t, s, withRules(commit(nil, add("=sites:gone", 0, 2)), x.Version))
	for _, group := range []string{"=sites:gone", "=sites:moved"} {
		d := resetOf(group, look(t, s, group))
		d.Delete = true
		reset(t, s, d)
	}
	setRests(t, s, p, rest("=sites:moved", 10))
	sweepAll(t, s, 1)
	checkLook(t, s, "=sites:gone", store.Sum{})
	if got := look(t, s, "=sites:moved"); got.Sum-got.Baseline != 4 || !got.DeletedAt.IsZero() {
		t.Errorf("a group whose rest has moved since its delete: %+v, want a total of 4, and not deleted", got)
	}
	setRests(t, s, p, rest("=sites:gone", 8))
	if got := look(t, s, "=sites:gone"); got.Sum != 3 {
		t.Errorf("a group that was swept, and whose rest moved by 3: %+v, want 3", got)
	}
}
