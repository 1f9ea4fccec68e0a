// Package sysenv is what a role takes from the machine beside what it is given: the wall
// clock, chance and goroutines. A simulation puts its own in their place; everybody else
// leaves the Env of a role's Config nil.
package sysenv

import (
	crand "crypto/rand"
	"io"
	"math/rand/v2"
	"sync"
	"time"
)

// An Env stands in for the machine. A nil *Env is the machine, and so is each field that
// is nil.
type Env struct {
	// Wall is the wall clock. Durations are never taken from it: clocks are set.
	Wall func() time.Time
	// Random is where shards, fold ids and jitter are drawn from. It is called by one
	// goroutine at a time.
	Random rand.Source
	// Entropy is where the ids of parts and messages come from: never a generator that
	// a restored image of a machine would repeat. It is called as Random is.
	Entropy io.Reader
	// Spawn starts a goroutine.
	Spawn func(func())

	mu sync.Mutex
}

// Now is the wall clock's time.
func (e *Env) Now() time.Time { return e.At(time.Now()) }

// At is the wall clock's time for a caller who has just asked the machine for it, and knows
// it both ways for one look. It is without the monotonic reading, by which package time
// compares where it can: after a suspension that says what it was before.
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

// Uint64 is a random number.
func (e *Env) Uint64() uint64 {
	if e == nil || e.Random == nil {
		return rand.Uint64()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Random.Uint64()
}

// IntN is a random number from 0 to n-1.
func (e *Env) IntN(n int) int {
	if e == nil || e.Random == nil {
		return rand.IntN(n)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return rand.New(e.Random).IntN(n)
}

// Jitter is a random duration from 0 to just below d.
func (e *Env) Jitter(d time.Duration) time.Duration {
	if e == nil || e.Random == nil {
		return rand.N(d)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Duration(rand.New(e.Random).Int64N(int64(d)))
}

// Read fills p with bytes that nobody else gets. It never fails.
func (e *Env) Read(p []byte) (int, error) {
	if e == nil || e.Entropy == nil {
		return crand.Read(p) // never fails: it ends the process instead
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Entropy.Read(p)
}

// Float64 is a random number from 0 to just below 1.
func (e *Env) Float64() float64 { return float64(e.Uint64()>>11) / (1 << 53) }
