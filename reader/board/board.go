// Package board orders counters by their sums: the best ones of one look at all sums of an index, and the place of each.
package board

import (
	"cmp"
	"container/heap"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/countmill/countmill/store"
)

// Size is the most counters of Best.
const Size = 1000

// maxOverflowed is the most names in Overflowed. More are a fault of the counting program, and the first ones show it.
const maxOverflowed = 100

// A Ranked is a counter and its sum.
type Ranked struct {
	Counter string
	Sum     int64
}

// Compare puts larger sums first, and equal ones in the order of their names.
func Compare(a, b Ranked) int {
	return cmp.Or(cmp.Compare(b.Sum, a.Sum), strings.Compare(a.Counter, b.Counter))
}

// A Board is the order of one scan. It never changes once it is made.
type Board struct {
	store.Sums
	// Query is the query of the scan.
	Query store.SumsQuery
	// Best are the best counters, in the order of Compare.
	Best []Ranked
	// Overflowed are counters that had no sum, as it did not fit 64 bits, by name: the first maxOverflowed of the scan.
	Overflowed []string
	// Partial is true if the scan of a window left out the overflow group, of which no series is kept.
	Partial bool

	all    []found
	over   map[hash]struct{} // all that had no sum
	sorted sync.Once
	sums   []int64 // of all, when they are sorted
}

// A hash identifies a name: a million names of 500 bytes would take too much memory.
type hash [2]uint64

func hashOf[T string | []byte](name T) hash {
	sum := sha256.Sum256([]byte(name))
	return hash{binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:])}
}

func (h hash) compare(other hash) int {
	if h[0] != other[0] {
		return cmp.Compare(h[0], other[0])
	}
	return cmp.Compare(h[1], other[1])
}

type found struct {
	name hash
	sum  int64
}

// Counters is the number of counters that have a place.
func (b *Board) Counters() int { return len(b.all) }

// Place returns the sum of a counter, and its rank: 1 more than the number of counters with a larger sum. The rank is 0 if the counter
// has no place, also because its sum overflowed.
func (b *Board) Place(counter string) (sum int64, rank int, overflow bool) {
	b.sorted.Do(func() {
		slices.SortFunc(b.all, func(x, y found) int { return x.name.compare(y.name) })
		b.sums = make([]int64, len(b.all))
		for i := range b.all {
			b.sums[i] = b.all[i].sum
		}
		slices.Sort(b.sums)
	})
	name := hashOf(counter)
	if _, overflow = b.over[name]; overflow {
		return 0, 0, true
	}
	at, ok := slices.BinarySearchFunc(b.all, name, func(f found, name hash) int { return f.name.compare(name) })
	if !ok {
		return 0, 0, false
	}
	sum = b.all[at].sum
	return sum, 1 + len(b.sums) - sort.Search(len(b.sums), func(i int) bool { return b.sums[i] > sum }), false
}

// A Builder makes a board of the counters of a scan.
type Builder struct {
	board *Board
	size  int
	best  worstFirst
}

// NewBuilder returns a Builder for the result of a query. size is the most counters of Best, Size but in tests.
func NewBuilder(q store.SumsQuery, size int) *Builder {
	return &Builder{board: &Board{Query: q, over: make(map[hash]struct{})}, size: size}
}

// Add takes a counter. It keeps nothing of c.
func (b *Builder) Add(c *store.CounterSum) {
	if c.Overflow {
		b.board.over[hashOf(c.Counter)] = struct{}{}
		if len(b.board.Overflowed) < maxOverflowed {
			b.board.Overflowed = append(b.board.Overflowed, string(c.Counter))
		}
		return
	}
	if c.Sum == 0 && b.board.Query.To > 0 {
		return
	}
	b.board.all = append(b.board.all, found{hashOf(c.Counter), c.Sum})
	if len(b.best) < b.size {
		heap.Push(&b.best, Ranked{string(c.Counter), c.Sum})
		return
	}
	if worst := &b.best[0]; c.Sum > worst.Sum || c.Sum == worst.Sum && string(c.Counter) < worst.Counter {
		*worst = Ranked{string(c.Counter), c.Sum}
		heap.Fix(&b.best, 0)
	}
}

// Board ends the scan.
func (b *Builder) Board(sums store.Sums) *Board {
	b.board.Sums, b.board.Best = sums, b.best
	slices.SortFunc(b.board.Best, Compare)
	slices.Sort(b.board.Overflowed)
	return b.board
}

// worstFirst is a heap.
type worstFirst []Ranked

func (h worstFirst) Len() int           { return len(h) }
func (h worstFirst) Less(i, j int) bool { return Compare(h[i], h[j]) > 0 }
func (h worstFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is for package heap.
func (h *worstFirst) Push(x any) { *h = append(*h, x.(Ranked)) }

// Pop is for package heap.
func (h *worstFirst) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
