// Package load is the work of every system in the benchmark: which counters are incremented, in which
// order and for how long, and the right totals afterwards.
package load

import (
	"fmt"
	"math/rand/v2"
)

// Draws is the number of increments of an order before it begins again. The chunk sizes of all systems
// divide it.
const Draws = 8_000_000

// Zipf's exponent: the counter of rank k is incremented in proportion to 1/k^s.
const zipfS = 1.1

// A Load is an order in which counters are incremented by one. It is made before any clock starts, is
// the same for every system, and nobody may change it.
type Load struct {
	Name  string
	About string
	Names []string
	// Order is indexes into Names. After its end it begins again.
	Order []uint32
}

// All makes every load. names is the number of counters for Zipf and uniform. distinct is the number of
// counters of the load in which each is incremented once before any is incremented again.
func All(names, distinct int) []*Load {
	const hotDraws = 100_000
	all := Names(max(names, distinct))
	random := rand.New(rand.NewPCG(1, 2))
	return []*Load{
		{Name: "hot", About: "one counter", Names: all[:1], Order: make([]uint32, hotDraws)},
		{Name: "zipf", About: fmt.Sprintf("Zipf with s = %g over %d counters", zipfS, names), Names: all[:names], Order: zipf(random, names)},
		{Name: "uniform", About: fmt.Sprintf("uniform over %d counters", names), Names: all[:names], Order: uniform(random, names)},
		{Name: "distinct", About: fmt.Sprintf("%d counters, each once in every round through them", distinct), Names: all[:distinct], Order: permutation(random, distinct)},
	}
}

// Names returns n names of 20 bytes.
func Names(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = Name(i)
	}
	return names
}

// Name is the name with this number.
func Name(i int) string { return Prefix + fmt.Sprintf("%012d", i) }

// Prefix begins all names; 12 digits follow, as redis-benchmark makes them.
const Prefix = "page:/u/"

func uniform(random *rand.Rand, names int) []uint32 {
	order := make([]uint32, Draws)
	for i := range order {
		order[i] = uint32(random.IntN(names))
	}
	return order
}

func zipf(random *rand.Rand, names int) []uint32 {
	draw := Zipf(random, names)
	order := make([]uint32, Draws)
	for i := range order {
		order[i] = draw()
	}
	return order
}

// Zipf draws indexes of names. It spreads the ranks over the names, so that busy names are not neighbours.
func Zipf(random *rand.Rand, names int) (draw func() uint32) {
	const prime = 2_654_435_761 // no number of names is a multiple of it
	rank := rand.NewZipf(random, zipfS, 1, uint64(names-1))
	return func() uint32 { return uint32((rank.Uint64() + 1) * prime % uint64(names)) }
}

func permutation(random *rand.Rand, n int) []uint32 {
	order := make([]uint32, n)
	for i, j := range random.Perm(n) {
		order[i] = uint32(j)
	}
	return order
}
