package pebble

import (
	"context"
	"sync"

	pebbledb "github.com/cockroachdb/pebble/v2"
)

// syncs tracks the running commits. Pebble shows a commit to readers before it is synced; until then
// even the end of the process may undo it.
type syncs struct {
	mu   sync.Mutex
	open map[chan struct{}]struct{} // each is closed when its commit is synced

	// kept returns when the files of a synced commit are in their directory. If it is nil, nobody
	// waits.
	kept func() error
}

// apply makes b visible. wait returns when b is synced.
func (s *syncs) apply(db *pebbledb.DB, b *pebbledb.Batch) (wait func() error, err error) {
	done := make(chan struct{})
	s.mu.Lock()
	if s.open == nil {
		s.open = make(map[chan struct{}]struct{})
	}
	s.open[done] = struct{}{}
	s.mu.Unlock()
	if err := db.ApplyNoSyncWait(b, pebbledb.Sync); err != nil {
		return nil, err // and the process ends: nobody may act on data of this batch
	}
	return func() error {
		err := b.SyncWait()
		if err == nil && s.kept != nil {
			err = s.kept()
		}
		if err != nil {
			return err // and the process ends here too
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, done)
		close(done)
		return nil
	}, nil
}

// underWay returns the channels of the running commits; each is closed when its commit is synced.
func (s *syncs) underWay() (open []chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for done := range s.open {
		open = append(open, done)
	}
	return open
}

// settled waits until those commits are synced. If ctx ends first, it returns the rest.
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
