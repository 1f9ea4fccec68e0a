package reader_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

func boardQuery(t *testing.T, window string) reader.TopQuery {
	t.Helper()
	return reader.TopQuery{BoardQuery: reader.BoardQuery{Index: "sites", Window: parseWindow(t, window)}, N: 2}
}

// fold adds to one counter, in one minute.
func (w *world) fold(counter string, delta int64, at time.Time) {
	w.t.Helper()
	c := &store.Commit{
		Adds: []store.ShardDelta{store.NewShardDelta(counter, 0, delta)}, Growths: []store.Growth{{Counter: counter, Shards: 1}},
		Buckets: []store.BucketDelta{{Minute: wire.MinuteOf(at), Delta: delta}},
		Grouped: []store.Grouping{{Indexes: []int64{w.set.Rules.Index("sites").Number}}}, Rules: w.set.Version,
	}
	if _, err := w.Fold(w.t.Context(), c); err != nil {
		w.t.Fatalf("Fold: %v", err)
	}
}

// A scan that fails is an error of the store. It is tried again, and the board before it serves on.
func TestAScanFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, embedded)
		var log bytes.Buffer
		r := newTopReader(t, w, reader.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer r.Close()
		fails := func(n int) protocoltest.Answer {
			if n == 1 || n == 3 {
				return protocoltest.Deployment
			}
			return protocoltest.OK
		}
		w.On("scan record", fails)
		w.add(map[string]int64{"page:a:1": 5})
		if top, err := r.Top(t.Context(), boardQuery(t, "")); !errors.Is(err, countmill.ErrUnavailable) || !errors.Is(err, store.ErrDeployment) {
			t.Errorf("the first scan fails: %+v, %v; want ErrUnavailable with the store's error", top, err)
		}
		if _, err := r.Top(t.Context(), boardQuery(t, "")); !errors.Is(err, store.ErrDeployment) || w.scans != 1 {
			t.Errorf("right after that: %v after %d scans; want the same error of that scan", err, w.scans)
		}
		for range 3 { // the first board; a scan that fails; its board after all
			time.Sleep(time.Minute)
			if top, err := r.Top(t.Context(), boardQuery(t, "")); err != nil || top.Top[0].Counter != "page:a:1" {
				t.Errorf("after %d scans: %+v, %v; want page:a:1", w.scans, top, err)
			}
			synctest.Wait()
			w.add(map[string]int64{"page:a:1": 1})
		}
		if got := r.Stats().StoreErrors; got != 2 || strings.Count(log.String(), "a scan for a board failed") != 2 || w.scans != 4 {
			t.Errorf("%d errors of the store in %d scans, want 2 in 4; the log:\n%s", got, w.scans, &log)
		}
	})
}

// The last hour goes on while nothing is counted, and while its scan waits for its turn.
func TestTheLastHourGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, embedded)
		r := newTopReader(t, w, reader.Config{})
		time.Sleep(24 * time.Hour)
		want := func(what string, n int) {
			t.Helper()
			if top, err := r.Top(t.Context(), boardQuery(t, "1h")); err != nil || len(top.Top) != n {
				t.Errorf("%s: %+v, %v; want %d counters", what, top, err, n)
			}
		}
		w.fold("page:a:1", 5, time.Now())
		want("at once", 1)
		time.Sleep(70 * time.Minute)
		want("after 70 minutes", 0)
		w.fold("page:a:1", 5, time.Now())
		w.On("scan record", func(n int) protocoltest.Answer {
			if n == 3 {
				time.Sleep(70 * time.Minute)
			}
			return protocoltest.OK
		})
		time.Sleep(time.Minute)
		go func() { _, _ = r.Top(t.Context(), boardQuery(t, "")) }()
		synctest.Wait()
		want("behind a scan of 70 minutes", 0)
	})
}

// stuck is a store whose looks at all sums end only with their context.
type stuck struct{ *world }

func (s stuck) Sums(ctx context.Context, _ *store.SumsQuery, _ func(*store.CounterSum) error) (store.Sums, error) {
	<-ctx.Done()
	return store.Sums{}, ctx.Err()
}

// Many windows have many boards, and a bound.
func TestBoardsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, err := reader.New(stuck{newWorld(t, 1, embedded)}, nil, reader.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		refused := 0
		for hour := -12; hour <= 12; hour++ {
			for _, name := range []string{"today", "this-week", "this-month"} {
				w, err := reader.ParseWindow(name, time.FixedZone("", hour*3600))
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				_, err = r.Top(ctx, reader.TopQuery{BoardQuery: reader.BoardQuery{Index: "sites", Window: w}, N: 1})
				if cancel(); errors.Is(err, countmill.ErrOverloaded) {
					refused++
				} else if !errors.Is(err, countmill.ErrUnavailable) {
					t.Fatalf("%s at %d: %v", name, hour, err)
				}
			}
		}
		if refused < 40 {
			t.Errorf("%d of 75 boards are refused while none is made, want those beyond 32", refused)
		}
	})
}

// A slowSums store takes ten seconds for each scan.
type slowSums struct{ reader.Store }

func (s slowSums) Sums(ctx context.Context, q *store.SumsQuery, visit func(*store.CounterSum) error) (store.Sums, error) {
	select {
	case <-time.After(10 * time.Second):
	case <-ctx.Done():
		return store.Sums{}, ctx.Err()
	}
	return s.Store.Sums(ctx, q, visit)
}

// ask asks for one of 69 boards, and returns how long it took.
func ask(ctx context.Context, t *testing.T, r *reader.Reader, caller string, n int) (time.Duration, error) {
	t.Helper()
	w, err := reader.ParseWindow([]string{"today", "this-week", "this-month"}[n/23], time.FixedZone("", (n%23-11)*3600))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	_, err = r.Top(ctx, reader.TopQuery{BoardQuery: reader.BoardQuery{Index: "sites", Window: w, Caller: caller}, N: 1})
	return time.Since(began), err
}

// A caller waits for one board of another at most before its own is made, however many the other asks for.
func TestCallersTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTopReader(t, slowSums{newWorld(t, 1, embedded)}, reader.Config{})
		var all sync.WaitGroup
		for n := range 10 {
			all.Go(func() {
				if took, err := ask(t.Context(), t, r, "busy", n); err != nil || took > 110*time.Second {
					t.Errorf("board %d: %v after %s", n, err, took)
				}
			})
		}
		time.Sleep(time.Second)
		if took, err := ask(t.Context(), t, r, "other", 40); err != nil || took > 20*time.Second {
			t.Errorf("the board of another caller: %v after %s, want within 20s", err, took)
		}
		all.Wait()
	})
}

// A caller has half of the boards, and others have room.
func TestACallerLeavesRoomForBoards(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTopReader(t, stuck{newWorld(t, 1, embedded)}, reader.Config{})
		var all sync.WaitGroup
		var refused atomic.Int64
		for n := range 20 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if _, err := ask(ctx, t, r, "busy", n); errors.Is(err, countmill.ErrOverloaded) {
					refused.Add(1)
				}
			})
		}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := ask(ctx, t, r, "other", 40); errors.Is(err, countmill.ErrOverloaded) {
			t.Errorf("another caller: %v", err)
		}
		all.Wait()
		if n := refused.Load(); n != 4 {
			t.Errorf("%d of 20 boards of one caller are refused, want 4", n)
		}
	})
}

// No scan begins for a board that nobody waits for any more.
func TestABoardThatNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTopReader(t, slowSums{newWorld(t, 1, embedded)}, reader.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		for n := range 5 {
			all.Go(func() { _, _ = ask(ctx, t, r, "gone", n) })
		}
		all.Wait()
		if took, err := ask(t.Context(), t, r, "gone", 5); err != nil || took > 20*time.Second {
			t.Errorf("after four boards that nobody waits for: %v after %s, want within 20s", err, took)
		}
		if took, err := ask(t.Context(), t, r, "gone", 4); err != nil || took > 11*time.Second {
			t.Errorf("a board that was given up: %v after %s, want within 11s", err, took)
		}
	})
}

// The least recently used board makes room: one of the same caller, if that one has its part of them.
func TestBoardsMakeRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTopReader(t, newWorld(t, 1, embedded), reader.Config{BoardAge: time.Hour})
		scanned := func(caller string, first, last int) (scans int64) {
			t.Helper()
			before := r.Stats().Scans
			for n := first; n <= last; n++ {
				time.Sleep(time.Second)
				if _, err := ask(t.Context(), t, r, caller, n); err != nil {
					t.Fatal(err)
				}
			}
			return r.Stats().Scans - before
		}
		if n := scanned("other", 40, 40) + scanned("busy", 0, 16); n != 18 {
			t.Errorf("%d scans for 18 boards", n)
		}
		if n := scanned("busy", 1, 16) + scanned("other", 40, 40); n != 0 {
			t.Errorf("%d scans for boards that are there", n)
		}
		if n := scanned("busy", 0, 0); n != 1 {
			t.Errorf("%d scans for the board of the same caller that made room, want 1", n)
		}
		if n := scanned("", 17, 39); n != 23 { // callers without names have no part of their own
			t.Errorf("%d scans for 23 boards", n)
		}
		if n := scanned("", 2, 3); n != 2 {
			t.Errorf("%d scans for boards of another caller that made room, want 2", n)
		}
	})
}
