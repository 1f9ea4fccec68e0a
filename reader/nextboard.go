package reader

import (
	"cmp"
	"context"
	"time"

	"github.com/countmill/countmill/reader/board"
	"github.com/countmill/countmill/store"
)

const (
	// tooOld: a board that may lack changes of more than so many times its age is too old to answer while a quick scan
	// makes the next one. A job that asks every few minutes would otherwise get the names of its last run. Boards
	// that are asked for all the time never become so old.
	tooOld = 2

	// nextWithin is how long a caller waits for the next board, and how long a scan takes that is worth it. A million
	// counters take 1.2 s with Pebble (BenchmarkBoards). Where a scan takes minutes nobody waits in vain.
	nextWithin = 2 * time.Second

	// maxWaiting is how many callers wait for next boards at once. The others get the boards that there are, so that waiting
	// callers never use up the answers that the API makes at once.
	maxWaiting = 32
)

// awaitsLocked reports whether a caller waits for the next board, although there is one: it is too old, the last scan was
// quick, and no scan has been running for longer than a quick one.
func (b *boards) awaitsLocked(k *kept, q *store.SumsQuery, now time.Time) bool {
	return k.done != nil && now.Sub(k.intact) > tooOld*b.ageLocked(k, q) &&
		k.took <= nextWithin && now.Sub(b.since) < nextWithin && b.waiting < maxWaiting
}

// next waits for the next board, for half of the caller's time at most: the other half is for the answer. It returns the present board
// after the wait, or have if that was forgotten meanwhile.
func (b *boards) next(ctx context.Context, k *kept, have *board.Board, done <-chan struct{}) *board.Board {
	within := nextWithin
	if deadline, ok := ctx.Deadline(); ok {
		within = min(within, time.Until(deadline)/2)
	}
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting--
	return cmp.Or(k.board, have)
}
