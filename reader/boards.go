package reader

import (
	"cmp"
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
	// maxBoards bounds the boards that are kept. A board has 24 bytes for each counter, 32 after a Rank, and the names of the best.
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

	// tooOld: an answer waits for the next board if nobody has asked for so many times the board's age. A job that asks every
	// few minutes would otherwise get the board of its last run. quick is the most that a scan takes which is worth the wait: a
	// million counters take 1.2 s with Pebble (BenchmarkBoards).
	tooOld = 2
	quick  = 2 * time.Second
)

// ErrNoBoards is the answer of Top and Rank where scans cost money and no rate was set.
var ErrNoBoards = errors.New("no boards are made of this store: its operator has set no --board-rate")

// boards are the boards that somebody has asked for lately. A board is made again only when somebody asks for
// it, it is older than BoardAge, and a sum has changed. The old one serves in the meantime, unless it is too old and
// the next one will be there soon. One scan runs at a time.
type boards struct {
	r       *Reader
	ctx     context.Context // of scans
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	kept     map[boardKey]*kept
	scanning bool
	since    time.Time         // when the scan that runs began
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
	board *board.Board  // nil before the first scan
	err   error         // of the last scan
	began time.Time     // of the last scan that ended
	took  time.Duration // by that scan
	asked time.Time
	late  bool          // the board is too old, and the scan that is due or runs is worth the wait
	done  chan struct{} // closed at the end of the scan that is due or runs; nil without one
	turn  chan struct{} // closed when that scan may run
	owner string        // the caller who asked for the board first
	waits int           // how many wait for the scan
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

// get returns a board for the query of a caller. It waits for the first board, and for the next one if the last is too old.
func (b *boards) get(ctx context.Context, q store.SumsQuery, by *BoardQuery) (*board.Board, error) {
	key := boardKey{index: q.Index.Number, groups: q.Groups, slides: by.Window.slides(), from: int32(q.From), to: int32(q.To)}
	if key.slides {
		key.from = 0
	}
	if _, known := b.r.store.Changes(); !known && b.r.cfg.BoardRate >= 0 {
		if q.Rate = float64(b.r.cfg.BoardRate); q.Rate == 0 {
			return nil, ErrNoBoards
		}
	}
	k, have, done, err := b.look(key, q, by)
	if done == nil {
		return have, err
	}
	defer b.leave(k)
	select {
	case <-done:
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, fmt.Errorf("waiting for a board: %w", context.Canceled)
		}
		return nil, fmt.Errorf("%w: the board is not made yet: %w", countmill.ErrUnavailable, ctx.Err())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return k.board, k.failed()
}

// failed returns why there is no board, or nil if there is one.
func (k *kept) failed() error {
	if k.board != nil {
		return nil
	}
	return cmp.Or(k.err, fmt.Errorf("%w: the board was given up", countmill.ErrUnavailable))
}

func (b *boards) leave(k *kept) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k.waits--
}

// look returns the board that there is, or the end of the scan for which the caller waits. It begins a scan if one is due.
func (b *boards) look(key boardKey, q store.SumsQuery, by *BoardQuery) (*kept, *board.Board, <-chan struct{}, error) {
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
	if k.done == nil && b.ctx.Err() == nil && b.dueLocked(k, &q, now) {
		k.late = k.board != nil && now.Sub(k.asked) > tooOld*b.ageLocked(k, &q) && k.took <= quick
		k.done, k.turn = make(chan struct{}), make(chan struct{})
		if b.queue = append(b.queue, k); !b.scanning {
			b.nextLocked()
		}
		b.running.Go(func() { b.scan(k, q, by.Window) })
	}
	switch k.asked = now; {
	case k.board == nil && k.done == nil: // the last scan has just failed
		return nil, nil, nil, k.failed()
	case k.board == nil, k.late && now.Sub(b.since) < quick:
		k.waits++
		return k, nil, k.done, nil
	}
	return k, k.board, nil, nil
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
	switch {
	case k.board == nil:
		return k.err == nil || now.Sub(k.began) >= time.Second
	case now.Sub(k.began) < b.ageLocked(k, q):
		return false
	}
	n, known := b.r.store.Changes()
	return !known || n != k.board.Changes || q.From != k.board.Query.From
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
func (b *boards) scan(k *kept, q store.SumsQuery, w Window) {
	var made *board.Board
	var err error
	began := time.Now()
	select {
	case <-k.turn:
		if began = time.Now(); b.wanted(k) {
			made, err = b.make(q, w)
		}
	case <-b.ctx.Done():
		err = b.ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	k.began, k.took, k.err, k.late = began, time.Since(began), err, false
	if made != nil && err == nil {
		k.board = made
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

func (b *boards) make(q store.SumsQuery, w Window) (*board.Board, error) {
	if w.slides() { // on, while the scan waited for its turn
		q.From, q.To = w.bounds(b.r.clock.Now())
	}
	builder := board.NewBuilder(q, b.r.cfg.boardSize)
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
	made := builder.Board(sums)
	return made, b.check(made, w)
}

// check refuses a board whose window, or index, had ended when its scan began: the wait for its turn can be longer than the groups of an
// index stay after its end.
func (b *boards) check(made *board.Board, w Window) (err error) {
	q := &made.Query
	if w.step != (Step{}) {
		if _, to := w.bounds(made.At); to != q.To {
			return fmt.Errorf("%w: the window has ended before its board was made", countmill.ErrUnavailable)
		}
	}
	if !q.Groups {
		return nil
	}
	if err := b.r.askStore(b.ctx); err != nil {
		return err
	}
	switch x := b.r.settings.Load().Rules.Index(q.Index.Name); {
	case x == nil || x.Number != q.Index.Number:
		return &NoIndexError{q.Index.Name}
	case !x.InForce():
		return &NotServingError{Group: q.Index.GroupPrefix() + "*", Index: x.Name, Deleting: true}
	case w != Window{}:
		made.Partial, err = b.r.lacksOverflow(b.ctx, w, x)
	}
	return err
}
