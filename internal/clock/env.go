// Package clock has time for the roles: the wall clock, randomness and goroutines of the
// machine, which a simulation replaces (Env, With); the time of a store (Store); and
// waits.
package clock

import (
	crand "crypto/rand"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

// An Env replaces functions of the machine. A nil *Env, and each nil field, uses the machine itself.
// It is not nil only in a simulation.
type Env struct {
	// Wall returns the wall clock's time. No code measures durations with it, because it may be
	// set.
	Wall func() time.Time
	// Random is the source of shards, fold ids and jitter. One goroutine at a time calls it.
	Random rand.Source
	// Entropy is the source of the ids of parts and messages, and of the keys of the journal. It must not be a generator that a
	// restored machine image would repeat. One goroutine at a time calls it.
	Entropy io.Reader
	// Spawn starts a function in a goroutine.
	Spawn func(func())

	mu sync.Mutex
}

// Now returns the wall clock's time.
func (e *Env) Now() time.Time { return e.At(time.Now()) }

// At returns the wall clock's time for a caller that has just called time.Now and passes the
// result. So the caller has both readings of one moment. The result has no monotonic reading:
// package time would compare by that, which is wrong after the machine was suspended.
func (e *Env) At(machine time.Time) time.Time {
	if e == nil || e.Wall == nil {
		return machine.Round(0)
	}
	return e.Wall()
}

// Go starts f in a goroutine.
func (e *Env) Go(f func()) {
	if e == nil || e.Spawn == nil {
		go f()
		return
	}
	e.Spawn(f)
}

// Uint64 returns a random number.
func (e *Env) Uint64() uint64 {
	if e == nil || e.Random == nil {
		return rand.Uint64()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Random.Uint64()
}

// IntN returns a random number from 0 to n-1.
func (e *Env) IntN(n int) int {
	if e == nil || e.Random == nil {
		return rand.IntN(n)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return rand.New(e.Random).IntN(n)
}

// Jitter returns a random duration from 0 to just below d.
func (e *Env) Jitter(d time.Duration) time.Duration {
	if e == nil || e.Random == nil {
		return rand.N(d)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Duration(rand.New(e.Random).Int64N(int64(d)))
}

// Read fills p with unpredictable, unrepeated bytes. It never fails.
func (e *Env) Read(p []byte) (int, error) {
	if e == nil || e.Entropy == nil {
		return crand.Read(p) // it ends the process instead of failing
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Entropy.Read(p)
}

// Float64 returns a random number from 0 to just below 1.
func (e *Env) Float64() float64 { return float64(e.Uint64()>>11) / (1 << 53) }
