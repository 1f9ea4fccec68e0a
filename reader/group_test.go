package reader_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// A groupRig is a reader of a store with an index of sites, in virtual time.
type groupRig struct {
	t        *testing.T
	store    *protocoltest.Store
	rdr      *reader.Reader
	keyRange store.IndexRange
}

func groupBubble(t *testing.T, f func(t *testing.T, r *groupRig)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(clock.Earliest))
		r := &groupRig{t: t}
		r.store = protocoltest.New(protocoltest.Options{GrowsInFold: true, CertainOutcome: true, Errorf: t.Errorf})
		rdr, err := reader.New(r.store, nil, reader.Config{})
		if err != nil {
			t.Fatal(err)
		}
		r.rdr = rdr
		f(t, r)
	})
}

func (r *groupRig) step(step store.IndexStep) *store.Index {
	r.t.Helper()
	x := store.Index{Name: "sites", Match: "page:{site}:*", Group: "site:{site}"}
	checked, err := r.store.Check(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	if found := checked.Settings.Rules.Index("sites"); found != nil {
		x.Number, x.Checked = found.Number, found.Since.Add(time.Second)
	}
	s, err := r.store.ChangeRules(r.t.Context(), store.RuleChange{Index: &store.IndexChange{Step: step, Index: x}})
	if err != nil {
		r.t.Fatal(err)
	}
	return s.Rules.Index("sites")
}

// put folds into counters or groups, and sets remainders of groups.
func (r *groupRig) put(x *store.Index, sums, remainders map[string]int64) {
	r.t.Helper()
	checked, _ := r.store.Check(r.t.Context())
	for name, sum := range sums {
		order, hash := wire.Hashes(name)
		c := &store.Commit{Adds: []store.ShardDelta{{Counter: name, Delta: sum, Order: order, Hash: hash}}, Growths: []store.Growth{{Counter: name, Shards: 1}}, Rules: checked.Settings.Version}
		if _, err := r.store.Fold(r.t.Context(), c); err != nil {
			r.t.Fatal(err)
		}
	}
	var all []store.GroupRemainder
	for name, remainder := range remainders {
		all = append(all, store.GroupRemainder{Group: name, Remainder: int128.Of(remainder)})
	}
	next := r.keyRange
	next.Index, next.ID, next.To = x.Number, 1, math.MaxUint64
	if r.keyRange.ID == 0 {
		if err := r.store.SwapRanges(r.t.Context(), nil, []store.IndexRange{next}); err != nil {
			r.t.Fatal(err)
		}
		r.keyRange = next
	}
	if err := r.store.SetRemainders(r.t.Context(), &r.keyRange, all); err != nil {
		r.t.Fatal(err)
	}
}

// wantTotal checks whether the total of =site:s1 is served, and its value.
func (r *groupRig) wantTotal(what string, want int64, state string) {
	r.t.Helper()
	totals, err := r.rdr.Totals(r.t.Context(), []string{"page:s1:a", "=site:s1"}, 0)
	var not *reader.NotServingError
	got := "serving"
	if errors.As(err, &not) {
		if got = "building"; not.Deleting {
			got = "deleting"
		}
		if not.Group != "=site:s1" || not.Index != "sites" || !errors.Is(err, countmill.ErrUnavailable) || errors.Is(err, countmill.ErrInvalid) {
			r.t.Errorf("%s: error %v, want ErrUnavailable of =site:s1", what, err)
		}
	} else if err != nil {
		r.t.Errorf("%s: %v", what, err)
	}
	if got != state || err == nil && totals[1].Total != want {
		r.t.Errorf("%s: %s %+v, want %s %d", what, got, totals, state, want)
	}
	if _, sumErr := r.rdr.Sum(r.t.Context(), "=site:s1"); (sumErr == nil) != (state == "serving") {
		r.t.Errorf("%s: Sum: %v", what, sumErr)
	}
}

// A group has a total only while its index serves: its shards and its remainder.
func TestAGroupIsServedWhenItIsBuilt(t *testing.T) {
	groupBubble(t, func(t *testing.T, r *groupRig) {
		r.wantTotal("without an index", 0, "serving")
		x := r.step(store.CreateIndex)
		r.put(x, map[string]int64{"page:s1:a": 1, "=site:s1": 10}, map[string]int64{"=site:s1": 100})
		r.wantTotal("created since the last check", 0, "building")
		time.Sleep(time.Minute)
		r.wantTotal("building", 0, "building")
		r.step(store.ServeIndex)
		r.wantTotal("built since the last check", 110, "serving")
		r.put(x, map[string]int64{"=site:s1": 7}, map[string]int64{"=site:s1": 90})
		r.wantTotal("after a recheck", 107, "serving")
		r.step(store.DeleteIndex)
		time.Sleep(reader.Config{}.CheckEvery + 11*time.Second)
		r.wantTotal("deleted", 0, "deleting")
	})
}

// ReadSettings learns of a deletion before the next check: the groups of the index are not served any more.
func TestReadSettings(t *testing.T) {
	groupBubble(t, func(t *testing.T, r *groupRig) {
		r.put(r.step(store.CreateIndex), map[string]int64{"=site:s1": 10}, nil)
		r.step(store.ServeIndex)
		r.wantTotal("built", 10, "serving")
		r.step(store.DeleteIndex)
		r.wantTotal("before the next check", 10, "serving")
		r.rdr.ReadSettings(t.Context())
		r.wantTotal("with the settings read", 0, "deleting")
	})
}

// The answer of an earlier check comes after that of a later one: older settings do not replace newer ones.
func TestALateAnswerBringsNoOldSettings(t *testing.T) {
	groupBubble(t, func(t *testing.T, r *groupRig) {
		st := &lateCheck{Store: r.store}
		rdr, err := reader.New(st, nil, reader.Config{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		r.rdr = rdr
		r.put(r.step(store.CreateIndex), map[string]int64{"=site:s1": 10}, nil)
		r.step(store.ServeIndex)
		r.wantTotal("built", 10, "serving")
		st.late.Store(int64(time.Second))
		over := make(chan struct{})
		ctx, leave := context.WithCancel(t.Context())
		go func() { defer close(over); rdr.ReadSettings(ctx) }()
		time.Sleep(time.Millisecond) // the store has answered, and the answer is on its way
		leave()                      // others do not wait for it
		synctest.Wait()
		st.late.Store(0)
		r.step(store.DeleteIndex)
		rdr.ReadSettings(t.Context())
		r.wantTotal("deleted", 0, "deleting")
		<-over
		r.wantTotal("after the late answer", 0, "deleting")
	})
}

// The answers to Check of a lateCheck come late.
type lateCheck struct {
	*protocoltest.Store
	late atomic.Int64 // a time.Duration
}

func (s *lateCheck) Check(ctx context.Context) (store.Checked, error) {
	checked, err := s.Store.Check(ctx)
	time.Sleep(time.Duration(s.late.Load()))
	return checked, err
}

// The window of groups needs a rule for the groups, and is partial until their index has counted all of it.
func TestWindowsOfGroups(t *testing.T) {
	groupBubble(t, func(t *testing.T, r *groupRig) {
		defer r.rdr.Close()
		keep := store.Retention{Quarters: 400 * 24 * time.Hour}
		if _, err := r.store.ChangeRules(t.Context(), store.RuleChange{Pattern: "=site:*", Keep: keep}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(60 * time.Hour)
		r.step(store.CreateIndex)
		r.step(store.ServeIndex)
		q := reader.TopQuery{BoardQuery: reader.BoardQuery{Index: "sites", Groups: true, Window: parseWindow(t, "today")}, N: 1}
		if top, err := r.rdr.Top(t.Context(), q); err != nil || !top.Partial {
			t.Errorf("on the day of the index: %+v, %v; want partial", top, err)
		}
		time.Sleep(24 * time.Hour)
		if top, err := r.rdr.Top(t.Context(), q); err != nil || top.Partial {
			t.Errorf("on the next day: %+v, %v; want not partial", top, err)
		}
		q.Groups = false
		_, err := r.rdr.Top(t.Context(), q)
		if none, ok := errors.AsType[*reader.NoWindowError](err); !ok || none.Rule != "'page:*=15m:400d'" {
			t.Errorf("counters with a rule for their groups: %v, want a *NoWindowError with the rule for page:*", err)
		}
	})
}

// The overflow group can have no series although the other groups have: then its increments are missing from a window.
func TestAWindowWithoutTheOverflowGroup(t *testing.T) {
	groupBubble(t, func(t *testing.T, r *groupRig) {
		defer r.rdr.Close()
		rule := func(pattern string) {
			t.Helper()
			if _, err := r.store.ChangeRules(t.Context(), store.RuleChange{Pattern: pattern, Keep: store.Retention{Quarters: 400 * 24 * time.Hour}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(60 * time.Hour)
		}
		rule("=site:*")
		x := r.step(store.CreateIndex)
		r.step(store.ServeIndex)
		want := func(what string, partial bool) {
			t.Helper()
			time.Sleep(48 * time.Hour)
			q := reader.BoardQuery{Index: "sites", Groups: true, Window: parseWindow(t, "today")}
			if top, err := r.rdr.Top(t.Context(), reader.TopQuery{BoardQuery: q, N: 3}); err != nil || top.Partial != partial {
				t.Errorf("%s: %+v, %v; want partial %t", what, top, err, partial)
			}
			if rank, err := r.rdr.Rank(t.Context(), q, "=site:s1"); err != nil || rank.Partial != partial {
				t.Errorf("%s: %+v, %v; want partial %t", what, rank, err, partial)
			}
		}
		want("without an overflow group", false)
		r.put(x, map[string]int64{x.Overflow(): 7}, nil)
		want("with one that has no series", true)
		rule("=*")
		want("with one that has a series", false)
	})
}

// An index ends while somebody waits for the first board of its groups. They are being removed when they are read.
func TestAnIndexEndsBeforeItsFirstBoard(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint(again), func(t *testing.T) {
			groupBubble(t, func(t *testing.T, r *groupRig) {
				defer r.rdr.Close()
				r.put(r.step(store.CreateIndex), map[string]int64{"=site:s1": 10, "=site:s2": 5}, nil)
				r.step(store.ServeIndex)
				r.store.On("scan record", func(int) protocoltest.Answer {
					r.step(store.DeleteIndex)
					time.Sleep(5 * time.Minute)
					if again {
						r.step(store.RemoveIndex)
						r.step(store.CreateIndex)
					}
					return protocoltest.OK
				})
				q := reader.TopQuery{BoardQuery: reader.BoardQuery{Index: "sites", Groups: true}, N: 1}
				top, err := r.rdr.Top(t.Context(), q)
				_, none := errors.AsType[*reader.NoIndexError](err)
				ending, not := errors.AsType[*reader.NotServingError](err)
				if again && !none || !again && (!not || !ending.Deleting || ending.Group != "=site:*") {
					t.Errorf("got %+v, %v; want an error about the index", top, err)
				}
			})
		})
	}
}

// A total that does not fit is an overflow of the group, and of nothing else.
func TestAGroupThatOverflows(t *testing.T) {
	groupBubble(t, func(t *testing.T, r *groupRig) {
		x := r.step(store.CreateIndex)
		r.put(x, map[string]int64{"page:s1:a": 1, "=site:s1": 10, "=site:s2": 3}, map[string]int64{"=site:s1": math.MaxInt64, "=site:s2": 4})
		r.step(store.ServeIndex)
		if _, err := r.rdr.Totals(t.Context(), []string{"=site:s1"}, 0); !errors.Is(err, countmill.ErrOverflow) {
			t.Errorf("got %v, want an overflow", err)
		}
		page, err := r.rdr.List(t.Context(), "=", "", 10)
		if err != nil || !slices.Equal(page.Overflowed, []string{"=site:s1"}) || len(page.Totals) != 1 || page.Totals[0].Total != 7 {
			t.Errorf("page %+v, %v; want =site:s2 of 7, and =site:s1 overflowed", page, err)
		}
	})
}

// A list without a prefix has no groups: their counters are in it. A list of groups has the serving ones.
func TestListsOfGroups(t *testing.T) {
	groupBubble(t, func(t *testing.T, r *groupRig) {
		x := r.step(store.CreateIndex)
		r.put(x, map[string]int64{"!": 1, "=site:s1": 2, "=site:s2": 3, "page:s1:a": 4, "z": 5}, map[string]int64{"=site:s3": 6})
		names := func(prefix string, limit int) (all []string) {
			for after := ""; ; {
				page, err := r.rdr.List(t.Context(), prefix, after, limit)
				if err != nil {
					t.Fatal(err)
				}
				for _, total := range page.Totals {
					all = append(all, total.Counter)
				}
				if after = page.Next; after == "" {
					return all
				}
			}
		}
		if got := names("=", 1); len(got) != 0 {
			t.Errorf("groups of an index that is being built: %q", got)
		}
		r.step(store.ServeIndex) // since the last check
		for limit := range 5 {
			if got := names("", limit+1); !slices.Equal(got, []string{"!", "page:s1:a", "z"}) {
				t.Errorf("pages of %d: %q", limit+1, got)
			}
			if got := names("=site:", limit+1); !slices.Equal(got, []string{"=site:s1", "=site:s2", "=site:s3"}) {
				t.Errorf("groups in pages of %d: %q", limit+1, got)
			}
		}
	})
}

// The process is stopped between its check of the rules and a list. Meanwhile the index is deleted, and its groups are being removed.
func TestAListAfterAStop(t *testing.T) {
	groupBubble(t, func(t *testing.T, r *groupRig) {
		rdr, err := reader.New(r.store, nil, reader.Config{Timeout: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		r.put(r.step(store.CreateIndex), map[string]int64{"=site:s1": 10}, nil)
		r.step(store.ServeIndex)
		r.store.On("scan record", func(int) protocoltest.Answer {
			r.step(store.DeleteIndex)
			time.Sleep(store.SettingsMaxAge + time.Second)
			return protocoltest.OK
		})
		if page, err := rdr.List(t.Context(), "=site:", "", 10); err != nil || len(page.Totals) != 0 {
			t.Errorf("%+v, %v; want no groups of the deleted index", page, err)
		}
	})
}

// The cache has the total of a group of an earlier index: it is none of the present index.
func TestTheCachedTotalOfAnEarlierIndex(t *testing.T) {
	groupBubble(t, func(t *testing.T, r *groupRig) {
		rdr, err := reader.New(r.store, &fakeCache{}, reader.Config{})
		if err != nil {
			t.Fatal(err)
		}
		r.put(r.step(store.CreateIndex), map[string]int64{"=site:s1": 10}, nil)
		r.step(store.ServeIndex)
		one(t, rdr, "=site:s1", time.Hour)
		if got := one(t, rdr, "=site:s1", time.Hour); got.Source != reader.SourceCache {
			t.Errorf("%+v, want it from the cache", got)
		}
		r.step(store.DeleteIndex)
		time.Sleep(store.SettingsMaxAge + time.Second)
		for _, step := range []store.IndexStep{store.RemoveIndex, store.CreateIndex, store.ServeIndex} {
			r.step(step)
		}
		if got := one(t, rdr, "=site:s1", time.Hour); got.Source != reader.SourceStore {
			t.Errorf("of another index: %+v, want it from the store", got)
		}
	})
}

// The series of a group begins when no increment can be folded any more without the index.
func TestTheSeriesOfAGroupBeginsWithItsIndex(t *testing.T) {
	groupBubble(t, func(t *testing.T, r *groupRig) {
		keep := store.Retention{Minutes: 6 * time.Hour, Quarters: 400 * 24 * time.Hour}
		if _, err := r.store.ChangeRules(t.Context(), store.RuleChange{Pattern: "=site:*", Keep: keep}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		x := r.step(store.CreateIndex)
		r.put(x, map[string]int64{"=site:s1": 5}, map[string]int64{"=site:s1": 8})
		now := time.Now()
		q := reader.SeriesQuery{Counters: []string{"=site:s1"}, From: now.Add(-30 * time.Minute), To: now, Step: step(t, "15m")}
		var not *reader.NotServingError
		if _, err := r.rdr.Series(t.Context(), q); !errors.As(err, &not) {
			t.Errorf("a series of an index that is being built: %v", err)
		}
		r.step(store.ServeIndex)
		got, err := r.rdr.Series(t.Context(), q)
		if first := x.Since.Add(store.SeriesAhead); err != nil || got.Begin.Before(first) || got.Begin.Sub(first) > time.Minute || got.Unbucketed != int128.Of(13) {
			t.Errorf("the series begins at %s and lacks %d, %v; want from %s on, and 13", got.Begin, got.Unbucketed, err, first)
		}
	})
}
