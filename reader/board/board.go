package board

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/countmill/countmill/store"
)

// Size is the most candidates of a board.
const Size = 1000

// MaxOverflowed is the most names in Overflowed. More are a fault of whoever counts, and the first ones show it.
const MaxOverflowed = 100

// A Ranked is a counter and its sum.
type Ranked struct {
	Counter string
	Sum     int64
}

// Compare puts larger sums first, and equal ones in the order of their names.
func Compare(a, b Ranked) int {
	return cmp.Or(cmp.Compare(b.Sum, a.Sum), strings.Compare(a.Counter, b.Counter))
}

// A Candidate is a counter as the scan found it.
type Candidate struct {
	Ranked
	// Most is CounterSum.Most, and Rest the largest Most of this candidate and all that come after it.
	Most, Rest int64
}

// A Board is the result of one scan. It never changes.
type Board struct {
	store.Sums
	// Query is the query of the scan.
	Query store.SumsQuery
	// Slides is true for a window that loses its first minutes as time passes.
	Slides bool
	// Candidates are the best counters, in the order of Compare.
	Candidates []Candidate
	// Floor is the largest CounterSum.Most of all other counters; the least int64 if there are none.
	Floor int64
	// Overflowed are counters that had no sum, as it did not fit 64 bits: at most MaxOverflowed of them.
	Overflowed []string

	sums   []int64 // of all counters
	sorted sync.Once
}

// Counters is the number of counters that had a sum.
func (b *Board) Counters() int { return len(b.sums) }

// All reports whether every counter with a place in the order is a candidate.
func (b *Board) All() bool { return len(b.sums) == len(b.Candidates) && len(b.Overflowed) == 0 }

// Above is the number of counters other than this one with more than sum. It is one too high if the counter
// had more itself, and is not a candidate.
func (b *Board) Above(counter string, sum int64) int {
	b.sorted.Do(func() { slices.Sort(b.sums) })
	n := len(b.sums) - sort.Search(len(b.sums), func(i int) bool { return b.sums[i] > sum })
	if n > 0 && slices.ContainsFunc(b.Candidates, func(c Candidate) bool { return c.Counter == counter && c.Sum > sum }) {
		n--
	}
	return n
}

// Most is the largest sum that a counter which had sum at the scan can have now.
func Most(sum int64, rise store.Rise) int64 {
	switch most := sum + rise.Most; {
	case !rise.Known, most < sum:
		return math.MaxInt64
	default:
		return most
	}
}

// Proves reports whether an answer has the names of the best counters. last is the sum of its last name,
// and full is false if it has fewer names than were asked for.
func (b *Board) Proves(last int64, full bool, rise store.Rise) bool {
	if !rise.Known {
		return false
	}
	if !rise.Changed && !b.Slides {
		return full || b.All()
	}
	return full && last > Most(max(b.Floor, 0), rise)
}

// A Builder makes a board of the counters of a scan.
type Builder struct {
	board *Board
	size  int
	best  worstFirst
}

// NewBuilder returns a Builder for the result of a query. size is the most candidates, Size but in tests.
func NewBuilder(q store.SumsQuery, slides bool, size int) *Builder {
	return &Builder{board: &Board{Query: q, Slides: slides, Floor: math.MinInt64}, size: size}
}

// Add takes a counter. It keeps nothing of c.
func (b *Builder) Add(c *store.CounterSum) {
	if c.Overflow {
		if len(b.board.Overflowed) < MaxOverflowed {
			b.board.Overflowed = append(b.board.Overflowed, string(c.Counter))
		}
		b.board.Floor = math.MaxInt64
		return
	}
	if c.Hidden || c.Sum == 0 && b.board.Query.To > 0 { // it has no place in the order now
		b.board.Floor = max(b.board.Floor, c.Most)
		return
	}
	b.board.sums = append(b.board.sums, c.Sum)
	if len(b.best) < b.size {
		heap.Push(&b.best, Candidate{Ranked: Ranked{string(c.Counter), c.Sum}, Most: c.Most})
		return
	}
	worst := &b.best[0]
	if c.Sum < worst.Sum || c.Sum == worst.Sum && string(c.Counter) > worst.Counter {
		b.board.Floor = max(b.board.Floor, c.Most)
		return
	}
	b.board.Floor = max(b.board.Floor, worst.Most)
	*worst = Candidate{Ranked: Ranked{string(c.Counter), c.Sum}, Most: c.Most}
	heap.Fix(&b.best, 0)
}

// Board ends the scan.
func (b *Builder) Board(sums store.Sums) *Board {
	b.board.Sums = sums
	all := []Candidate(b.best)
	slices.SortFunc(all, func(x, y Candidate) int { return Compare(x.Ranked, y.Ranked) })
	rest := int64(math.MinInt64)
	for i := range slices.Backward(all) {
		rest = max(rest, all[i].Most)
		all[i].Rest = rest
	}
	b.board.Candidates = all
	return b.board
}

// worstFirst is a heap.
type worstFirst []Candidate

func (h worstFirst) Len() int           { return len(h) }
func (h worstFirst) Less(i, j int) bool { return Compare(h[i].Ranked, h[j].Ranked) > 0 }
func (h worstFirst) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is for package heap.
func (h *worstFirst) Push(x any) { *h = append(*h, x.(Candidate)) }

// Pop is for package heap.
func (h *worstFirst) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
