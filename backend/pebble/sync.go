package pebble

import (
	"context"
	"sync"

	pebbledb "github.com/cockroachdb/pebble/v2"
)

// syncs knows the commits that are under way. Pebble shows a commit to others before it is
// synced, and up to then even the end of the process may undo it.
type syncs struct {
	mu   sync.Mutex
	open map[chan struct{}]struct{} // each closed when its commit is synced

	// kept returns when the files of a synced commit are in their directory; nil: at once.
	kept func() error
}

// commit commits and syncs b.
func (s *syncs) commit(b *pebbledb.Batch) error {
	done := make(chan struct{})
	s.mu.Lock()
	if s.open == nil {
		s.open = make(map[chan struct{}]struct{})
	}
	s.open[done] = struct{}{}
	s.mu.Unlock()
	err := b.Commit(pebbledb.Sync)
	if err == nil && s.kept != nil {
		err = s.kept()
	}
	if err != nil {
		return err // and the process ends: nobody may go on with what the batch shows
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, done)
	close(done)
	return nil
}

// underWay lists what commits close when they are synced.
func (s *syncs) underWay() (open []chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for done := range s.open {
		open = append(open, done)
	}
	return open
}

// settled waits until commits that were under way are synced, and returns those that are
// not when ctx ends.
func settled(ctx context.Context, open []chan struct{}) ([]chan struct{}, error) {
	for len(open) > 0 {
		select {
		case <-open[0]:
			open = open[1:]
		case <-ctx.Done():
			return open, ctx.Err()
		}
	}
	return nil, nil
}
