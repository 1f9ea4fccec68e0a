package storetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countmill/countmill"
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

func testIndexesRefused(t *testing.T, su *suite) {
	s := su.open(t)
	x := createIndex(t, s, "sites")
	set := check(t, s).Settings
	for _, tt := range []struct {
		change store.IndexChange
		want   error
	}{
		{store.IndexChange{Step: store.CreateIndex, Index: store.Index{Name: "sites", Match: "other:{site}", Group: "o:{site}"}}, countmill.ErrInvalid},
		{store.IndexChange{Step: store.CreateIndex, Index: store.Index{Name: "twin", Match: "page:{site}:*", Group: "sites:{site}"}}, countmill.ErrInvalid},
		{store.IndexChange{Step: store.DeleteIndex, Index: store.Index{Name: "nobody"}}, store.ErrNoIndex},
		{store.IndexChange{Step: store.RemoveIndex, Index: store.Index{Name: "sites", Number: x.Number}}, store.ErrNoIndex},
		{store.IndexChange{Step: store.ServeIndex, Index: store.Index{Name: "sites", Number: x.Number + 1}}, store.ErrNoIndex},
	} {
		if _, err := s.ChangeRules(t.Context(), store.RuleChange{Index: &tt.change}); !errors.Is(err, tt.want) {
			t.Errorf("%+v: got %v, want %v", tt.change, err, tt.want)
		}
	}
	wantIndexes(t, "after refused changes", s, set)
}

func testReopenedIndexes(t *testing.T, su *suite) {
	if su.reopen == nil {
		t.Skip("the store does not outlive its process")
	}
	s := su.open(t)
	addRule(t, s, "a*", keep)
	x := createIndex(t, s, "sites")
	set := check(t, s).Settings
	p := newPiece(t, s, x)
	fold1(t, s, x, "page:a:1", 0, 5)
	setRests(t, s, p, store.GroupRest{Group: "=sites:a", Rest: -7})
	s = su.reopen(t, s)
	wantIndexes(t, "opened again", s, set)
	wantPieces(t, "opened again", s, x, *p)
	wantRests(t, "opened again", s, p, store.GroupRest{Group: "=sites:a", Rest: -7})
	wantRecord(t, "opened again", s, "=sites:a", -7, false)
	wantUngrouped(t, "opened again", s, x, p, nil)
}

// allPlaces is a piece of an index with all shards.
func allPlaces(x *store.Index, id int) store.Piece {
	return store.Piece{Index: x.Number, ID: id, To: math.MaxUint64}
}

// newPiece stores a piece with all shards.
func newPiece(t testing.TB, s store.Store, x *store.Index) *store.Piece {
	t.Helper()
	p := allPlaces(x, 1)
	mustSwap(t, s, nil, []store.Piece{p})
	return &p
}

// swap repeats a call with an unclear outcome. Its own earlier attempt may have changed the pieces.
func swap(t testing.TB, s store.Store, old, next []store.Piece) (err error) {
	t.Helper()
	for range 100 {
		if err = s.SwapPieces(t.Context(), old, next); err == nil || errors.Is(err, store.ErrChanged) || errors.Is(err, store.ErrNoIndex) || certain(err) {
			return err
		}
	}
	return err
}

func mustSwap(t testing.TB, s store.Store, old, next []store.Piece) {
	t.Helper()
	if err := swap(t, s, old, next); err != nil {
		t.Fatalf("SwapPieces of %d pieces for %d: %v", len(next), len(old), err)
	}
}

func piecesOf(t testing.TB, s store.Store, x *store.Index) []store.Piece {
	t.Helper()
	pieces, err := s.Pieces(t.Context(), x.Number)
	if err != nil {
		t.Fatalf("Pieces: %v", err)
	}
	slices.SortFunc(pieces, func(a, b store.Piece) int { return a.ID - b.ID })
	return pieces
}

func wantPieces(t testing.TB, what string, s store.Store, x *store.Index, want ...store.Piece) {
	t.Helper()
	got := piecesOf(t, s, x)
	if !slices.EqualFunc(want, got, func(a, b store.Piece) bool { return a.Same(&b) }) {
		t.Errorf("%s: pieces\n got %+v\nwant %+v", what, got, want)
	}
}

// Pieces are swapped if the old ones are stored exactly so, all of them or none.
func testPiecesSwap(t *testing.T, su *suite) {
	s := su.open(t)
	x, other := createIndex(t, s, "sites"), createIndex(t, s, "other")
	at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.UTC) // a worker's clock has nanoseconds
	one, two := allPlaces(x, 1), allPlaces(x, 12)
	one.To, two.From = math.MaxUint64/2, math.MaxUint64/2+1
	foreign := allPlaces(other, 1)
	mustSwap(t, s, nil, []store.Piece{one, two})
	mustSwap(t, s, nil, []store.Piece{foreign})
	wantPieces(t, "made", s, x, one, two)
	full := store.Piece{
		Index: x.Number, ID: 1, From: 1, To: math.MaxUint64 - 1, Worker: "w 1", Until: at, Round: 3, Read: at.Add(time.Hour),
		Shards: 1 << 40, Rests: 5, Corrected: 6,
	}
	mustSwap(t, s, []store.Piece{one}, []store.Piece{full})
	wantPieces(t, "changed", s, x, full, two)
	for what, change := range map[string]func(p *store.Piece){
		"another worker": func(p *store.Piece) { p.Worker = "w 2" }, "another round": func(p *store.Piece) { p.Round++ },
		"another lease": func(p *store.Piece) { p.Until = p.Until.Add(time.Second) }, "another range": func(p *store.Piece) { p.From++ },
		"a piece that is missing": func(p *store.Piece) { p.ID = 5 }, "a piece before its change": func(p *store.Piece) { *p = one },
	} {
		wrong := full
		change(&wrong)
		next := []store.Piece{{Index: x.Number, ID: 30}}
		if err := swap(t, s, []store.Piece{two, wrong}, next); !errors.Is(err, store.ErrChanged) {
			t.Errorf("%s: got %v, want ErrChanged", what, err)
		}
	}
	if err := swap(t, s, []store.Piece{full}, []store.Piece{two}); !errors.Is(err, store.ErrChanged) {
		t.Errorf("a new piece that exists: got %v, want ErrChanged", err)
	}
	wantPieces(t, "after refused changes", s, x, full, two)
	retired := store.Piece{Index: x.Number, ID: 1, Retired: true, Round: 4}
	third, fourth := allPlaces(x, 13), allPlaces(x, 14)
	mustSwap(t, s, []store.Piece{full}, []store.Piece{retired, third, fourth})
	wantPieces(t, "split", s, x, retired, two, third, fourth)
	mustSwap(t, s, []store.Piece{retired, two, third, fourth}, nil)
	wantPieces(t, "removed", s, x)
	wantPieces(t, "of another index", s, other, foreign)
}

// The first pieces are made only while the rules have the index, and piece 1 goes with it.
func testPiecesEndWithTheirIndex(t *testing.T, su *suite) {
	s := su.open(t)
	x, other := createIndex(t, s, "sites"), createIndex(t, s, "other")
	p, foreign := newPiece(t, s, x), newPiece(t, s, other)
	changeIndex(t, s, store.DeleteIndex, store.Index{Name: "sites"})
	if err := swap(t, s, nil, []store.Piece{*p}); !errors.Is(err, store.ErrChanged) {
		t.Errorf("the first piece again while the index is deleted: got %v, want ErrChanged", err)
	}
	wantPieces(t, "the index is deleted", s, x, *p)
	changeIndex(t, s, store.RemoveIndex, store.Index{Name: "sites", Number: x.Number})
	wantPieces(t, "the index is gone", s, x)
	next := createIndex(t, s, "sites")
	if err := swap(t, s, nil, []store.Piece{*p}); !errors.Is(err, store.ErrNoIndex) {
		t.Errorf("the first piece of an index that is gone: got %v, want ErrNoIndex", err)
	}
	wantPieces(t, "after a refused piece", s, x)
	wantPieces(t, "another index of the name", s, next, *newPiece(t, s, next))
	wantPieces(t, "another index", s, other, *foreign)
}

func testPiecesTakeLimits(t *testing.T, su *suite) {
	s := su.open(t)
	x := createIndex(t, s, "sites")
	var pieces, next []store.Piece
	for i := range 100 {
		p := allPlaces(x, i+1)
		pieces = append(pieces, p)
		p.Round++
		next = append(next, p)
	}
	mustSwap(t, s, nil, pieces)
	mustSwap(t, s, pieces, next)
	wantPieces(t, "a hundred at once", s, x, next...)
	mustSwap(t, s, next, nil)
	wantPieces(t, "a hundred removed", s, x)
}

// Of several workers that take a piece at once, one gets it.
func testOneWorkerTakesAPiece(t *testing.T, su *suite) {
	s := su.open(t)
	x := createIndex(t, s, "sites")
	p := *newPiece(t, s, x)
	for range max(su.rounds/20, 3) {
		var got atomic.Int64
		var all sync.WaitGroup
		for i := range 4 {
			all.Go(func() {
				taken := p
				taken.Worker, taken.Round = fmt.Sprint("w", i), p.Round+1
				if s.SwapPieces(t.Context(), []store.Piece{p}, []store.Piece{taken}) == nil {
					got.Add(1)
				}
			})
		}
		all.Wait()
		pieces := piecesOf(t, s, x)
		if len(pieces) != 1 || got.Load() > 1 || got.Load() == 1 && pieces[0].Round != p.Round+1 || pieces[0].Round > p.Round+1 {
			t.Fatalf("%d workers got the piece %+v, which is now %+v", got.Load(), p, pieces)
		}
		p = pieces[0]
	}
}
