package app

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/backend/datastore"
	"github.com/countmill/countmill/backend/pebble"
	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/sequence"
	"github.com/countmill/countmill/store"
)

// The rate at which one process gives values: of one sequence and of 10,000, to 1 caller and to 500. An
// iteration is a value in a call of its own.
//
//	go test ./internal/app -run '^$' -bench Sequences -benchtime 5s
func BenchmarkSequences(b *testing.B) {
	for _, of := range []struct {
		name string
		open func(b *testing.B) store.Store
	}{
		{"pebble", func(b *testing.B) store.Store {
			s, err := pebble.Open(pebble.Config{Dir: b.TempDir()})
			must(b, err)
			return s
		}},
		{"firestore emulator", func(b *testing.B) store.Store {
			s, err := datastore.Open(b.Context(), datastore.Config{Project: emulator.Project(), Emulator: emulator.Firestore(b)})
			must(b, err)
			return s
		}},
	} {
		for _, load := range []struct{ sequences, callers int64 }{{1, 1}, {1, 500}, {10_000, 1}, {10_000, 500}} {
			b.Run(fmt.Sprintf("%s/%d sequences/%d callers", of.name, load.sequences, load.callers), func(b *testing.B) {
				s := of.open(b)
				x, err := sequence.New(s, sequence.Config{Timeout: time.Minute, CallTimeout: 30 * time.Second})
				must(b, err)
				giveValues(b, x, load.sequences, load.callers)
				ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
				defer cancel()
				must(b, x.Close(ctx))
				must(b, s.Close())
			})
		}
	}
}

func giveValues(b *testing.B, x *sequence.Issuer, sequences, callers int64) {
	b.Helper()
	prefix := strings.ToLower(b.Name()) + ":"
	var n atomic.Int64
	var all sync.WaitGroup
	b.ResetTimer()
	for range callers {
		all.Go(func() {
			for i := n.Add(1); i <= int64(b.N); i = n.Add(1) {
				if _, err := x.Next(b.Context(), countmill.NextRequest{Sequence: prefix + fmt.Sprint(i%sequences)}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "values/s")
	stats := x.Stats()
	b.ReportMetric(float64(stats.Values)/float64(max(stats.Transactions, 1)), "values/transaction")
}
