package wire

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Counters of one group are neighbours, even if other counters have hashes in between.
func TestOrderKeepsGroupsTogether(t *testing.T) {
	t.Parallel()
	const groups, each = 50, 20
	var entries []Entry
	for i := range groups * each {
		entries = append(entries, Entry{fmt.Sprintf("page:g%d:/%d", i%groups, i), 1})
	}
	rand.Shuffle(len(entries), func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	SortEntries(entries)
	changes, last := 0, ""
	for _, e := range entries {
		if group := e.Counter[:groupLen(e.Counter)]; group != last {
			changes, last = changes+1, group
		}
	}
	if changes != groups {
		t.Errorf("%d counters of %d groups have %d runs of one group, want %d", groups*each, groups, changes, groups)
	}
}
