package reader_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// An answer reads few series of a store that charges, several with each call, and some calls at once.
func TestSeriesOfASharedStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, embedded)
		time.Sleep(10 * 24 * time.Hour) // the minutes of an increment are in one month
		deltas := make(map[string]int64)
		for i := range 200 {
			deltas[fmt.Sprintf("page:a:%03d", i)] = int64(i + 1)
		}
		w.add(deltas)
		counted := &slowSeries{shared: shared{w}}
		r := newTopReader(t, counted, reader.Config{BoardRate: 1_000_000, Timeout: time.Minute})
		q := reader.TopQuery{BoardQuery: reader.BoardQuery{Index: "sites", Window: parseWindow(t, "this-month")}, N: 100}
		began := time.Now()
		var answers sync.WaitGroup
		for range 2 {
			answers.Go(func() {
				top, err := r.Top(t.Context(), q)
				if err != nil || len(top.Top) != 100 || top.Top[99].Counter != "page:a:100" {
					t.Errorf("%+v, %v; want 100 counters, the last of them page:a:100", top, err)
				}
			})
		}
		answers.Wait()
		if took, calls := time.Since(began), counted.calls.Load(); calls != 42 || took != 6*time.Second {
			t.Errorf("%d calls in %s; want 21 for each answer, 4 at once for a second each", calls, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		if _, err := r.Top(ctx, q); !errors.Is(err, countmill.ErrUnavailable) {
			t.Errorf("an answer that takes too long: %v, want ErrUnavailable", err)
		}
	})
}

// A slowSeries takes a second for each call.
type slowSeries struct {
	shared
	calls atomic.Int64
}

func (s *slowSeries) View() store.View { return slowView{s.shared.View(), s} }

type slowView struct {
	store.View
	of *slowSeries
}

func (v slowView) Series(ctx context.Context, of []store.Record, from, to wire.Minute) ([][]store.Bucket, error) {
	v.of.calls.Add(1)
	time.Sleep(time.Second)
	return v.View.Series(ctx, of, from, to)
}
