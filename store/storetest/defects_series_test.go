package storetest_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/store/storetest/fakestore"
	"github.com/countmill/countmill/wire"
)

// spoiledSeries shows series that spoil has changed.
type spoiledSeries struct {
	*fakestore.Store
	spoil func(s *fakestore.Store, counter string, found []store.Bucket) []store.Bucket
}

func series(spoil func(s *fakestore.Store, counter string, found []store.Bucket) []store.Bucket) func(*fakestore.Store) store.Store {
	return func(s *fakestore.Store) store.Store { return spoiledSeries{s, spoil} }
}

func (s spoiledSeries) View() store.View { return spoiledView{s.Store.View(), s} }

type spoiledView struct {
	store.View
	store spoiledSeries
}

func (v spoiledView) Series(ctx context.Context, of []store.Record, from, to wire.Minute) ([][]store.Bucket, error) {
	found, err := v.View.Series(ctx, of, from, to)
	for i := range found {
		found[i] = v.store.spoil(v.store.Store, of[i].Counter, found[i])
	}
	return found, err
}

// unordered answers each counter once, by name.
type unordered struct{ *fakestore.Store }

func (u unordered) View() store.View { return unorderedView{u.Store.View()} }

type unorderedView struct{ store.View }

func (v unorderedView) Series(ctx context.Context, of []store.Record, from, to wire.Minute) ([][]store.Bucket, error) {
	of = slices.Clone(of)
	slices.SortFunc(of, func(a, b store.Record) int { return strings.Compare(a.Counter, b.Counter) })
	return v.View.Series(ctx, slices.Compact(of), from, to)
}

// newestSeries ignores the moment of the view.
func newestSeries(s *fakestore.Store, counter string, _ []store.Bucket) []store.Bucket {
	return s.Buckets(counter)
}

func withoutQuarters(_ *fakestore.Store, _ string, found []store.Bucket) []store.Bucket {
	return slices.DeleteFunc(found, func(b store.Bucket) bool { return b.Quarter })
}

func wrapsBuckets(_ *fakestore.Store, _ string, found []store.Bucket) []store.Bucket {
	for i := range found {
		found[i].Sum = wrapped(found[i].Sum)
	}
	return found
}

func byPrefix(s *fakestore.Store, counter string, found []store.Bucket) []store.Bucket {
	if len(counter) > 1 {
		return s.Buckets(counter[:1])
	}
	return found
}

// setting has the last delta of each bucket instead of their sum.
type setting struct {
	*fakestore.Store
	mu   sync.Mutex
	last map[string]map[wire.Minute]int64
}

func (s *setting) Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error) {
	folded, err := s.Store.Fold(ctx, c)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range c.Buckets {
		counter := c.Adds[b.Add].Counter
		if s.last[counter] == nil {
			s.last[counter] = make(map[wire.Minute]int64)
		}
		if err == nil {
			s.last[counter][b.Minute] = b.Delta
		}
	}
	return folded, err
}

func (s *setting) View() store.View {
	return spoiledView{s.Store.View(), spoiledSeries{s.Store, func(_ *fakestore.Store, counter string, found []store.Bucket) []store.Bucket {
		s.mu.Lock()
		defer s.mu.Unlock()
		for i := range found {
			found[i].Sum = int128.Of(s.last[counter][found[i].Minute])
		}
		return found
	}}}
}

// apartFold commits series after totals.
func apartFold(ctx context.Context, s *fakestore.Store, c *store.Commit) (store.CommitResult, error) {
	if len(c.Buckets) == 0 {
		return s.Fold(ctx, c)
	}
	plain := *c
	plain.Buckets = nil
	folded, err := s.Fold(ctx, &plain)
	if err != nil {
		return folded, err
	}
	time.Sleep(time.Millisecond)
	s.Bucket(c)
	return folded, nil
}

// bucketsAnyway adds to series although a marker exists.
func bucketsAnyway(ctx context.Context, s *fakestore.Store, c *store.Commit) (store.CommitResult, error) {
	folded, err := s.Fold(ctx, c)
	if err != nil {
		s.Bucket(c)
	}
	return folded, err
}

// keepingAll never sweeps series.
type keepingAll struct{ *fakestore.Store }

func (keepingAll) SweepSeries(ctx context.Context) error { return ctx.Err() }

// sharing shows the series of swept counters again.
type sharing struct {
	*fakestore.Store
	all map[string][]store.Bucket
}

func (s *sharing) SweepCounters(ctx context.Context, after time.Duration) (int, error) {
	for _, counter := range []string{"gone"} {
		if found := s.Buckets(counter); len(found) > 0 {
			s.all[counter] = found
		}
	}
	return s.Store.SweepCounters(ctx, after)
}

func (s *sharing) View() store.View {
	return spoiledView{s.Store.View(), spoiledSeries{s.Store, func(_ *fakestore.Store, counter string, found []store.Bucket) []store.Bucket {
		if len(found) == 0 {
			return s.all[counter]
		}
		return found
	}}}
}

// doubling joins minutes and keeps them.
type doubling struct{ *fakestore.Store }

func (d doubling) View() store.View {
	return spoiledView{d.Store.View(), spoiledSeries{d.Store, func(_ *fakestore.Store, _ string, found []store.Bucket) []store.Bucket {
		for _, b := range found {
			if b.Quarter {
				found = append(found, store.Bucket{Minute: b.Minute, Sum: b.Sum})
			}
		}
		return found
	}}}
}

// untold reports nothing as bucketed.
type untold struct{ *fakestore.Store }

func (u untold) View() store.View { return untoldView{u.Store.View()} }

type untoldView struct{ store.View }

func (v untoldView) Lookup(ctx context.Context, keys []store.Key) ([]store.Value, error) {
	values, err := v.View.Lookup(ctx, keys)
	for i := range values {
		values[i].Bucketed = int128.Int{}
	}
	return values, err
}
