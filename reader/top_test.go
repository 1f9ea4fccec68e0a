package reader_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/reader/board"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
)

// embedded is a store as Pebble.
var embedded = protocoltest.Options{GrowsInFold: true, CertainOutcome: true}

func newTopReader(t *testing.T, s reader.Store, cfg reader.Config) *reader.Reader {
	t.Helper()
	cfg.CheckEvery = time.Hour
	r, err := reader.New(s, nil, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// An answer is the order of all counters at its moment, and the place of each is that of its order.
func TestTopIsASort(t *testing.T) {
	t.Parallel()
	seeds := 150
	if testing.Short() {
		seeds = 30
	}
	first, old := rand.Uint64(), 0
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, first+seed, embedded)
			var s reader.Store = w
			if seed%3 == 0 {
				s = shared{w}
			}
			size := 1 + w.random.IntN(8)
			r := newTopReader(t, s, reader.Config{BoardRate: 1_000_000}.SmallBoards(size))
			for range 80 {
				w.step()
				if w.random.IntN(2) == 0 {
					continue
				}
				if checkTop(t, w, r, size) {
					old++
				}
				synctest.Wait() // until a scan in the background has ended
			}
			r.Close()
		})
		if t.Failed() {
			t.Fatalf("seed %d", first+seed)
		}
	}
	if old == 0 {
		t.Error("all answers are of the present: the test proves nothing")
	}
}

// step changes something, or lets time pass.
func (w *world) step() {
	switch w.random.IntN(10) {
	case 0:
		w.look()
	case 1:
		w.reset()
	case 2, 3:
		time.Sleep(time.Duration(w.random.IntN(9000)) * time.Millisecond)
	case 4:
		time.Sleep(time.Duration(w.random.IntN(90)) * time.Minute)
	default:
		deltas := make(map[string]int64)
		for range 1 + w.random.IntN(3) {
			if n := w.random.Int64N(20) - w.random.Int64N(20) + 200*w.random.Int64N(2)*w.random.Int64N(2); n != 0 {
				deltas[w.name()] = n
			}
		}
		if len(deltas) > 0 {
			w.add(deltas)
		}
	}
}

// checkTop asks for some counters at random, and for the place of one, and compares the answers with the model. Boards have size counters.
// old is true if the answer is not that of the present.
func checkTop(t *testing.T, w *world, r *reader.Reader, size int) (old bool) {
	t.Helper()
	window := windows[w.random.IntN(len(windows))]
	q := reader.TopQuery{BoardQuery: reader.BoardQuery{Index: "sites", Window: parseWindow(t, window.name)}, N: 1 + w.random.IntN(10)}
	top, err := r.Top(t.Context(), q)
	if err != nil {
		t.Fatalf("Top: %v", err)
	}
	rank, err := r.Rank(t.Context(), q.BoardQuery, w.name())
	if err != nil {
		t.Fatalf("Rank: %v", err)
	}
	want, best := w.boardOf(top.CompleteAsOf, window), []reader.TopCounter(nil)
	for _, c := range want[:min(len(want), q.N, size)] {
		best = append(best, reader.TopCounter{Ranked: c, Rank: rankIn(want, c.Sum)})
	}
	if diff := cmp.Diff(best, top.Top, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s: top %d of a board of %d at %s (-want +got):\n%s", window.name, q.N, size, top.CompleteAsOf, diff)
	}
	want = w.boardOf(rank.CompleteAsOf, window)
	place := reader.Rank{Scan: rank.Scan, Counter: rank.Counter, Of: len(want)}
	if at := slices.IndexFunc(want, func(c board.Ranked) bool { return c.Counter == rank.Counter }); at >= 0 {
		place.Total, place.Rank = want[at].Sum, rankIn(want, want[at].Sum)
	}
	if place != rank {
		t.Errorf("%s: got %+v, want %+v of %v", window.name, rank, place, want)
	}
	return !slices.Equal(w.boardOf(top.CompleteAsOf, window), truth(w.counters, 0, 0)) && window.name == ""
}

// boardOf is the order of all counters at the moment of a scan.
func (w *world) boardOf(at time.Time, window windowed) []board.Ranked {
	w.mu.Lock() // a scan may run
	defer w.mu.Unlock()
	model, ok := w.scanned[at]
	if !ok {
		w.t.Errorf("complete as of %s, and no scan was then", at)
	}
	from, to := window.bounds(at)
	return truth(model, from, to)
}

// rankIn is 1 more than the number of counters with a larger sum.
func rankIn(all []board.Ranked, sum int64) int {
	return 1 + slices.IndexFunc(all, func(c board.Ranked) bool { return c.Sum == sum })
}

func TestRank(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, embedded)
		r := newTopReader(t, w, reader.Config{}.SmallBoards(2))
		w.add(map[string]int64{"page:a:1": 50, "page:a:2": 40, "page:a:3": 30, "page:a:4": 30, "page:a:5": -5})
		for counter, want := range map[string]int{"page:a:1": 1, "page:a:2": 2, "page:a:3": 3, "page:a:4": 3, "page:a:5": 5, "page:a:6": 0} {
			if got, err := r.Rank(t.Context(), reader.BoardQuery{Index: "sites"}, counter); err != nil || got.Rank != want || got.Of != 5 {
				t.Errorf("rank of %s: %+v, %v; want %d of 5", counter, got, err, want)
			}
		}
		for counter, limit := range map[string]string{"shop:a": "a counter that matches page:{site}:*, or a group", "=shop:a": "a group that matches =site:{site}"} {
			_, err := r.Rank(t.Context(), reader.BoardQuery{Index: "sites"}, counter)
			if field, ok := errors.AsType[*countmill.FieldError](err); !ok || field.Field != "counter" || field.Limit != limit {
				t.Errorf("the rank of %s, which the index has not: %v, want an error with the limit %q", counter, err, limit)
			}
		}
	})
}

func TestTopRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, embedded)
		r := newTopReader(t, w, reader.Config{})
		defer r.Close()
		ask := func(r *reader.Reader, q reader.BoardQuery, n int) error {
			_, err := r.Top(t.Context(), reader.TopQuery{BoardQuery: q, N: n})
			return err
		}
		if err := ask(r, reader.BoardQuery{Index: "sites"}, 1001); !errors.Is(err, countmill.ErrInvalid) {
			t.Errorf("n 1001: %v", err)
		}
		if _, ok := errors.AsType[*reader.NoIndexError](ask(r, reader.BoardQuery{Index: "other"}, 1)); !ok {
			t.Errorf("an index that does not exist is not refused")
		}
		for _, q := range []reader.BoardQuery{{Index: "sites"}, {Index: "sites", Window: parseWindow(t, "1h")}, {Index: "sites", Groups: true}} {
			var asked []string
			q.MayRead = func(prefix string) bool { asked = append(asked, prefix); return false }
			none, ok := errors.AsType[*reader.NoIndexError](ask(r, q, 1))
			if want := map[bool]string{false: "page:", true: "=site:"}[q.Groups]; !ok || *none != (reader.NoIndexError{Index: "sites"}) || !slices.Equal(slices.Compact(asked), []string{want}) {
				t.Errorf("a caller without the right on %s: got %v, asked for %q", want, none, asked)
			}
		}
		if none, ok := errors.AsType[*reader.NotServingError](ask(r, reader.BoardQuery{Index: "sites", Groups: true}, 1)); !ok || none.Group != "=site:*" {
			t.Errorf("groups of an index that is being built are not refused")
		}
		err := ask(r, reader.BoardQuery{Index: "sites", Window: parseWindow(t, "this-month")}, 1)
		if err != nil {
			t.Errorf("this month, with a rule: %v", err)
		}
		if _, err := w.ChangeRules(t.Context(), store.RuleChange{Pattern: "page:*", Remove: true}); err != nil {
			t.Fatal(err)
		}
		r.ReadSettings(t.Context())
		none, ok := errors.AsType[*reader.NoWindowError](ask(r, reader.BoardQuery{Index: "sites", Window: parseWindow(t, "1h")}, 1))
		if !ok || none.Rule != "'page:*=1m:6h,15m:400d'" {
			t.Errorf("a window without a rule: %+v", none)
		}
		paid := newTopReader(t, newWorld(t, 1, protocoltest.Options{}), reader.Config{})
		if err := ask(paid, reader.BoardQuery{Index: "sites"}, 1); !errors.Is(err, reader.ErrNoBoards) {
			t.Errorf("a store that charges, without a rate: %v, want ErrNoBoards", err)
		}
	})
}

// shared is a store that other processes change too.
type shared struct{ *world }

func (shared) Changes() (n uint64, known bool) { return 0, false }
