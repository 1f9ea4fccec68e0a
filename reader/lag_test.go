package reader_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
)

func (s *fakeStore) announce(workers ...store.Worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.workers = workers
}

func (s *fakeStore) askedForWorkers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func TestLagIsTheLargestOfTheFresh(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStore{}
		r := newReader(t, st, nil, reader.Config{})
		if _, known := r.Lag(t.Context()); known {
			t.Error("lag is known without an aggregator")
		}
		st.announce(
			store.Worker{ID: "a", Lag: time.Second, Expires: time.Now().Add(4 * time.Second)},
			store.Worker{ID: "b", Lag: 3 * time.Second, Expires: time.Now().Add(3 * time.Second)},
			store.Worker{ID: "dead", Lag: time.Hour, Expires: time.Now()})
		if _, known := r.Lag(t.Context()); known {
			t.Error("records were read again within a second")
		}
		for _, step := range []struct {
			after time.Duration
			lag   time.Duration
			known bool
			asked int
		}{
			{time.Second, 3 * time.Second, true, 2}, // none was fresh: asked after 1s
			{time.Second, 3 * time.Second, true, 2}, // remembered
			{time.Second, time.Second, true, 2},     // b expired meanwhile
			{time.Second, 0, false, 3},              // and a
			{time.Second / 2, 0, false, 3},
		} {
			time.Sleep(step.after)
			lag, known := r.Lag(t.Context())
			if lag != step.lag || known != step.known || st.askedForWorkers() != step.asked {
				t.Errorf("lag is %s, %t after asking %d times; want %s, %t after %d",
					lag, known, st.askedForWorkers(), step.lag, step.known, step.asked)
			}
		}
	})
}

// An aggregator that takes no messages is not alive. Only the messages that it holds raise the lag.
func TestLagOfAggregatorsThatTakeNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStore{}
		r := newReader(t, st, nil, reader.Config{})
		worker := func(id string, lag time.Duration, stalled bool) store.Worker {
			return store.Worker{ID: id, Lag: lag, Stalled: stalled}
		}
		for i, step := range []struct {
			workers []store.Worker
			lag     time.Duration
			known   bool
			alive   int
		}{
			{[]store.Worker{worker("a", 0, true), worker("b", 0, true)}, 0, false, 0},
			{[]store.Worker{worker("a", time.Minute, true), worker("b", 0, true)}, time.Minute, true, 0},
			{[]store.Worker{worker("a", time.Minute, true), worker("b", time.Second, false)}, time.Minute, true, 1},
			{[]store.Worker{worker("a", 0, true), worker("b", time.Second, false)}, time.Second, true, 1},
			{[]store.Worker{worker("a", 0, true), worker("b", 0, false)}, 0, true, 1},
		} {
			for n := range step.workers {
				step.workers[n].Expires = time.Now().Add(time.Minute)
			}
			st.announce(step.workers...)
			lag, known := r.Lag(t.Context())
			if alive := r.Pipeline(t.Context()).Workers; lag != step.lag || known != step.known || alive != step.alive {
				t.Errorf("step %d: lag %s, known %t, %d alive; want %+v", i, lag, known, alive, step)
			}
			time.Sleep(5 * time.Second)
		}
	})
}

func TestLagOutlivesAnOutageOfTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStore{}
		st.announce(store.Worker{ID: "a", Lag: time.Second, Expires: time.Now().Add(9 * time.Second)})
		r := newReader(t, st, nil, reader.Config{})
		r.Lag(t.Context())
		st.breakWith(errAway)
		time.Sleep(7 * time.Second)
		if lag, known := r.Lag(t.Context()); !known || lag != time.Second {
			t.Errorf("lag is %s, %t; want the last one", lag, known)
		}
		r.Lag(t.Context())
		if n := st.askedForWorkers(); n != 2 {
			t.Errorf("asked %d times, want 2: a failed reading is repeated after 1s", n)
		}
		time.Sleep(1100 * time.Millisecond)
		r.Lag(t.Context())
		if n := st.askedForWorkers(); n != 3 {
			t.Errorf("asked %d times, want 3: a failed reading is repeated after 1s", n)
		}
	})
}

// Aggregators whose records expired lately are late, and a failing read of the records is no sign of dead aggregators.
func TestLateAggregatorsAndRecordsThatCannotBeRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStore{}
		r := newReader(t, st, nil, reader.Config{})
		now := time.Now()
		st.announce(
			store.Worker{ID: "a", Expires: now.Add(time.Hour)}, store.Worker{ID: "c", Expires: now.Add(-time.Second)},
			store.Worker{ID: "b", Expires: now.Add(-time.Minute)}, store.Worker{ID: "stopped", Expires: now.Add(-store.WorkerLate)})
		if p := r.Pipeline(t.Context()); p.Workers != 1 || p.Unread || !slices.Equal(p.Late, []string{"b", "c"}) {
			t.Errorf("got %+v, want one aggregator, and b and c late", p)
		}
		st.breakWith(errAway)
		time.Sleep(time.Minute)
		if p := r.Pipeline(t.Context()); p.Workers != 1 || !p.Unread {
			t.Errorf("got %+v of a store that does not answer, want the aggregator of before, and that nothing was read", p)
		}
	})
}

// The rates of a worker are between its records, not between the reader's reads of them.
func TestRates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStore{}
		r := newReader(t, st, nil, reader.Config{})
		began := time.Now()
		at := func(id string, second int, entries, commits int64) store.Worker {
			return store.Worker{ID: id, Expires: began.Add(time.Duration(second+15) * time.Second), Entries: entries, Commits: commits}
		}
		for i, step := range []struct {
			workers []store.Worker
			want    reader.Pipeline
		}{
			{[]store.Worker{at("a", 0, 100, 10)}, reader.Pipeline{Workers: 1}},
			{[]store.Worker{at("a", 10, 1100, 30)}, reader.Pipeline{Workers: 1, Entries: 100, Commits: 2, RatesKnown: true}},
			{[]store.Worker{at("a", 10, 1100, 30)}, reader.Pipeline{Workers: 1, Entries: 100, Commits: 2, RatesKnown: true}},
			{[]store.Worker{at("a", 15, 1100, 30), at("b", 15, 5, 5)}, reader.Pipeline{Workers: 2}},
			{[]store.Worker{at("a", 20, 1200, 35), at("b", 20, 10, 10)}, reader.Pipeline{Workers: 2, Entries: 21, Commits: 2, RatesKnown: true}},
			{[]store.Worker{at("a", 25, 3, 1), at("b", 25, 15, 15)}, reader.Pipeline{Workers: 2}}, // a started anew
			{[]store.Worker{at("a", 30, 3, 2), at("b", 30, 15, 15)}, reader.Pipeline{Workers: 2, Commits: 0.2, RatesKnown: true}},
			{[]store.Worker{at("a", 35, 9, 1), at("b", 35, 15, 15)}, reader.Pipeline{Workers: 2}},  // and again, with more entries
			{[]store.Worker{at("a", 34, 20, 9), at("b", 40, 15, 15)}, reader.Pipeline{Workers: 2}}, // the clock of a was set back
			{[]store.Worker{at("a", 44, 120, 19), at("b", 45, 15, 15)}, reader.Pipeline{Workers: 2, Entries: 10, Commits: 1, RatesKnown: true}},
		} {
			st.announce(step.workers...)
			if diff := cmp.Diff(step.want, r.Pipeline(t.Context())); diff != "" {
				t.Errorf("reading %d (-want +got):\n%s", i, diff)
			}
			time.Sleep(5 * time.Second)
		}
	})
}

// A caller does not wait for the aggregators' records if there are fresh ones.
func TestOneCallerReadsTheRecords(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &slowWorkers{delay: 300 * time.Millisecond}
		st.announce(store.Worker{ID: "a", Lag: time.Second, Expires: time.Now().Add(time.Hour)})
		r := newReader(t, st, nil, reader.Config{})
		waits := func() (n int) {
			took := make(chan time.Duration)
			for range 10 {
				go func() {
					began := time.Now()
					if _, known := r.Lag(t.Context()); !known {
						t.Error("lag is not known")
					}
					took <- time.Since(began)
				}()
			}
			for range 10 {
				if <-took > 0 {
					n++
				}
			}
			return n
		}
		if n := waits(); n != 10 {
			t.Errorf("%d of 10 waited for the first records, want all", n)
		}
		const rounds = 200 // some of which have two lives that begin at the same moment
		for range rounds {
			time.Sleep(6 * time.Second)
			if n := waits(); n != 1 {
				t.Fatalf("%d of 10 waited for the next records, want 1", n)
			}
		}
		if n := st.askedForWorkers(); n != 1+rounds {
			t.Errorf("records were read %d times, want %d", n, 1+rounds)
		}
	})
}

type slowWorkers struct {
	fakeStore
	delay time.Duration
}

func (s *slowWorkers) Workers(ctx context.Context) ([]store.Worker, error) {
	time.Sleep(s.delay)
	return s.fakeStore.Workers(ctx)
}

// Aggregators may use settings of different versions for some seconds.
func TestVersionsOfTheSettings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStore{}
		r := newReader(t, st, nil, reader.Config{})
		for _, c := range []struct{ versions, want []int64 }{
			{[]int64{0}, []int64{0, 0}}, {[]int64{4, 3, 0, 7}, []int64{3, 7}}, {[]int64{2, 2}, []int64{2, 2}},
		} {
			workers := []store.Worker{{ID: "dead", Settings: 1, Expires: time.Now()}}
			expires := time.Now().Add(time.Minute)
			for i, version := range c.versions {
				workers = append(workers, store.Worker{ID: string(rune('a' + i)), Settings: version, Expires: expires})
			}
			st.announce(workers...)
			time.Sleep(10 * time.Second)
			p := r.Pipeline(t.Context())
			if got := []int64{p.OldestSettings, p.NewestSettings}; !cmp.Equal(got, c.want) {
				t.Errorf("versions %v: got %v, want %v", c.versions, got, c.want)
			}
		}
	})
}

// The fleet is the aggregators with fresh records, by ID.
func TestFleet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStore{}
		r := newReader(t, st, nil, reader.Config{})
		fresh := time.Now().Add(time.Minute)
		st.announce(store.Worker{ID: "b", Stalled: true, Expires: fresh}, store.Worker{ID: "ended", Expires: time.Now().Add(-time.Second)},
			store.Worker{ID: "a", Expires: fresh, Setup: map[string]string{"x": "1"}})
		got := r.Fleet(t.Context())
		if len(got) != 2 || got[0].ID != "a" || got[0].Setup["x"] != "1" || got[1].ID != "b" || !got[1].Stalled {
			t.Errorf("got %+v, want a and b", got)
		}
	})
}

// The busiest counters are of all aggregators with fresh records.
func TestBusiest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := &fakeStore{}
		r := newReader(t, st, nil, reader.Config{})
		worker := func(id string, after time.Duration, busiest ...store.Busy) store.Worker {
			return store.Worker{ID: id, Expires: time.Now().Add(after), Busiest: busiest}
		}
		many := worker("many", 20*time.Second)
		for i := range store.MaxBusiest + 1 {
			many.Busiest = append(many.Busiest, store.Busy{Counter: fmt.Sprintf("m%03d", i), Rate: 1})
		}
		st.announce(many,
			worker("a", 10*time.Second, store.Busy{Counter: "x", Rate: 2}, store.Busy{Counter: "y", Rate: 5}),
			worker("b", 20*time.Second, store.Busy{Counter: "x", Rate: 4}, store.Busy{Counter: "z", Rate: 5}),
			worker("dead", 0, store.Busy{Counter: "x", Rate: 100}))
		for _, want := range [][]store.Busy{
			{{Counter: "x", Rate: 6}, {Counter: "y", Rate: 5}, {Counter: "z", Rate: 5}, {Counter: "m000", Rate: 1}},
			{{Counter: "z", Rate: 5}, {Counter: "x", Rate: 4}, {Counter: "m000", Rate: 1}, {Counter: "m001", Rate: 1}}, // a expired
		} {
			got := r.Busiest(t.Context())
			if diff := cmp.Diff(want, got[:min(len(got), len(want))]); diff != "" || len(got) != store.MaxBusiest {
				t.Errorf("%d counters, want %d, which begin with (-want +got):\n%s", len(got), store.MaxBusiest, diff)
			}
			time.Sleep(10 * time.Second)
		}
	})
}
