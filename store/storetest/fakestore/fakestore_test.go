package fakestore_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest"
	"github.com/countmill/countmill/store/storetest/fakestore"
	"github.com/countmill/countmill/wire"
)

var _ store.Store = (*fakestore.Store)(nil)

func TestStore(t *testing.T) {
	t.Parallel()
	for _, o := range []fakestore.Options{{Entities: 400}, {Entities: 25}, {Entities: 400, GrowsInFold: true}} {
		t.Run(fmt.Sprintf("%d entities, growths %t", o.Entities, o.GrowsInFold), func(t *testing.T) {
			t.Parallel()
			open := func(t *testing.T, o fakestore.Options) store.Store {
				s := &clocked{}
				if o.Clock == nil {
					o.Clock = s.now
				}
				o.Errorf, o.Defer = t.Errorf, fakestore.DeferSome(0.3, 1)
				s.Store = fakestore.New(o)
				return s
			}
			forget := func(_ *testing.T, s store.Store) { s.(*clocked).Forget() }
			storetest.RunStore(t, func(t *testing.T) store.Store { return open(t, o) },
				storetest.Clock(func(s store.Store, off time.Duration) { s.(*clocked).off.Store(int64(off)) }),
				storetest.Shared(func(_ *testing.T, s store.Store, _ time.Duration) store.Store { return s }),
				storetest.RemovesByTime(forget),
				storetest.RemovesByForgetBefore(func(t *testing.T, m *storetest.Machine) store.Store {
					o := o
					o.Clock, o.Age = m.Now, m.Age
					return open(t, o)
				}, forget))
		})
	}
}

// clocked is a store whose clock a test can set.
type clocked struct {
	*fakestore.Store
	off atomic.Int64
}

func (s *clocked) now() time.Time { return time.Now().Add(time.Duration(s.off.Load())) }

func add(counter string, shard int, delta int64) store.ShardDelta {
	return store.NewShardDelta(counter, shard, delta)
}

func marker(b byte) store.Marker {
	return store.Marker{ID: wire.PartID{b}, At: time.Now(), ExpireAt: time.Now().Add(time.Hour)}
}

// For each answer: the caller's error, and the store's content afterwards.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer  fakestore.Answer
		want    error
		total   int64
		markers int
	}{
		{fakestore.OK, nil, 5, 1},
		{fakestore.MarkerExists, store.ErrMarkerExists, 0, 0},
		{fakestore.Refused, store.ErrRefused, 0, 0},
		{fakestore.Deployment, store.ErrDeployment, 0, 0},
		{fakestore.NotCounted, store.ErrNotCounted, 0, 1},
		{fakestore.UnknownApplied, context.DeadlineExceeded, 5, 1},
		{fakestore.UnknownNotApplied, context.DeadlineExceeded, 0, 0},
		{fakestore.SlowApplied, context.DeadlineExceeded, 5, 1},
		{fakestore.SlowNotApplied, context.DeadlineExceeded, 0, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := fakestore.New(fakestore.Options{Errorf: t.Errorf})
			s.OnFold(fakestore.FoldScript(c.answer))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := s.Fold(ctx, &store.Commit{Markers: []store.Marker{marker(1)}, Adds: []store.ShardDelta{add("a", 0, 5)}})
			if !errors.Is(err, c.want) {
				t.Errorf("answer %d: got error %v, want %v", c.answer, err, c.want)
			}
			_, marked := s.Marker(wire.PartID{1})
			if got := s.Total("a"); got != c.total || marked != (c.markers == 1) {
				t.Errorf("answer %d: got %d, marker %t, want %d, %d", c.answer, got, marked, c.total, c.markers)
			}
		})
	}
}

func TestRefusesWhatIsWrong(t *testing.T) {
	t.Parallel()
	a, b := add("a", 0, 1), add("a", 1, 1)
	if b.Order < a.Order {
		a, b = b, a
	}
	wrong := a
	wrong.Hash++
	many := make([]store.Marker, 26)
	for i := range many {
		many[i] = marker(byte(i))
	}
	for name, c := range map[string]struct {
		commit  store.Commit
		mistake bool
	}{
		"26 entities":   {store.Commit{Markers: many}, false},
		"marker twice":  {store.Commit{Markers: []store.Marker{marker(1), marker(1)}}, true},
		"shard twice":   {store.Commit{Adds: []store.ShardDelta{a, a}}, true},
		"out of order":  {store.Commit{Adds: []store.ShardDelta{b, a}}, true},
		"wrong hash":    {store.Commit{Adds: []store.ShardDelta{wrong}}, true},
		"delta 0":       {store.Commit{Adds: []store.ShardDelta{add("a", 0, 0)}}, true},
		"no record":     {store.Commit{Adds: []store.ShardDelta{add("a", 0, 1)}}, true},
		"grow":          {store.Commit{Adds: []store.ShardDelta{add("a", 0, 1)}, Growths: []store.Growth{{Counter: "a", Shards: 1}}}, true},
		"empty":         {store.Commit{}, true},
		"no expiry":     {store.Commit{Markers: []store.Marker{{}}}, true},
		"reserved name": {store.Commit{Adds: []store.ShardDelta{add("__a__", 0, 1)}}, true},
	} {
		reported := 0
		s := fakestore.New(fakestore.Options{Entities: 25, NeedRecords: true, Errorf: func(string, ...any) { reported++ }})
		if _, err := s.Fold(t.Context(), &c.commit); !errors.Is(err, store.ErrRefused) {
			t.Errorf("%s: got error %v, want ErrRefused", name, err)
		}
		if counts := s.Counts(); (reported == 1) != c.mistake || counts.Mistakes != reported || counts.Folds != 0 {
			t.Errorf("%s: reported %d times, counts %+v", name, reported, counts)
		}
	}
}

func TestRefusesWrongGrowthsInFolds(t *testing.T) {
	t.Parallel()
	for name, growths := range map[string][]store.Growth{
		"none":         nil,
		"too small":    {{Counter: "a", Shards: 1}},
		"twice":        {{Counter: "a", Shards: 2}, {Counter: "a", Shards: 2}},
		"out of order": {{Counter: "b", Shards: 2}, {Counter: "a", Shards: 2}},
		"to nothing":   {{Counter: "a", Shards: 2}, {Counter: "b", Shards: 0}},
	} {
		s := fakestore.New(fakestore.Options{NeedRecords: true, GrowsInFold: true})
		_, err := s.Fold(t.Context(), &store.Commit{Adds: []store.ShardDelta{add("a", 1, 1)}, Growths: growths})
		if !errors.Is(err, store.ErrRefused) || s.Counts().Mistakes != 1 {
			t.Errorf("%s: got error %v, want ErrRefused for a mistake", name, err)
		}
	}
}

func TestRefusesResetsWithAnotherClass(t *testing.T) {
	t.Parallel()
	reported := 0
	s := fakestore.New(fakestore.Options{Errorf: func(string, ...any) { reported++ }})
	r := store.ResetRequest{ID: wire.PartID{byte(wire.ResetClass-1) << 4}, Counter: "a"}
	if _, err := s.ResetCounter(t.Context(), r); !errors.Is(err, store.ErrRefused) {
		t.Errorf("an id of another class: got error %v, want ErrRefused", err)
	}
	if counts := s.Counts(); reported != 1 || counts.Mistakes != 1 || counts.Resets != 0 {
		t.Errorf("reported %d times, counts %+v; want one mistake and no reset", reported, counts)
	}
}

func TestRefusesTooManyKeys(t *testing.T) {
	t.Parallel()
	s, n := fakestore.New(fakestore.Options{}), 1001
	_, err1 := s.Applied(t.Context(), make([]wire.PartID, n))
	_, err2 := s.Shards(t.Context(), make([]string, n))
	err3 := s.Grow(t.Context(), make([]store.Growth, n))
	_, err4 := s.View().Lookup(t.Context(), make([]store.Key, n))
	for i, err := range []error{err1, err2, err3, err4} {
		if !errors.Is(err, store.ErrRefused) {
			t.Errorf("call %d with 1,001 keys: got error %v, want ErrRefused", i, err)
		}
	}
}

func TestExclusiveSeesOpenFolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := fakestore.New(fakestore.Options{Exclusive: true})
		s.OnFold(fakestore.FoldScript(fakestore.SlowApplied))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() { _, _ = s.Fold(ctx, &store.Commit{Adds: []store.ShardDelta{add("a", 0, 1)}}) }()
		synctest.Wait()
		if _, err := s.Fold(t.Context(), &store.Commit{Adds: []store.ShardDelta{add("a", 0, 1)}}); !errors.Is(err, store.ErrRefused) {
			t.Errorf("a shard in two open folds: got error %v, want ErrRefused", err)
		}
		time.Sleep(2 * time.Second)
		if _, err := s.Fold(t.Context(), &store.Commit{Adds: []store.ShardDelta{add("a", 0, 1)}}); err != nil || s.Total("a") != 2 {
			t.Errorf("after the first has ended: got %v and a total of %d, want 2", err, s.Total("a"))
		}
	})
}

func TestHistoryIsReadable(t *testing.T) {
	t.Parallel()
	s := fakestore.New(fakestore.Options{History: true, ClockOffset: time.Hour})
	for i := range 5 {
		folded, err := s.Fold(t.Context(), &store.Commit{Adds: []store.ShardDelta{add("a", 0, 1)}})
		at := folded.At
		if err != nil || time.Until(at) < 59*time.Minute {
			t.Fatalf("fold at %s: %v, want a clock an hour ahead", at, err)
		}
		for back, want := range map[time.Duration]int64{0: int64(i + 1), time.Microsecond: int64(i)} {
			v := s.ViewAt(at.Add(-back))
			got, err := v.Lookup(t.Context(), []store.Key{{Counter: "a"}})
			v.Close()
			if err != nil || int64(got[0].Count.Lo) != want && back == 0 || int64(got[0].Count.Lo) > want {
				t.Errorf("%s before fold %d: got %v, %v, want %d", back, i+1, got, err, want)
			}
		}
	}
	if s.OpenViews() != 0 {
		t.Errorf("%d views are open", s.OpenViews())
	}
}
