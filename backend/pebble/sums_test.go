package pebble

import (
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/storetest"
)

// The walk over all shards finds what looking up each counter finds.
func TestSumsWalk(t *testing.T) {
	t.Parallel()
	storetest.RunSums(t, func(t *testing.T) store.Store { return open(t, Config{Dir: t.TempDir(), looked: -1}) })
}

// A commit is under way, and a look at all sums lacks it. The commit is counted after the look.
func TestChangesUnderWay(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	until := func(what string, met func() bool) {
		for deadline := time.Now().Add(time.Minute); !met(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				s.syncs.mu.Unlock()
				t.Fatalf("after a minute: not %s", what)
			}
		}
	}
	s.syncs.mu.Lock() // neither a commit nor a look passes here
	var calls sync.WaitGroup
	unseen := s.unseen.Load()
	calls.Go(func() {
		c := &store.Commit{Adds: []store.ShardDelta{store.NewShardDelta("page:a:1", 0, 5)}, Growths: []store.Growth{{Counter: "page:a:1", Shards: 1}}}
		if _, err := s.Fold(t.Context(), c); err != nil {
			t.Error(err)
		}
	})
	until("a commit", func() bool { return s.unseen.Load() > unseen })
	var sums store.Sums
	found := 0
	calls.Go(func() {
		x, err := store.ParseIndex("sites", "page:{site}:*", "site:{site}")
		if err == nil {
			sums, err = s.Sums(t.Context(), &store.SumsQuery{Index: &x}, func(*store.CounterSum) error { found++; return nil })
		}
		if err != nil {
			t.Error(err)
		}
	})
	until("a snapshot", func() bool { return s.db.Metrics().Snapshots.Count > 0 })
	s.syncs.mu.Unlock()
	calls.Wait()
	if n, _ := s.Changes(); found != 0 || n <= sums.Changes {
		t.Errorf("a look during a commit has %d counters and %d changes, and then there are %d", found, sums.Changes, n)
	}
}
