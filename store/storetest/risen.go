package storetest

import (
	"sync"
	"testing"

	"github.com/countmill/countmill/store"
)

// Between a moment of Sums and a later view no sum has risen by more than Risen says.
func testRisenBounds(t *testing.T, su *suite) {
	s := su.open(t)
	names := pagesOf(20)
	c, q := newChurn(t, s, names), &store.SumsQuery{Index: sites()}
	if !s.Risen(q, store.RiseMark{}).Known {
		t.Skip("other processes may fold too")
	}
	for range su.rounds {
		for range c.random.IntN(4) {
			c.step()
		}
		before, sums := sumsOf(t, s, q)
		for range c.random.IntN(4) {
			c.step()
		}
		after := totalsOf(t, s, names)
		rise := s.Risen(q, sums.Mark)
		for name, total := range after {
			if total-before[name] > rise.Most {
				t.Fatalf("%q rose from %d to %d, and Risen answers %+v", name, before[name], total, rise)
			}
			if was, ok := before[name]; !rise.Changed && ok && was != total {
				t.Fatalf("%q changed from %d to %d, and Risen answers %+v", name, was, total, rise)
			}
		}
		if again := s.Risen(q, sums.Mark); again != rise {
			t.Fatalf("nothing happened, and Risen answers %+v after %+v", again, rise)
		}
	}
}

// +5 in one minute and -5 in another leave a total as it is, and raise a window.
func testRisenSeesMinutes(t *testing.T, su *suite) {
	s := seriesStore(t, su)
	q := &store.SumsQuery{Index: sites()}
	if !s.Risen(q, store.RiseMark{}).Known {
		t.Skip("other processes may fold too")
	}
	day := today(t, s)
	_, sums := sumsOf(t, s, q)
	mustFoldRetrying(t, s, seriesCommit(one(marker()), bucketed{"page:s1:/1", 0, day - 1, -5}, bucketed{"page:s1:/1", 0, day, 5}))
	if r := s.Risen(q, sums.Mark); r.Most < 5 || !r.Changed {
		t.Errorf("a day rose by 5, and Risen answers %+v", r)
	}
}

// The bound holds while others fold.
func testRisenBesideFolds(t *testing.T, su *suite) {
	s := su.open(t)
	names := pagesOf(8)
	c, q := newChurn(t, s, names), &store.SumsQuery{Index: sites()}
	if !s.Risen(q, store.RiseMark{}).Known {
		t.Skip("other processes may fold too")
	}
	stop := make(chan struct{})
	var folds sync.WaitGroup
	for n := range 3 {
		folds.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				var markers []store.Marker
				if n > 0 {
					markers = one(marker())
				}
				mustFoldRetrying(t, s, grouped(commit(markers, add(names[(i*5+n)%len(names)], 0, int64(1+i%7))), c.x))
			}
		})
	}
	for range su.rounds {
		before, sums := sumsOf(t, s, q)
		after := totalsIn(t, s, names)
		rise := s.Risen(q, sums.Mark)
		risen := int64(0) // by all counters together, because all deltas are positive
		for name, total := range after {
			risen += total - before[name]
		}
		if risen > rise.Most || !rise.Changed && risen != 0 {
			t.Errorf("all sums rose by %d together, and Risen answers %+v", risen, rise)
		}
	}
	close(stop)
	folds.Wait()
}

// totalsIn reads shard 0 of counters that were never reset, in one view.
func totalsIn(t testing.TB, s store.Store, names []string) map[string]int64 {
	t.Helper()
	v := s.View()
	defer v.Close()
	var keys []store.Key
	for _, name := range names {
		keys = append(keys, store.Key{Counter: name})
	}
	found := make(map[string]int64)
	for i, value := range lookup(t, v, keys...) {
		found[names[i]] = value.Value
	}
	return found
}
