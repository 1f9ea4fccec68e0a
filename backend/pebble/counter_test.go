package pebble

import (
	"crypto/rand"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
	sums "github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

func remove(t *testing.T, s *Store, counter string, sum int64) {
	t.Helper()
	seen, _, err := getRecord(s.db, s.keys.named(nil, kindRecord, counter))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.ResetCounter(t.Context(), store.ResetRequest{
		ID: wire.ResetID(counter, rand.Text()), Counter: counter, Delete: true, At: s.cfg.clock(),
		Look: store.Sum{Exists: true, Sum: sums.Of(sum), ResetState: seen.ResetState, At: s.cfg.clock().UTC().Truncate(time.Microsecond)},
	})
	if err != nil {
		t.Fatalf("ResetCounter: %v", err)
	}
}

func mustRaise(t *testing.T, s *Store, counter string) {
	t.Helper()
	if err := s.Grow(t.Context(), []store.Growth{{Counter: counter, Shards: 1}}); err != nil {
		t.Fatal(err)
	}
}

// A counter is removed by the fourth of four calls in a row that find it deleted. The calls start again
// at one after a growth, another deletion, a restart, or a call before the deletion was due.
func TestSweepNeedsRounds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, Config{Dir: dir})
	sweep := func(after time.Duration, want int) {
		t.Helper()
		if n, err := s.SweepCounters(t.Context(), after); n != want || err != nil {
			t.Errorf("SweepCounters: got %d, %v, want %d", n, err, want)
		}
	}
	mustRaise(t, s, "a")
	fold(t, s, nil, "a", 5)
	remove(t, s, "a", 5)
	for range 3 {
		sweep(0, 0)
	}
	mustRaise(t, s, "a") // and deleted again before a call
	remove(t, s, "a", 5)
	for range 3 {
		sweep(0, 0)
	}
	mustRaise(t, s, "a")
	sweep(0, 0)
	remove(t, s, "a", 5)
	for range 3 {
		sweep(0, 0)
	}
	sweep(time.Hour, 0) // the clock was set back
	for range 3 {
		sweep(0, 0)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Config{Dir: dir})
	for range 3 {
		sweep(0, 0)
	}
	sweep(0, 1)
	if got := total(t, s, "a"); got != 0 {
		t.Errorf("the shard of a swept counter holds %d", got)
	}
	sweep(0, 0)
	if len(s.condemned) != 0 {
		t.Errorf("%d counters are condemned still", len(s.condemned))
	}
}
