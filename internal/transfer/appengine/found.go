package appengine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// maxTotals bounds memory: some 200 bytes each.
	maxTotals = 5_000_000

	// unknownShown is the most entities that are named although they are not shards.
	unknownShown = 10
)

// A counter is a counter of the source. Its name is empty for a grand total.
type counter struct {
	layout Layout
	name   string
}

// A shard is the content of one entity. name is empty if the entity names no counter.
type shard struct {
	layout Layout
	name   string
	count  int64
}

// A Total is the sum of a counter's shards.
type Total struct {
	Layout Layout
	Name   string // empty for the sum of a whole kind
	Shards int
	Sum    int64
}

// Found is the content of a source.
type Found struct {
	Began, Ended time.Time

	// Unknown says why the first of the UnknownCount entities are not shards.
	Unknown      []string
	UnknownCount int

	mu     sync.Mutex // several goroutines add shards
	totals map[counter]*Total
}

func (f *Found) add(s shard) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := counter{s.layout, s.name}
	t := f.totals[c]
	if t == nil {
		if len(f.totals) == maxTotals {
			return fmt.Errorf("there are too many counters (limit: %d in one namespace)", maxTotals)
		}
		t = &Total{Layout: s.layout, Name: s.name}
		f.totals[c] = t
	}
	sum := t.Sum + s.count
	if (sum > t.Sum) != (s.count > 0) {
		return fmt.Errorf("the shards of the %s counter %q sum to more than 64 bits", s.layout, s.name)
	}
	t.Sum = sum
	t.Shards++
	return nil
}

func (f *Found) unknown(why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.UnknownCount++; len(f.Unknown) < unknownShown {
		f.Unknown = append(f.Unknown, why)
	}
}

// Totals returns the totals, ordered by name and layout.
func (f *Found) Totals() []Total {
	all := make([]Total, 0, len(f.totals))
	for t := range maps.Values(f.totals) {
		all = append(all, *t)
	}
	slices.SortFunc(all, func(a, b Total) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Layout, b.Layout))
	})
	return all
}
