package reader_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/reader/board"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
)

// embedded is a store as Pebble.
var embedded = fakestore.Options{GrowsInFold: true}

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

// No answer is wrong: its totals are exact, its order is right, its names are complete as of the scan, and
// complete as of the totals if it says so. Of a store that others change too, no answer says so.
func TestTopIsASort(t *testing.T) {
	t.Parallel()
	var asked, complete, moved int
	seeds := 150
	if testing.Short() {
		seeds = 30
	}
	first := rand.Uint64()
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
				top := checkTop(t, w, r, min(size, 6))
				asked++
				if top.Complete {
					if complete++; seed%3 == 0 {
						t.Errorf("seed %d: complete, although others may have folded", first+seed)
					}
					if top.CompleteAsOf.Before(top.AsOf) {
						moved++
					}
				}
				synctest.Wait() // until a scan in the background has ended
			}
			r.Close()
		})
		if t.Failed() {
			t.Fatalf("seed %d", first+seed)
		}
	}
	t.Logf("%d answers, %d complete, %d of them although sums had changed", asked, complete, moved)
	if moved == 0 || complete == asked {
		t.Errorf("%d answers, %d complete, %d of them although sums had changed: the test proves nothing", asked, complete, moved)
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

// checkTop asks for at most so many counters at random, and compares the answer with the model.
func checkTop(t *testing.T, w *world, r *reader.Reader, most int) reader.Top {
	t.Helper()
	window := windows[w.random.IntN(len(windows))]
	q := reader.TopQuery{BoardQuery: reader.BoardQuery{Index: "sites", Window: parseWindow(t, window.name)}, N: 1 + w.random.IntN(most)}
	top, err := r.Top(t.Context(), q)
	if err != nil {
		t.Fatalf("Top: %v", err)
	}
	w.mu.Lock() // a scan may run
	defer w.mu.Unlock()
	from, to := window.bounds(top.AsOf)
	now := truth(w.counters, from, to)
	got := rankedOf(t, top)
	for _, c := range got {
		if !slices.Contains(now, c) {
			t.Errorf("%s: top has %v, and the counters are %v", window.name, c, now)
		}
	}
	if !slices.IsSortedFunc(got, board.Compare) || len(got) > q.N {
		t.Errorf("%s: top %d is %v", window.name, q.N, got)
	}
	best := now[:min(len(now), q.N)]
	if diff := cmp.Diff(best, got); top.Complete && len(best)+len(got) > 0 && diff != "" {
		t.Errorf("%s: top %d says complete (-right +got):\n%s", window.name, q.N, diff)
	}
	if at, ok := w.scanned[top.CompleteAsOf]; ok {
		if from, to := window.bounds(top.CompleteAsOf); window.name != "1h" {
			checkNames(t, top, q.N, truth(at, from, to), now)
		}
	} else if !top.CompleteAsOf.Equal(top.AsOf) {
		t.Errorf("%s: complete as of %s, and no scan was then", window.name, top.CompleteAsOf)
	}
	return top
}

// rankedOf checks the places of an answer: each is 1 more than the number of counters with a larger sum.
func rankedOf(t *testing.T, top reader.Top) (all []board.Ranked) {
	t.Helper()
	for _, c := range top.Top {
		larger := 0
		for _, other := range top.Top {
			if other.Sum > c.Sum {
				larger++
			}
		}
		if c.Rank != larger+1 {
			t.Errorf("%v has place %d, and %d counters of %v have more", c.Ranked, c.Rank, larger, top.Top)
		}
		all = append(all, c.Ranked)
	}
	return all
}

// checkNames: a counter that was among the best at the scan, and is better now than the last of the answer, is in
// the answer.
func checkNames(t *testing.T, top reader.Top, n int, scanned, now []board.Ranked) {
	t.Helper()
	for _, was := range scanned[:min(len(scanned), n)] {
		at := slices.IndexFunc(now, func(c board.Ranked) bool { return c.Counter == was.Counter })
		in := slices.ContainsFunc(top.Top, func(c reader.TopCounter) bool { return c.Counter == was.Counter })
		if at >= 0 && !in && (len(top.Top) < n || board.Compare(now[at], top.Top[len(top.Top)-1].Ranked) < 0) {
			t.Errorf("%v was among the best at the scan, and is %v: top %d is %+v; now %v", was, now[at], n, top, now)
		}
	}
}

func TestBoardsCostNothingUnasked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, embedded)
		r := newTopReader(t, w, reader.Config{})
		defer r.Close()
		q := reader.TopQuery{BoardQuery: reader.BoardQuery{Index: "sites"}, N: 3}
		ask := func(want int) {
			t.Helper()
			if _, err := r.Top(t.Context(), q); err != nil {
				t.Fatal(err)
			}
			if synctest.Wait(); w.scans != want {
				t.Errorf("%d scans, want %d", w.scans, want)
			}
		}
		w.add(map[string]int64{"page:a:1": 5, "page:b:1": 7})
		time.Sleep(time.Hour)
		if w.scans != 0 {
			t.Errorf("%d scans, and nobody has asked", w.scans)
		}
		ask(1)
		ask(1)
		w.add(map[string]int64{"page:a:1": 5})
		ask(1) // the board is young
		time.Sleep(11 * time.Second)
		ask(2) // and now it is old
		for range 10 {
			time.Sleep(time.Minute)
			ask(2) // nothing was counted
		}
		w.add(map[string]int64{"page:a:1": 5})
		time.Sleep(time.Hour)
		if w.scans != 2 {
			t.Errorf("%d scans, and nobody has asked", w.scans)
		}
	})
}

// The old board serves while the next one is made, and callers share a scan.
func TestTheOldBoardServes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, embedded)
		r := newTopReader(t, w, reader.Config{})
		defer r.Close()
		q := reader.TopQuery{BoardQuery: reader.BoardQuery{Index: "sites"}, N: 1}
		w.add(map[string]int64{"page:a:1": 5})
		if _, err := r.Top(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		w.add(map[string]int64{"page:b:1": 7, "page:a:1": 1})
		time.Sleep(time.Minute)
		hold := make(chan struct{})
		w.On(fakestore.Sums, func(int) fakestore.Answer {
			<-hold
			return fakestore.OK
		})
		for range 5 {
			top, err := r.Top(t.Context(), q)
			if err != nil || len(top.Top) != 1 || top.Top[0].Ranked != (board.Ranked{Counter: "page:a:1", Sum: 6}) || top.Complete {
				t.Errorf("during a scan: %+v, %v; want page:a:1 with 6, not complete", top, err)
			}
		}
		close(hold)
		synctest.Wait()
		top, err := r.Top(t.Context(), q)
		if err != nil || top.Top[0].Counter != "page:b:1" || !top.Complete || w.scans != 2 {
			t.Errorf("after the scan: %+v, %v, %d scans; want page:b:1, complete, 2 scans", top, err, w.scans)
		}
	})
}

func TestRank(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, embedded)
		r := newTopReader(t, w, reader.Config{}.SmallBoards(2))
		defer r.Close()
		w.add(map[string]int64{"page:a:1": 50, "page:a:2": 40, "page:a:3": 30, "page:a:4": 30, "page:a:5": -5})
		rank := func(counter string) reader.Rank {
			t.Helper()
			got, err := r.Rank(t.Context(), reader.BoardQuery{Index: "sites"}, counter)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		for counter, want := range map[string]int{"page:a:1": 1, "page:a:2": 2, "page:a:3": 3, "page:a:4": 3, "page:a:5": 5, "page:a:6": 0} {
			if got := rank(counter); got.Rank != want || got.Of != 5 || !got.Complete {
				t.Errorf("rank of %s: %+v, want %d of 5, complete", counter, got, want)
			}
		}
		all := newTopReader(t, w, reader.Config{})
		defer all.Close()
		top, err := all.Top(t.Context(), reader.TopQuery{BoardQuery: reader.BoardQuery{Index: "sites"}, N: 9})
		if err != nil || len(top.Top) != 5 {
			t.Errorf("the top: %+v, %v", top, err)
		}
		for _, c := range top.Top {
			if got := rank(c.Counter); got.Rank != c.Rank || got.Total != c.Sum {
				t.Errorf("the top has %+v, and the rank is %+v", c, got)
			}
		}
		w.add(map[string]int64{"page:a:1": -15, "page:a:6": 45}) // 35 and 45
		if got := rank("page:a:1"); got.Rank != 2 || got.Total != 35 || got.Complete {
			t.Errorf("a candidate that fell: %+v, want rank 2, not complete", got)
		}
		if got := rank("page:a:6"); got.Rank != 2 || got.Total != 45 {
			t.Errorf("a new counter: %+v, want rank 2", got)
		}
		for counter, limit := range map[string]string{"shop:a": "a counter that matches page:{site}:*, or a group", "=shop:a": "a group that matches =site:{site}"} {
			_, err = r.Rank(t.Context(), reader.BoardQuery{Index: "sites"}, counter)
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
		if _, err := r.Ready(t.Context()); err != nil { // reads the settings
			t.Fatal(err)
		}
		none, ok := errors.AsType[*reader.NoWindowError](ask(r, reader.BoardQuery{Index: "sites", Window: parseWindow(t, "1h")}, 1))
		if !ok || none.Rule != "'page:*=1m:6h,15m:400d'" {
			t.Errorf("a window without a rule: %+v", none)
		}
		paid := newTopReader(t, newWorld(t, 1, fakestore.Options{}), reader.Config{})
		if err := ask(paid, reader.BoardQuery{Index: "sites"}, 1); !errors.Is(err, reader.ErrNoBoards) {
			t.Errorf("a store that charges, without a rate: %v, want ErrNoBoards", err)
		}
	})
}

// Where other processes fold nothing is proved, and the busiest counters are candidates between scans.
func TestTopOfASharedStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, fakestore.Options{GrowsInFold: true})
		r, err := reader.New(shared{w}, nil, reader.Config{BoardRate: 100, LagEvery: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		q := reader.TopQuery{BoardQuery: reader.BoardQuery{Index: "sites"}, N: 1}
		w.add(map[string]int64{"page:a:1": 5})
		if top, err := r.Top(t.Context(), q); err != nil || top.Complete || len(top.Top) != 1 {
			t.Errorf("%+v, %v; want one counter, not complete", top, err)
		}
		w.add(map[string]int64{"page:b:1": 7})
		beat := store.Worker{ID: "w", Expires: time.Now().Add(time.Minute), Busiest: []store.Busy{{Counter: "page:b:1", Rate: 1}, {Counter: "shop", Rate: 9}}}
		if err := w.Beat(t.Context(), beat); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		r.Pipeline(t.Context())
		if top, err := r.Top(t.Context(), q); err != nil || top.Top[0].Counter != "page:b:1" || w.scans != 1 {
			t.Errorf("%+v, %v, after %d scans; want page:b:1 after 1", top, err, w.scans)
		}
	})
}

// shared is a store that other processes change too.
type shared struct{ *world }

func (shared) Risen(*store.SumsQuery, store.RiseMark) store.Rise { return store.Rise{Changed: true} }
