package aggregator_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/backend/inproc"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest/fakestore"
)

// Without markers a partly applied message must not be delivered again, and an unapplied one must
// be. Aggregators start and stop at any point.
func TestInprocWithoutMarkersCountsOnce(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble(t, func(t *testing.T) { unmarkedRun(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func unmarkedRun(t *testing.T, rng *rand.Rand) {
	st := strict(t, fakestore.Options{CertainOutcome: true, Entities: 25, Commits: 1 + rng.IntN(3), Latency: 20 * time.Millisecond})
	tr := &trouble{rng: rand.New(rand.NewPCG(rng.Uint64(), 1))}
	st.OnFold(func(int, *store.Commit) fakestore.Answer {
		return tr.answer(fakestore.MarkerExists, fakestore.Deployment, fakestore.Refused)
	})
	st.On(fakestore.Applied, func(int) fakestore.Answer { return tr.answer(fakestore.Deployment, fakestore.Blank) })
	bus, err := inproc.New(inproc.Config{WaitForAck: true})
	if err != nil {
		t.Fatal(err)
	}
	p, err := publisher.New(bus, publisher.Config{Linger: -1})
	if err != nil {
		t.Fatal(err)
	}
	answers := make([]error, 300)
	var callers sync.WaitGroup
	for i := range answers {
		callers.Go(func() {
			time.Sleep(time.Duration(i%10) * 100 * time.Millisecond)
			inc := countmill.Increment{Counter: fmt.Sprint("c", i), Delta: 1}
			if i%3 == 0 {
				inc.ID = "x"
			}
			_, answers[i] = p.Publish(t.Context(), inc)
		})
	}
	for i := range 8 {
		if i == 7 {
			tr.end()
		}
		a, err := aggregator.New(bus, st, aggregator.Config{
			Linger: -1, DrainTimeout: time.Duration(1+rng.IntN(100)) * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(200+i/7*3_600_000)*time.Millisecond)
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		if i == 7 {
			callers.Wait()
			cancel()
		}
		<-done
		cancel()
	}
	totals, dead := st.Totals(), (&rig{store: st}).deadTotals(t)
	for i, err := range answers {
		got := totals[fmt.Sprint("c", i)]
		if i%3 > 0 || got == 0 { // a marker makes the replay of an identified part harmless
			got += dead[fmt.Sprint("c", i)]
		}
		if got > 1 || err == nil && got != 1 || err != nil && !errors.Is(err, countmill.ErrOutcomeUnknown) {
			t.Errorf("increment %d: answer %v, counted %d times", i, err, got)
		}
	}
	_ = p.Close(t.Context()) // says which were unknown
	if err := bus.Close(); err != nil {
		t.Error(err)
	}
}
