package rows

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/countmill/countmill/store/engine"
)

// moments order the views of this process. Snapshots of one server have an order: a later one shows more
// transactions that have ended. The time of BEGIN does not follow it, because the snapshot comes after BEGIN.
type moments struct {
	mu    sync.Mutex
	shown int64 // the number of ended transactions that a view has shown
	at    int64 // the latest moment
}

// give returns the moment of a view that began at a time and shows a number of transactions. It is false if an earlier view has
// shown more: the view then needs a later snapshot. force is for a server that has begun to count anew.
func (m *moments) give(at, shown int64, force bool) (moment int64, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case shown < m.shown && !force:
		return 0, false
	case shown == m.shown:
		m.at = max(m.at, at)
	default:
		m.at = max(m.at+1, at)
	}
	m.shown = shown
	return m.at, true
}

// after returns a time that is not before a moment that was given.
func (m *moments) after(at int64) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return max(m.at, at)
}

// A view is a repeatable-read transaction.
type view struct {
	e     *Engine
	slots chan struct{}

	mu    sync.Mutex
	taken []chan struct{} // of which it has a place each
	conn  *pgxpool.Conn   // nil before the first call, and after the end
	at    time.Time
	ended error
	stop  context.CancelFunc // of the call of expire
}

// View opens a view.
func (e *Engine) View() engine.View { return &view{e: e, slots: e.views} }

var errClosed = errors.New("postgres: closed")

// errStandby: a standby may lack commits that were acknowledged before its view began, and does not know the moment that it shows.
var errStandby = fmt.Errorf("%w: postgres: this server is a standby, and may lack the latest commits", engine.ErrNotApplied)

// ask runs statements in the view. The first call begins it; scans says that many may follow.
func (v *view) ask(ctx context.Context, scans bool, build func(*batch)) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended != nil {
		return v.ended
	}
	begun := v.conn != nil
	if !begun {
		if err := v.beginLocked(ctx, scans); err != nil {
			return err
		}
	}
	for attempt := 0; ; attempt++ {
		var at, shown int64
		var standby bool
		b := new(batch)
		if attempt > 0 {
			b.do("rollback")
		}
		if !begun {
			b.do("begin isolation level repeatable read read only")
			// A snapshot is xmin:xmax:the numbers of running transactions.
			b.want(nil, func(v [][]byte) error {
				at, shown, standby = int64Of(v[0])+epoch, int64Of(v[1]), v[2][0] != 0
				return nil
			}, `select now(), split_part(pg_current_snapshot()::text, ':', 2)::bigint - cardinality(string_to_array(split_part(pg_current_snapshot()::text, ':', 3), ',')),
				pg_is_in_recovery(), set_config('statement_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $1, true), `+ownNames, text(strconv.FormatInt(v.e.options.ViewTime.Milliseconds(), 10)))
		}
		build(b)
		_, err := b.run(ctx, v.conn.Conn().PgConn())
		if err != nil {
			if begun && ctx.Err() != nil && !v.conn.Conn().PgConn().IsClosed() {
				return err // nothing was sent
			}
			if refused := refusal(err, nil); !begun || errors.Is(refused, engine.ErrDeployment) {
				err = refused
			} else { // its snapshot is gone with its transaction
				err = fmt.Errorf("%w: %w", engine.ErrExpired, err)
			}
			if begun {
				v.ended = err
			}
			v.endLocked()
			return err
		}
		if begun {
			return nil
		}
		if standby {
			v.endLocked()
			return errStandby
		}
		if moment, ok := v.e.moments.give(at, shown, attempt == 3); ok {
			v.at = time.UnixMicro(moment).UTC()
			life, stop := context.WithTimeout(v.e.closing, v.e.options.ViewTime)
			end := context.AfterFunc(life, v.expire)
			v.stop = func() { end(); stop() }
			return nil
		}
	}
}

func (v *view) beginLocked(ctx context.Context, scans bool) error {
	all := []chan struct{}{v.e.scans, v.slots} // scans first: a view that waits for scans then holds no place of look-ups
	if !scans || v.slots != v.e.views {
		all = all[1:]
	}
	if err := ctx.Err(); err != nil {
		return notSent(err)
	}
	for _, slots := range all {
		select {
		case slots <- struct{}{}:
			v.taken = append(v.taken, slots)
		case <-ctx.Done():
			v.giveLocked()
			use := map[chan struct{}]string{v.e.views: "reads", v.e.scans: "scans", v.e.transacts: "transactions", v.e.checks: "checks"}[slots]
			return notSent(fmt.Errorf("all places for %s are in use: %w", use, ctx.Err()))
		}
	}
	conn, err := v.e.pool.Acquire(ctx)
	if err != nil {
		v.giveLocked()
		return notSent(err)
	}
	v.conn = conn
	return nil
}

func (v *view) giveLocked() {
	for _, slots := range v.taken {
		<-slots
	}
	v.taken = nil
}

func (v *view) endLocked() {
	if v.stop != nil {
		v.stop()
	}
	if v.conn != nil {
		release(v.conn)
		v.conn = nil
		v.giveLocked()
	}
}

func (v *view) end(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended == nil {
		v.ended = err
	}
	v.endLocked()
}

func (v *view) expire() {
	v.end(fmt.Errorf("%w: the view was open for %s, or the engine is closed", engine.ErrExpired, v.e.options.ViewTime))
}

// take ends the view, and returns its connection, which is in its transaction; nil if it has none.
func (v *view) take() *pgxpool.Conn {
	v.mu.Lock()
	defer v.mu.Unlock()
	conn := v.conn
	if conn != nil {
		v.stop()
		v.conn = nil
		v.giveLocked()
	}
	v.ended = errClosed
	return conn
}

// Close releases the view.
func (v *view) Close() { v.end(errors.New("postgres: the view is closed")) }

// At returns the moment.
func (v *view) At() time.Time {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.at
}

// Get reads rows by their keys.
func (v *view) Get(ctx context.Context, keys []engine.Key, fields ...engine.FieldID) ([]engine.Row, error) {
	return v.get(ctx, keys, fields, nil)
}

// get reads rows, and their versions if versions is not nil.
func (v *view) get(ctx context.Context, keys []engine.Key, fields []engine.FieldID, versions []int64) ([]engine.Row, error) {
	var rows []engine.Row
	err := v.ask(ctx, len(keys) == 0, func(b *batch) {
		rows = make([]engine.Row, len(keys))
		v.e.look(b, keys, fields, rows, versions)
	})
	for i := range rows {
		if err == nil && rows[i].Exists && v.e.tables[keys[i].Kind].kind.Class == engine.Once {
			return rows, v.e.confirm(ctx) // a repeat may be acknowledged because of it
		}
	}
	return rows, err
}

// look adds a statement for each kind of the keys.
func (e *Engine) look(b *batch, keys []engine.Key, fields []engine.FieldID, rows []engine.Row, versions []int64) {
	type group struct {
		keys []*array
		at   []int // positions in keys
	}
	groups := make([]group, len(e.tables))
	for i := range keys {
		g, t := &groups[keys[i].Kind], e.tables[keys[i].Kind]
		if g.keys == nil {
			g.keys = t.keyArrays()
		}
		t.appendKey(g.keys, &keys[i])
		g.at = append(g.at, i)
	}
	for kind := range groups {
		g, t := &groups[kind], e.tables[kind]
		if g.keys == nil {
			continue
		}
		s := t.selects(fields)
		// offset 0 keeps the look-ups apart: an index for each, independent of the planner's statistics.
		b.want(nil, func(values [][]byte) error {
			i := g.at[int64Of(values[0])-1]
			if versions != nil {
				versions[i] = int64Of(values[1])
			}
			s.scan(&rows[i], values[2:])
			return nil
		}, fmt.Sprintf("select s.ord, l.* from %s, lateral (select t.xmin%s from %s t where %s offset 0) l", t.from(), list(s.sql...), t.name, t.same()),
			params(g.keys)...)
	}
}
