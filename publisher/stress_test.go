package publisher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill"
)

// TestEveryIncrementIsSentOnce adds from many goroutines by all ways at once over a bus
// that fails and duplicates, and forgets counters all the time.
func TestEveryIncrementIsSentOnce(t *testing.T) {
	t.Parallel()
	bus := newBus(t)
	bus.answer = func(call int, _ *message.Message) (bool, error) {
		if call%7 == 0 {
			return call%2 == 0, errors.New("away")
		}
		return true, nil
	}
	p := open(t, bus, Config{Linger: -1, MaxInFlight: 3})
	for i := range p.stripes {
		p.stripes[i].many = 8 // lanes come and go
	}
	var mu sync.Mutex
	want := map[string]int64{}
	var increments atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			sums := map[string]int64{}
			addAll(t, p, g, sums, &increments)
			mu.Lock()
			defer mu.Unlock()
			for counter, sum := range sums {
				if want[counter] += sum; want[counter] == 0 {
					delete(want, counter)
				}
			}
		})
	}
	wg.Wait()
	closeNow(t, p)
	bus.wantTotals(want)
	s := p.Stats()
	if s.Increments != increments.Load() || s.Durable != s.Increments || s.OpenEntries != 0 || s.OpenBytes != 0 {
		t.Errorf("%d increments, stats: %+v", increments.Load(), s)
	}
}

func addAll(t *testing.T, p *Publisher, g int, sums map[string]int64, increments *atomic.Int64) {
	random := rand.New(rand.NewPCG(uint64(g), 1))
	hot, err := p.Counter("hot")
	if err != nil {
		t.Error(err)
		return
	}
	for i := range 20_000 {
		delta := int64(random.IntN(9) - 4)
		if random.IntN(10) == 0 {
			delta <<= 45
		}
		if delta == 0 {
			delta = 1
		}
		counter := fmt.Sprint("c", random.IntN(500))
		n := int64(1)
		switch {
		case i%1000 == 999:
			n = 2
			_, err = p.Publish(context.Background(), inc(counter, delta), countmill.Increment{Counter: "hot", Delta: delta, ID: fmt.Sprint(g, i)})
			sums["hot"] += delta
		case i%1000 == 500:
			_, err = p.PublishKeyed(context.Background(), "", fmt.Sprint(g, i), inc(counter, delta))
		case i%1000 == 125:
			p.contend("hot")
			p.contend(counter)
			err = p.Add(counter, delta)
		case i%1000 == 250:
			if _, err = p.Flush(context.Background()); err != nil {
				t.Error(err)
			}
			err = p.Add(counter, delta)
		case i%2 == 0:
			counter, err = "hot", hot.Add(delta)
		case i%3 == 0:
			counter = fmt.Sprint("once", g, i)
			err = p.Add(counter, delta)
		default:
			err = p.Add(counter, delta)
		}
		if err != nil {
			t.Error(err)
			return
		}
		sums[counter] += delta
		increments.Add(n)
	}
}

// TestCloseAgainstAdd: accepted increments are sent, and refused ones are not.
func TestCloseAgainstAdd(t *testing.T) {
	t.Parallel()
	for range 50 {
		bus := newBus(t)
		p := open(t, bus, Config{Linger: -1})
		var accepted atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for p.Add("a", 1) == nil {
					accepted.Add(1)
				}
			})
		}
		for accepted.Load() < 100 {
		}
		closeNow(t, p)
		wg.Wait()
		bus.wantTotals(map[string]int64{"a": accepted.Load()})
	}
}

func TestStripeForgetsCountersAtRest(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	longest := strings.Repeat("n", countmill.MaxCounterName)
	const maxBytes = 2 << 20
	for name, tc := range map[string]struct {
		adds    int
		counter func(i int) string
	}{
		"each used once":            {200_000, strconv.Itoa},
		"more in use than are kept": {100_000, func(int) string { return strconv.Itoa(random.IntN(250 * stripeCount)) }},
		"long names":                {50_000, func(i int) string { return fmt.Sprintf("%0*d", countmill.MaxCounterName, i) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bus := newBus(t)
			p := open(t, bus, Config{Linger: -1, MaxEntries: 1000, MaxBytes: maxBytes})
			want := map[string]int64{}
			for i := range tc.adds {
				counter := tc.counter(i)
				want[counter]++
				if p.Add(counter, 1) != nil {
					must(t, errOf(p.Flush(ctx)))
					must(t, p.Add(counter, 1))
				}
			}
			closeNow(t, p)
			// A batch is small, so it uses less memory than the publisher keeps.
			most := size{2 * (1000/stripeCount + minCells), max(maxBytes/stripeCount, minCells*entryCost)}
			for i := range p.stripes {
				if cells := p.stripes[i].cells; cells.counters > most.counters || cells.bytes > most.bytes+cost(longest) {
					t.Errorf("stripe %d remembers %+v, want %+v at most", i, cells, most)
				}
			}
			if got := bus.totals(); !maps.Equal(got, want) {
				t.Errorf("%d counters on the bus, want %d, each as often as it was added", len(got), len(want))
			}
		})
	}
}

// The room of a stripe is beyond its bound only if more counters are in use.
func TestRoomOfAStripe(t *testing.T) {
	t.Parallel()
	s := stripe{most: size{100, 100 * cost("name")}}
	for n := 1; n < 300; n++ {
		used := size{n, int64(n) * cost("name")}
		room, most := s.roomFor(used), s.most
		if n >= most.counters {
			most = size{max(n+1, n*5/4), used.bytes * 5 / 4}
		}
		if room.counters <= n || room.counters > most.counters || room.bytes > most.bytes {
			t.Errorf("%d in use: got %+v, want more, and at most %+v", n, room, most)
		}
	}
}

// A flood of names is forgotten later, without a further flood.
func TestCountersAreForgottenWithTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := open(t, newBus(t), Config{})
		for i := range 50_000 {
			must(t, p.Add(fmt.Sprint(i), 1))
		}
		for range 3 {
			time.Sleep(2 * sweepEvery)
			for i := range 1000 {
				must(t, p.Add(fmt.Sprint(i), 1))
			}
		}
		closeNow(t, p)
		cells := 0
		for i := range p.stripes {
			cells += p.stripes[i].cells.counters
		}
		if cells > 2000 {
			t.Errorf("%d counters are remembered, 1000 are in use", cells)
		}
	})
}

// BenchmarkFlush measures a million counters from the first Add to the bus.
func BenchmarkFlush(b *testing.B) {
	names := make([]string, 1_000_000)
	for i := range names {
		names[i] = fmt.Sprintf("counter/%d", i)
	}
	for b.Loop() {
		p := open(b, nullBus{}, Config{MaxEntries: 4_000_000, MaxBytes: 1 << 30})
		for _, name := range names {
			_ = p.Add(name, 1)
		}
		closeNow(b, p)
	}
}

type nullBus struct{}

func (nullBus) Publish(string, ...*message.Message) error { return nil }
