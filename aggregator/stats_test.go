package aggregator_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// Costs are computed from these numbers: nothing is left out, counted twice or under another
// name.
func TestStatsCountTheWork(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		r := run(t, st, aggregator.Config{})
		settle(2 * time.Minute) // markers are not looked up first any more
		parts := []wire.Part{anonymous(one("a", 1), one("b", 2)), identified("x", 5)}
		parts[0].Increments = 70
		want := aggregator.Stats{}
		check := func(what string) {
			t.Helper()
			settle(time.Minute)
			got := r.agg.Stats()
			got.LastCommit, got.LastDeadLetter = time.Time{}, time.Time{}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}

		r.send(t, parts...)
		want.Messages, want.Parts, want.Entries, want.Commits = 1, 2, 3, 1
		want.Increments = 71                               // 70 in the first part, and 1 in the other
		want.RecordsWritten, want.EntitiesRead = 2, 2      // the counters' records
		want.EntitiesWritten = want.RecordsWritten + 2 + 2 // markers and shards
		check("one message")
		committed := r.agg.Stats().LastCommit
		if ago := time.Since(committed); ago > time.Minute || ago < 59*time.Second {
			t.Errorf("last commit %s ago, want the minute since it, less the linger", ago)
		}

		r.send(t, parts...)
		want.Messages, want.Parts, want.Duplicates = 2, 4, 2
		want.Commits, want.EntitiesRead = 2, 4 // the commit that met the markers, and their look-up
		check("its copy")
		if got := r.agg.Stats().LastCommit; !got.Equal(committed) {
			t.Errorf("last commit at %s, want %s still: the copy was not committed", got, committed)
		}

		st.OnFold(func(int, *store.Commit) protocoltest.Answer { return protocoltest.Refused })
		r.send(t, identified("y", 5))
		want.Messages, want.Parts, want.Commits, want.Retries, want.DeadLetters = 3, 5, 3, 1, 1
		check("a refusal")
		if ago := time.Since(r.agg.Stats().LastDeadLetter); ago > time.Minute || ago < 59*time.Second {
			t.Errorf("last letter %s ago, want the minute since it, less the linger", ago)
		}
	})
}
