package cost

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/bench/internal/load"
)

// choose returns a size of the published measurement, or the size for daily tests.
func choose[T any](full, quick T) T {
	if *fullFlag {
		return full
	}
	return quick
}

// One hot counter gets 100,000 increments a second from 10 publishers with default lingers. The classic
// sharded counter writes an entity for each increment.
func TestHotCounter(t *testing.T) {
	for _, aggregators := range []int{1, 2, 4} {
		synctest.Test(t, func(t *testing.T) {
			p := open(t, setup{publishers: 10, aggregators: aggregators})
			p.pace(100_000, choose(60*time.Second, 10*time.Second), func(int) string { return "hot" })
			f := p.close()
			keep("one hot counter, 100,000/s from 10 publishers", fmt.Sprintf("aggregators: %d", aggregators), float64(aggregators), 0, f)
			if got := f.perMillion(f.written()); got > 1000 {
				t.Errorf("%d aggregators: %.0f entities per million increments, want at most 1000: a thousandth of the classic counter's", aggregators, got)
			}
		})
	}
}

// Zipf over a million names. 25 publishers send at the same moment, so each window has a message of
// each. The floor is one shard for each distinct counter of the window and one marker for each message.
func TestZipfWindow(t *testing.T) {
	names := load.Names(choose(1_000_000, 100_000))
	for _, each := range choose([]int{10, 100, 1000, 5000}, []int{100, 1000}) {
		synctest.Test(t, func(t *testing.T) {
			const publishers = 25
			draw := load.Zipf(rand.New(rand.NewPCG(1, 2)), len(names))
			p := open(t, setup{publishers: publishers, aggregators: 1})
			floor := 0
			for range choose(20, 3) {
				distinct := make(map[string]bool)
				for _, pub := range p.pubs {
					for range each {
						name := names[draw()]
						distinct[name] = true
						p.add(pub, name)
					}
				}
				before := p.figures()
				p.rest()
				floor += len(distinct) + int(p.figures().Messages-before.Messages)
			}
			f := p.close()
			keep("Zipf, a message of each of 25 publishers in a window", fmt.Sprintf("%d increments a message", each), float64(each), floor, f)
			if got := float64(f.folded()) / float64(floor); got > 1.5 {
				t.Errorf("%d increments a message: %.2f times the floor, want at most 1.5", each, got)
			}
		})
	}
}

// locked lets publishers share a generator.
func locked(draw func() uint32) func() uint32 {
	var mu sync.Mutex
	return func() uint32 {
		mu.Lock()
		defer mu.Unlock()
		return draw()
	}
}

// The cost grows with the number of counters that the same increments go to.
func TestGrowth(t *testing.T) {
	for _, counters := range choose([]int{1, 10, 100, 1000, 10_000, 100_000, 1_000_000}, []int{1, 100, 10_000}) {
		synctest.Test(t, func(t *testing.T) {
			names := load.Names(counters)
			random := locked(func(r *rand.Rand) func() uint32 { return func() uint32 { return uint32(r.IntN(counters)) } }(rand.New(rand.NewPCG(3, 4))))
			p := open(t, setup{publishers: 10, aggregators: 1})
			next := func(int) string { return names[random()] }
			p.pace(100_000, choose(20*time.Second, 2*time.Second), next)
			p.rest()
			p.begun = p.figures() // from here on few counters are new
			p.pace(100_000, choose(20*time.Second, 2*time.Second), next)
			f := p.close()
			keep("by number of counters: 100,000/s from 10 publishers, uniform", fmt.Sprintf("counters: %d", counters), float64(counters), 0, f)
		})
	}
}

// The cost falls as messages grow: the same increments, with longer lingers.
func TestMessageSizes(t *testing.T) {
	names := load.Names(choose(1_000_000, 10_000))
	for _, linger := range choose([]time.Duration{10 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, time.Second, 4 * time.Second},
		[]time.Duration{50 * time.Millisecond, time.Second}) {
		synctest.Test(t, func(t *testing.T) {
			draw := locked(load.Zipf(rand.New(rand.NewPCG(5, 6)), len(names)))
			p := open(t, setup{publishers: 10, aggregators: 1, linger: linger})
			p.pace(100_000, choose(20*time.Second, 2*time.Second), func(int) string { return names[draw()] })
			f := p.close()
			keep("by size of messages: Zipf, 100,000/s from 10 publishers", fmt.Sprintf("linger %s", linger), float64(f.Entries)/float64(f.Messages), 0, f)
		})
	}
}

// Each increment with an id is a part, and so has a marker. A message has one more, its completion marker.
func TestIncrementsWithIDs(t *testing.T) {
	for _, counters := range []int{1, 1000} {
		synctest.Test(t, func(t *testing.T) {
			names := load.Names(counters)
			p := open(t, setup{publishers: 10, aggregators: 1})
			n := 0
			each(p, choose(100, 10), func(i int) (string, []countmill.Increment) {
				incs := make([]countmill.Increment, 100)
				for j := range incs {
					n++
					incs[j] = countmill.Increment{Counter: names[n%counters], Delta: 1, ID: fmt.Sprintf("id-%d", n)}
				}
				return "", incs
			})
			f := p.close()
			keep("increments with ids: 10,000/s from 10 publishers", fmt.Sprintf("counters: %d", counters), float64(counters), 0, f)
			if want := int(f.Increments + f.Messages); f.Markers != want {
				t.Errorf("%d markers for %d increments with ids in %d messages, want %d", f.Markers, f.Increments, f.Messages, want)
			}
		})
	}
}

// A request with an Idempotency-Key has a marker for 24 of its counters.
func TestRequestsWithKeys(t *testing.T) {
	names := load.Names(choose(1_000_000, 100_000))
	for _, size := range []int{1, 10, 100, 1000} {
		synctest.Test(t, func(t *testing.T) {
			draw := load.Zipf(rand.New(rand.NewPCG(7, 8)), len(names))
			p := open(t, setup{publishers: 10, aggregators: 1})
			n := 0
			each(p, choose(100, 10), func(i int) (string, []countmill.Increment) {
				incs := make([]countmill.Increment, size)
				for j := range incs {
					incs[j] = countmill.Increment{Counter: names[draw()], Delta: 1}
				}
				n++
				return fmt.Sprintf("key-%d", n), incs
			})
			keep("requests with an Idempotency-Key: Zipf, 100 requests a second", fmt.Sprintf("%d increments a request", size), float64(size), 0, p.close())
		})
	}
}

// each gives every publisher a request ten times a second, for that many rounds.
func each(p *pipeline, rounds int, request func(i int) (key string, incs []countmill.Increment)) {
	var wg sync.WaitGroup
	for range rounds {
		for i, pub := range p.pubs {
			key, incs := request(i)
			wg.Go(func() { p.publish(pub, key, incs...) })
		}
		time.Sleep(100 * time.Millisecond)
	}
	wg.Wait()
}
