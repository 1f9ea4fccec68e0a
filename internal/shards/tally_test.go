package shards

import (
	"testing"
	"time"
)

// A tally counts within an epoch, even if a clock is behind, and starts again with the next.
func TestTally(t *testing.T) {
	t.Parallel()
	var stored int64
	commit := func(now time.Time) int64 {
		stored = max(stored, Floor(now)) + 1
		return stored
	}
	began := time.Unix(1_700_000_000, 0).Truncate(Epoch)
	for _, c := range []struct {
		at      time.Duration
		commits int
		since   time.Duration
	}{
		{0, 1, 0},
		{Epoch / 2, 2, Epoch / 2},
		{Epoch - 1, 3, Epoch - 1},
		{Epoch, 1, 0},
		{Epoch - time.Second, 2, 0}, // by a clock that is a second behind
		{Epoch + time.Second, 3, time.Second},
		{9*Epoch + time.Second, 1, time.Second},
	} {
		now := began.Add(c.at)
		if commits, since := readTally(commit(now), now); commits != c.commits || since != c.since {
			t.Errorf("at %s: %d commits since %s, want %d since %s", c.at, commits, since, c.commits, c.since)
		}
	}
}
