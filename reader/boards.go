package reader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/reader/board"
	"github.com/countmill/countmill/store"
)

const (
	// maxBoards bounds the boards that are kept. A board has 8 bytes for each counter, and its candidates.
	maxBoards = 32

	// ownBoards is the most boards with one owner, so that other callers have room.
	ownBoards = 16

	// boardsKept is how long a board stays that nobody asks for.
	boardsKept = 10 * time.Minute

	// scanShare and perKey: scans for one board take at most one part in so many of a processor's time. A scan
	// of many keys is repeated less often than every BoardAge. perKey is about the cost of a key with Pebble
	// (BenchmarkBoards). How long a scan took says less: others use the machine too.
	scanShare = 10
	perKey    = 500 * time.Nanosecond
)

// ErrNoBoards is the answer of Top and Rank where scans cost money and no rate was set.
var ErrNoBoards = errors.New("no boards are made of this store: its operator has set no --board-rate")

// boards are the boards that somebody has asked for lately. A board is made again only when somebody asks for
// it, it is older than BoardAge, and a sum has changed. The old one serves in the meantime, unless it is too old and
// the next one will be there soon (nextboard.go). One scan runs at a time.
type boards struct {
	r       *Reader
	ctx     context.Context // of scans
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	kept     map[boardKey]*kept
	scanning bool
	since    time.Time         // when the scan that runs began
	waiting  int               // how many callers wait for the next board
	queue    []*kept           // whose scans are due
	turns    uint64            // scans that have begun
	last     map[string]uint64 // the turn of each caller's last scan
}

// A boardKey identifies a board. The window of a board that slides moves on.
type boardKey struct {
	index    int64
	groups   bool
	slides   bool
	from, to int32
}

// A kept is a board, or the wait for the first one.
type kept struct {
	board  *board.Board  // nil before the first scan, or if it is too old
	err    error         // of the last scan
	began  time.Time     // of the last scan that ended
	took   time.Duration // by that scan
	intact time.Time     // when the board began, or was last seen to lack no change
	asked  time.Time
	done   chan struct{} // closed at the end of the scan that is due or runs; nil without one
	turn   chan struct{} // closed when that scan may run
	owner  string        // the caller who asked for the board first
	waits  int           // how many wait for a board while there is none
}

func newBoards(r *Reader) *boards {
	b := &boards{r: r, kept: make(map[boardKey]*kept), last: make(map[string]uint64)}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// Close ends the scans of Top and Rank, and waits for their end. Later calls of them get no new boards.
func (r *Reader) Close() {
	r.boards.mu.Lock()
	r.boards.cancel()
	r.boards.mu.Unlock()
	r.boards.running.Wait()
}

// get returns a board for the query of a caller. It waits for the first board. awaitsLocked
// decides whether it waits for the next.
func (b *boards) get(ctx context.Context, q store.SumsQuery, slides bool, by *BoardQuery) (*board.Board, error) {
	key := boardKey{index: q.Index.Number, groups: q.Groups, slides: slides, from: int32(q.From), to: int32(q.To)}
	if slides {
		key.from = 0
	}
	if q.Rate = 0; !b.r.store.Risen(&q, store.RiseMark{}).Known {
		if q.Rate = float64(b.r.cfg.BoardRate); q.Rate == 0 {
			return nil, ErrNoBoards
		}
	}
	k, have, done, err := b.look(key, q, slides, by)
	switch {
	case err != nil:
		return nil, err
	case have == nil:
		return b.first(ctx, k, done)
	case done != nil:
		return b.next(ctx, k, have, done), nil
	}
	return have, nil
}

// first waits for the first board.
func (b *boards) first(ctx context.Context, k *kept, done <-chan struct{}) (*board.Board, error) {
	defer b.leave(k)
	select {
	case <-done:
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, fmt.Errorf("waiting for the first board: %w", context.Canceled)
		}
		return nil, fmt.Errorf("%w: the first board is not made yet: %w", countmill.ErrUnavailable, ctx.Err())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case k.board != nil:
		return k.board, nil
	case k.err != nil:
		return nil, k.err
	}
	return nil, fmt.Errorf("%w: the board was given up", countmill.ErrUnavailable)
}

func (b *boards) leave(k *kept) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k.waits--
}

// look returns the board that there is, and the end of the scan for which the caller waits: with first if there is no
// board, with next otherwise. Without such an end it does not wait. look begins a scan if one is due.
func (b *boards) look(key boardKey, q store.SumsQuery, slides bool, by *BoardQuery) (*kept, *board.Board, <-chan struct{}, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	k := b.kept[key]
	if k == nil {
		if err := b.makeRoomLocked(now, by.Caller); err != nil {
			return nil, nil, nil, err
		}
		k = &kept{owner: by.Caller}
		b.kept[key] = k
	}
	if idle := now.Sub(k.asked) > boardsKept; k.done == nil && b.ctx.Err() == nil && b.dueLocked(k, &q, now) {
		if idle && q.Rate == 0 {
			k.board = nil // its names are of another time; where scans are slow they serve all the same
		}
		k.done, k.turn = make(chan struct{}), make(chan struct{})
		if b.queue = append(b.queue, k); !b.scanning {
			b.nextLocked()
		}
		b.running.Go(func() { b.scan(k, q, slides) })
	}
	switch k.asked = now; {
	case k.board == nil:
		if k.waits++; k.done == nil { // the last scan has just failed
			ended := make(chan struct{})
			close(ended)
			return k, nil, ended, nil
		}
	case by.AtOnce || !b.awaitsLocked(k, &q, now):
		return k, k.board, nil, nil
	default:
		b.waiting++
	}
	return k, k.board, k.done, nil
}

// nextLocked gives the turn to a scan that is due: to that of the caller whose last scan was the longest ago.
func (b *boards) nextLocked() {
	if b.scanning = len(b.queue) > 0; !b.scanning {
		clear(b.last)
		return
	}
	at := 0
	for i, k := range b.queue {
		if b.last[k.owner] < b.last[b.queue[at].owner] {
			at = i
		}
	}
	k := b.queue[at]
	b.queue = slices.Delete(b.queue, at, at+1)
	b.turns++
	b.last[k.owner], b.since = b.turns, time.Now()
	close(k.turn)
}

// dueLocked reports whether a new scan is worth its price.
func (b *boards) dueLocked(k *kept, q *store.SumsQuery, now time.Time) bool {
	if k.board == nil {
		return k.err == nil || now.Sub(k.began) >= time.Second
	}
	if now.Sub(k.began) < b.ageLocked(k, q) {
		return false
	}
	if k.board.Slides || b.r.store.Risen(q, k.board.Mark).Changed {
		return true
	}
	k.intact = now
	return false
}

// ageLocked is the age at which a board is made again.
func (b *boards) ageLocked(k *kept, q *store.SumsQuery) time.Duration {
	if q.Rate > 0 {
		return b.r.cfg.BoardAge
	}
	return max(b.r.cfg.BoardAge, scanShare*time.Duration(k.board.Read)*perKey)
}

// makeRoomLocked makes room for one more board. It forgets boards that nobody asks for, and the least recently used board if there
// are too many, of this caller or of all.
func (b *boards) makeRoomLocked(now time.Time, caller string) error {
	var last, own struct {
		n     int
		key   boardKey
		asked time.Time
	}
	last.asked, own.asked = now, now
	for key, k := range b.kept {
		if k.done == nil && now.Sub(k.asked) > boardsKept {
			delete(b.kept, key)
			continue
		}
		last.n++
		if k.done == nil && k.asked.Before(last.asked) {
			last.key, last.asked = key, k.asked
		}
		if caller == "" || k.owner != caller {
			continue
		}
		own.n++
		if k.done == nil && k.asked.Before(own.asked) {
			own.key, own.asked = key, k.asked
		}
	}
	switch {
	case own.n >= ownBoards && own.asked.Equal(now):
		return fmt.Errorf("%w: %d boards are being made for this caller", countmill.ErrOverloaded, ownBoards)
	case own.n >= ownBoards:
		delete(b.kept, own.key)
	case last.n >= maxBoards && last.asked.Equal(now):
		return fmt.Errorf("%w: %d boards are being made", countmill.ErrOverloaded, maxBoards)
	case last.n >= maxBoards:
		delete(b.kept, last.key)
	}
	return nil
}

// scan makes a board, when it is its turn and if somebody still waits for it or has an older one.
func (b *boards) scan(k *kept, q store.SumsQuery, slides bool) {
	var made *board.Board
	var err error
	began := time.Now()
	select {
	case <-k.turn:
		if began = time.Now(); b.wanted(k) {
			made, err = b.make(q, slides)
		}
	case <-b.ctx.Done():
		err = b.ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	k.began, k.took, k.err = began, time.Since(began), err
	if made != nil {
		k.board, k.intact = made, began
	}
	close(k.done)
	k.done = nil
	if b.ctx.Err() == nil {
		b.nextLocked()
	}
}

func (b *boards) wanted(k *kept) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return k.board != nil || k.waits > 0
}

func (b *boards) make(q store.SumsQuery, slides bool) (*board.Board, error) {
	builder := board.NewBuilder(q, slides, b.r.cfg.boardSize)
	began := time.Now()
	sums, err := b.r.store.Sums(b.ctx, &q, func(c *store.CounterSum) error {
		builder.Add(c)
		return nil
	})
	b.r.stats.scans.Add(1)
	b.r.stats.scanned.Add(sums.Read)
	log := b.r.cfg.Logger.With("index", q.Index.Name, "groups", q.Groups, "read", sums.Read)
	if err != nil {
		if b.ctx.Err() == nil {
			b.r.stats.storeErrors.Add(1)
			log.LogAttrs(b.ctx, slog.LevelWarn, "a scan for a board failed; the board before it serves on", slog.Any("err", err))
		}
		return nil, fmt.Errorf("%w: scanning for a board: %w", countmill.ErrUnavailable, err)
	}
	log.LogAttrs(b.ctx, slog.LevelDebug, "board made", slog.Duration("took", time.Since(began)))
	return builder.Board(sums), nil
}
