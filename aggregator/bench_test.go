package aggregator

import (
	"context"
	crand "crypto/rand"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// nullStore accepts every commit, so that a benchmark measures only the aggregator.
type nullStore struct{ limits store.Limits }

func (s nullStore) Limits() store.Limits { return s.limits }
func (nullStore) Fold(context.Context, *store.Commit) (store.CommitResult, error) {
	return store.CommitResult{}, nil
}
func (nullStore) JournalMoment(now time.Time) (time.Time, func()) { return now, func() {} }
func (nullStore) Applied(context.Context, []wire.PartID) ([]store.Marker, error) {
	return nil, nil
}
func (nullStore) Shards(_ context.Context, counters []string) ([]int, error) {
	return make([]int, len(counters)), nil
}
func (nullStore) Grow(context.Context, []store.Growth) error               { return nil }
func (nullStore) PutDeadLetters(context.Context, []store.DeadLetter) error { return nil }
func (nullStore) ListDeadLetters(context.Context, string, int) ([]store.DeadLetter, error) {
	return nil, nil
}
func (nullStore) GetDeadLetters(context.Context, []string) ([]store.DeadLetter, error) {
	return nil, nil
}
func (nullStore) DeleteDeadLetters(context.Context, []string) error { return nil }
func (nullStore) Beat(context.Context, store.Worker) error          { return nil }
func (nullStore) Check(context.Context) (store.Checked, error)      { return store.Checked{}, nil }
func (nullStore) SetWindow(context.Context, time.Duration) (store.Settings, error) {
	return store.Settings{}, nil
}

func (nullStore) ChangeRules(context.Context, store.RuleChange) (store.Settings, error) {
	return store.Settings{}, nil
}

type chanBus chan *message.Message

func (b chanBus) Subscribe(context.Context, string) (<-chan *message.Message, error) { return b, nil }

// BenchmarkFold measures an entry from the bus to the call of the store: decoding, window,
// planning, merging. One op is one entry.
func BenchmarkFold(b *testing.B) {
	for _, bench := range []struct {
		name     string
		counters int
		limits   store.Limits
	}{
		{"embedded/uniform1M", 1_000_000, store.Limits{Keys: 1000, Commits: 1, Shards: 1, CertainOutcome: true}},
		{"embedded/hot100", 100, store.Limits{Keys: 1000, Commits: 1, Shards: 1, CertainOutcome: true}},
		{"400/uniform100k", 100_000, store.Limits{Entities: 400, Keys: 1000, Commits: 4, Shards: 20}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			payloads, each := benchPayloads(bench.counters)
			bus := make(chanBus)
			a, err := New(bus, nullStore{bench.limits}, Config{Linger: -1, WindowCounters: 1_000_000})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			done := make(chan error)
			go func() { done <- a.Run(ctx) }()
			b.ReportAllocs()
			b.ResetTimer()
			for sent := 0; sent < b.N; sent += each {
				m := message.NewMessage("", payloads[(sent/each)%len(payloads)])
				if bench.limits.CertainOutcome {
					m.SetContext(wire.DeliverOnce(ctx))
				}
				bus <- m
			}
			cancel()
			if err := <-done; err != nil {
				b.Fatal(err)
			}
		})
	}
}

// benchPayloads makes 16 batches of 10,000 entries (or one of each counter), as a
// publisher cuts them.
func benchPayloads(counters int) (payloads [][]byte, each int) {
	rng := rand.New(rand.NewPCG(1, 2))
	each = min(10_000, counters)
	for range 16 {
		entries := make([]wire.Entry, 0, each)
		seen := make(map[int]bool)
		for len(entries) < each {
			if c := rng.IntN(counters); !seen[c] {
				seen[c] = true
				entries = append(entries, wire.Entry{Counter: fmt.Sprintf("counter-name-%07d", c), Delta: 1})
			}
		}
		wire.SortEntries(entries)
		payloads = append(payloads, wire.Append(nil, &wire.Batch{Time: time.Now(), Parts: wire.CutAnonymous(crand.Reader, entries)}))
	}
	return payloads, each
}
