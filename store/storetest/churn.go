package storetest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/countmill/countmill/store"
)

// sites is an index that no store has. Commits may group by its number.
func sites() *store.Index {
	x, err := store.ParseIndex("sites", "page:{site}:*", "site:{site}")
	if err != nil {
		panic(err)
	}
	x.Number = 7
	return &x
}

// pagesOf are counters of the index, and strangers are not.
func pagesOf(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("page:s%d:/%d", i%5, i))
	}
	return append(names, "page:s1:", "page::x:y", "page:日本:語", "page:s\u00e9:a b")
}

var strangers = []string{"page", "page:", "page:a", "pagf:s1:/1", "pag", "=site:s1", "a:page:s1:/1"}

// A churn changes counters at random.
type churn struct {
	t      testing.TB
	s      store.Store
	x      *store.Index
	random *rand.Rand
	names  []string
	looked []store.ResetRequest // looks of resets that come later
}

func newChurn(t testing.TB, s store.Store, names []string) *churn {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for lot := range slices.Chunk(names, 20) {
		var growths []store.Growth
		for _, name := range lot {
			growths = append(growths, store.Growth{Counter: name, Shards: 1 + len(name)%3})
		}
		grow(t, s, growths...)
	}
	return &churn{t: t, s: s, x: sites(), names: names, random: rand.New(rand.NewPCG(seed, 1))}
}

func (c *churn) name() string { return c.names[c.random.IntN(len(c.names))] }

func (c *churn) fold() {
	var adds []store.ShardDelta
	for range 1 + c.random.IntN(8) {
		name := c.name()
		adds = append(adds, add(name, c.random.IntN(1+len(name)%3), 1+c.random.Int64N(50)-c.random.Int64N(60)))
	}
	slices.SortFunc(adds, func(a, b store.ShardDelta) int {
		return cmp.Or(cmp.Compare(a.Counter, b.Counter), cmp.Compare(a.Shard, b.Shard))
	})
	adds = slices.CompactFunc(adds, func(a, b store.ShardDelta) bool { return a.Counter == b.Counter && a.Shard == b.Shard })
	adds = slices.DeleteFunc(adds, func(a store.ShardDelta) bool { return a.Delta == 0 })
	if len(adds) > 0 {
		mustFoldRetrying(c.t, c.s, grouped(commit(one(marker()), adds...), c.x))
	}
}

// step folds, looks for a reset, applies a reset, deletes, or makes a deleted counter exist again.
func (c *churn) step() {
	switch c.random.IntN(12) {
	case 0, 1:
		name := c.name()
		r := resetOf(name, look(c.t, c.s, name))
		r.Delete = c.random.IntN(3) == 0
		c.looked = append(c.looked, r)
	case 2, 3:
		if len(c.looked) > 0 { // its look-up may be long before
			_, err := c.s.ResetCounter(c.t.Context(), c.looked[0])
			if err != nil && !errors.Is(err, store.ErrChanged) {
				c.t.Errorf("ResetCounter: %v", err)
			}
			c.looked = c.looked[1:]
		}
	case 4:
		if err := c.s.Grow(c.t.Context(), []store.Growth{{Counter: c.name(), Shards: 1}}); err != nil {
			c.t.Errorf("Grow: %v", err)
		}
	default:
		c.fold()
	}
}

// totalsOf are the totals of existing counters, as a reader has them.
func totalsOf(t testing.TB, s store.Store, names []string) map[string]int64 {
	t.Helper()
	found := make(map[string]int64)
	for _, name := range names {
		sum := look(t, s, name)
		total := small(t, sum.Sum.Sub(sum.Baseline))
		if sum.Exists && (total != 0 || sum.DeletedAt.IsZero()) {
			found[name] = total
		}
	}
	return found
}
