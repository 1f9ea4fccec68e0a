package pebble

import (
	"slices"
	"testing"

	"github.com/countmill/countmill/store"
)

// Memtables take their memory from the cache. If they took all of it, each read would fetch from the
// disk the blocks that the read before had fetched.
func TestBlocksStayInTheCache(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir(), Cache: 1 << 20, memTable: 4 << 20})
	c := benchCommits(1, 1000)[0]
	for s.db.Metrics().MemTable.Size < 4<<20 { // memtables begin small, and each is twice as large as the one before
		if _, err := s.Fold(t.Context(), &store.Commit{Adds: slices.Clone(c.Adds)}); err != nil {
			t.Fatal(err)
		}
	}
	read := func() (missed int64) {
		before := s.db.Metrics().BlockCache.Misses
		view := s.View()
		defer view.Close()
		for _, a := range c.Adds {
			if _, err := view.Lookup(t.Context(), []store.Key{{Counter: a.Counter}}); err != nil {
				t.Fatal(err)
			}
		}
		return s.db.Metrics().BlockCache.Misses - before
	}
	read()
	if missed := read(); missed > 100 {
		t.Errorf("%d blocks were fetched for 1,000 counters that had just been read", missed)
	}
}
