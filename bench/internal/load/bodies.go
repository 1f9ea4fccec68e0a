package load

import (
	"math/rand/v2"
	"sync/atomic"
)

// Bodies are NDJSON bodies of a Zipf load, an increment by one in each line. The content of a body depends on its number alone. They
// are made while a system is measured, on the same machine, so they must cost little.
type Bodies struct {
	seed   uint64
	counts []atomic.Int64 // by name: how often it was drawn
}

// NewBodies returns bodies with the first n of Names.
func NewBodies(seed uint64, n int) *Bodies {
	return &Bodies{seed: seed, counts: make([]atomic.Int64, n)}
}

// Maker returns a function that appends body number n to dst, and counts its lines. It is for one goroutine; make each body once.
func (b *Bodies) Maker() func(dst []byte, n, lines int64) []byte {
	source := rand.NewPCG(b.seed, 0)
	draw := Zipf(rand.New(source), len(b.counts))
	line := []byte(`{"counter":"` + Name(0) + "\"}\n")
	end := len(line) - len("\"}\n")
	return func(dst []byte, n, lines int64) []byte {
		source.Seed(b.seed, uint64(n)+1)
		for range lines {
			name := draw()
			b.counts[name].Add(1)
			dst = append(dst, line...)
			digits := dst[len(dst)-len(line) : len(dst)-len(line)+end]
			for i := len(digits) - 1; name > 0; i-- {
				digits[i] += byte(name % 10)
				name /= 10
			}
		}
		return dst
	}
}

// Single returns a function for one goroutine that draws a name, and counts it.
func (b *Bodies) Single() func() string {
	draw := Zipf(rand.New(rand.NewPCG(b.seed, 0)), len(b.counts))
	return func() string {
		name := draw()
		b.counts[name].Add(1)
		return Name(int(name))
	}
}

// Want returns the right total of each name.
func (b *Bodies) Want() []int64 {
	want := make([]int64, len(b.counts))
	for i := range want {
		want[i] = b.counts[i].Load()
	}
	return want
}
