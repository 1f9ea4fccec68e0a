package aggregator_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/wire"
)

// One request of 48 counters, cut at 24 by one program and at 12 by another: the second has the
// ids of the first's parts, and two of its own. The size is in its fingerprint, so its head is refused with all of it.
func TestARequestThatIsCutAtTwoSizesCountsOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{})
		right := keyed(t, "k", 48, 1)
		r.send(t, right...)
		settle(time.Minute)
		var entries []wire.Entry
		for _, p := range right {
			entries = append(entries, p.Entries...)
		}
		var wrong []wire.Part
		for n := range 4 {
			p := right[min(n, 1)]
			p.ID, p.Number, p.Entries, p.Request = wire.KeyID("", "k", n), int32(n), entries[12*n:12*n+12], p.Request+12
			if n == 0 {
				p.Number = 3
			}
			wrong = append(wrong, p)
		}
		r.send(t, wrong...)
		settle(time.Minute)
		want := map[string]int64{}
		for i := range 48 {
			want[fmt.Sprint("c", i)] = 1
		}
		r.want(t, want)
	})
}

// A head may claim any number of followers. No memory is allocated for followers that are absent.
func TestAHeadThatClaimsManyPartsTakesNoRoom(t *testing.T) {
	alone(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{})
		parts := keyed(t, "k", 48, 1)
		parts[0].Number = 1 << 26
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before) // of the whole process
		m := r.send(t, parts...)
		settle(time.Minute)
		runtime.ReadMemStats(&after)
		if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 100 {
			t.Errorf("a message of two parts took %d MiB", took)
		}
		if !acked(m) || r.store.Total("c0") != 1 || r.store.Total("c47") != 1 {
			t.Errorf("acknowledged %t, totals %v; want each counter at 1", acked(m), r.store.Totals())
		}
	})
}

// A message with such a part is a dead letter whole, with that reason. Only dead letters have foreign and renewed
// parts: on a bus nobody could check where their ids come from. No publisher increments a group.
func TestMessagesThatNoPublisherMakesAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := run(t, large(t), aggregator.Config{})
		entry := []wire.Entry{one("a", 1)}
		first := anonymous(entry...)
		for reason, p := range map[string]wire.Part{
			"foreign part":                {Kind: wire.Foreign, ID: wire.MessageID("topic", "1", 0), Entries: entry},
			"renewed part":                {Kind: wire.Renewed, ID: wire.RenewedID(&first), Entries: entry},
			"begins with =, as groups do": anonymous(one("=site:a", 1)),
		} {
			m := r.send(t, first, p)
			settle(time.Minute)
			if !acked(m) || !slices.ContainsFunc(r.reasons(), func(got string) bool { return strings.Contains(got, reason) }) {
				t.Errorf("acknowledged %t, dead letters %q, want one that says %q", acked(m), r.reasons(), reason)
			}
		}
		r.want(t, map[string]int64{})
	})
}
