package plan

import (
	"strings"
	"testing"
)

func TestPlannedBoards(t *testing.T) {
	t.Parallel()
	of := func(rate float64, counters int64) Plan {
		return planned(t, func(l *Load) { l.Counters, l.BoardRate, l.BoardCounters, l.Readers = 100_000, rate, counters, 2 })
	}
	month := planned(t, func(l *Load) { l.Counters, l.BoardRate, l.BoardDays = 100_000, 1000, 31 })
	near(t, "entities of a scan of a month", month.Countmill.BoardScan, 3_300_000, 1e-9)
	if notes := strings.Join(month.Notes, "\n"); !strings.Contains(notes, "31 days of each counter, in 55.0 minutes") || strings.Contains(notes, "no scan ends") {
		t.Errorf("3,300,000 entities at 1,000 a second: %q, want 55 minutes", notes)
	}
	none, all, some := of(0, 0), of(1000, 0), of(10, 50_000)
	near(t, "entities read for boards", all.Countmill.EntitiesRead-none.Countmill.EntitiesRead, 2000, 0.01)
	near(t, "entities of a scan", all.Countmill.BoardScan, 200_000, 1e-9) // a record and a shard each
	near(t, "entities of a scan of half", some.Countmill.BoardScan, 100_000, 1e-9)
	if all.Countmill.Month.Reads <= none.Countmill.Month.Reads {
		t.Errorf("reads cost %g a month with boards, and %g without", all.Countmill.Month.Reads, none.Countmill.Month.Reads)
	}
	if notes := strings.Join(some.Notes, "\n"); !strings.Contains(notes, "no scan ends") || !strings.Contains(notes, "--board-rate 31 ") {
		t.Errorf("100,000 entities at 10 a second: %q, want the rate that is enough", notes)
	}
	if notes := strings.Join(all.Notes, "\n"); strings.Contains(notes, "no scan ends") || !strings.Contains(notes, "3.3 minutes") {
		t.Errorf("200,000 entities at 1,000 a second: %q, want 3.3 minutes", notes)
	}
}
