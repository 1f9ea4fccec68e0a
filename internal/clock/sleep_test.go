package clock

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"
)

func TestSleep(t *testing.T) {
	t.Parallel()
	for ends, want := range map[time.Duration]bool{time.Hour: true, time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), ends)
			defer cancel()
			began := time.Now()
			if slept, took := Sleep(ctx, time.Minute), time.Since(began); slept != want || took != min(ends, time.Minute) {
				t.Errorf("ctx ends after %s: %t after %s, want %t", ends, slept, took, want)
			}
		})
	}
}

// Callers that failed together must not retry together, nor without a pause.
func TestBackoffHasFullJitter(t *testing.T) {
	t.Parallel()
	for failures, most := range map[int]time.Duration{
		0: 50 * time.Millisecond, 1: 100 * time.Millisecond, 6: 3200 * time.Millisecond, 7: 5 * time.Second, 100: 5 * time.Second,
	} {
		for source, want := range map[constant]time.Duration{1: time.Millisecond, math.MaxUint64: most + time.Millisecond - 1} {
			e := &Env{Random: source}
			if got := e.Backoff(failures, 50*time.Millisecond, 5*time.Second); got != want {
				t.Errorf("%d failures: %s, want %s", failures, got, want)
			}
		}
	}
}

// A constant is a random source at one of its extremes.
type constant uint64

func (c constant) Uint64() uint64 { return uint64(c) }
