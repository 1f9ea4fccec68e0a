package aggregator_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/wire"
)

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
			"renewed part":                {Kind: wire.Renewed, ID: wire.RenewedOf(first.ID, first.Fingerprint()), Entries: entry},
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
