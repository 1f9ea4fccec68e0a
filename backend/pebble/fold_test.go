package pebble

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
)

// A fold whose context ends while it waits for its turn was certainly not applied, and its error says
// so. After an unknown outcome an aggregator without markers ends its process.
func TestAFoldThatOnlyWaitedIsNotApplied(t *testing.T) {
	t.Parallel()
	s := open(t, Config{Dir: t.TempDir()})
	marked := &store.Commit{Markers: marker(time.Now().Add(time.Hour)), Adds: []store.ShardDelta{store.NewShardDelta("a", 0, 1)}}
	unmarked := &store.Commit{Adds: marked.Adds}
	check := func(what string, c *store.Commit, free func()) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		go func() {
			<-ctx.Done()
			free()
		}()
		if _, err := s.Fold(ctx, c); !errors.Is(err, store.ErrNotApplied) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: got %v, want ErrNotApplied, because its context ended", what, err)
		}
	}
	s.marking <- struct{}{}
	check("behind another fold with markers", marked, func() {})
	s.unlockMarking()
	for what, c := range map[string]*store.Commit{"marked": marked, "unmarked": unmarked} {
		s.sweeping.Lock()
		check(what+", behind a sweep", c, s.sweeping.Unlock)
	}
	if got := total(t, s, "a"); got != 0 {
		t.Errorf("the total is %d, want 0", got)
	}
	for _, c := range []*store.Commit{marked, unmarked} {
		if _, err := s.Fold(t.Context(), c); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	}
}
