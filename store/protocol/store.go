package protocol

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
)

// Config fits a store to its process.
type Config struct {
	// Window is the deduplication window of a new database. Default countmill.DefaultDedupWindow.
	Window time.Duration
	// Create allows Open to make the meta row in a database that several processes share. Otherwise Open refuses one without it.
	Create bool
	// Shards is the number of shards of a new counter. Default 1.
	Shards int
	// Clock is the machine's wall clock. Age is how long the process has run; setting the clock does not change it. Default those
	// of package time.
	Clock func() time.Time
	Age   func() time.Duration
	// Jitter returns a random duration below another one. Default rand.N.
	Jitter func(time.Duration) time.Duration
	// Ring bounds the buckets of a shard, where rows cost money. Default store.SeriesBuckets and so on.
	Ring store.Ring
	// Logger gets messages for a person. Default none.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Window, c.Shards = cmp.Or(c.Window, countmill.DefaultDedupWindow), cmp.Or(c.Shards, 1)
	if c.Clock == nil {
		c.Clock = func() time.Time { return time.Now().Round(0) } // without the monotonic reading, which does not count a suspension
	}
	if c.Age == nil {
		began := time.Now()
		c.Age = func() time.Duration { return time.Since(began) }
	}
	if c.Jitter == nil {
		c.Jitter = rand.N[time.Duration]
	}
	if c.Ring == (store.Ring{}) {
		c.Ring = store.Ring{Buckets: store.SeriesBuckets, Window: store.SeriesRing, Minutes: store.SeriesMinutes}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

// A Store keeps counters in an engine.
type Store struct {
	engine engine.Engine
	cfg    Config
	limits engine.Limits
	facts  facts
	identity

	gate     *semaphore.Weighted // of folds and checks; a change of settings takes it whole, where the process is alone
	machine  machineSettings
	known    atomic.Pointer[knownMeta]
	closed   atomic.Bool
	folds    sync.Pool     // of *fold
	changes  atomic.Uint64 // calls that may have changed sums
	crowded  crowded
	recent   recent
	rounds   rounds
	journal  journal
	restores atomic.Int64 // engine.Checked.Restores
}

const wholeGate = math.MaxInt64

// Open opens the store in the database of an engine, and makes its meta row if it has none and if it may. Close closes the engine too,
// and an error of Open leaves it open.
func Open(ctx context.Context, e engine.Engine, cfg Config) (*Store, error) {
	s := &Store{engine: e, cfg: cfg.withDefaults(), limits: e.Limits(), gate: semaphore.NewWeighted(wholeGate)}
	s.facts = factsOf(&s.limits)
	switch f := &s.facts; {
	case f.machineClock && !s.limits.Exclusive:
		return nil, fmt.Errorf("%w: an engine without Limits.Exclusive needs Limits.Clock", store.ErrDeployment)
	case !s.limits.ByName && !f.daysFirst:
		return nil, fmt.Errorf("%w: an engine with Limits.Spread or RowsCost needs Limits.ByName", store.ErrDeployment)
	}
	if err := s.openMeta(ctx); err != nil {
		return nil, err
	}
	if err := s.resume(ctx); err != nil {
		return nil, err
	}
	_ = s.forgetWorkers(ctx) // a full disk may refuse: they are late for ten minutes then
	if _, err := s.Check(ctx); err != nil && !errors.Is(err, store.ErrReadOnly) {
		return nil, err
	}
	return s, nil
}

const (
	// keepAfter is a move of ForgetBefore that the next process makes up for within seconds.
	keepAfter    = 10 * time.Minute
	closeTimeout = 5 * time.Second
)

// Close closes the engine. Processes that each end before their first sweep would all begin at the same ForgetBefore.
func (s *Store) Close() error {
	if s.facts.machineClock {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_, _, _ = s.keepForgetBefore(ctx, keepAfter)
	}
	s.closed.Store(true)
	return s.engine.Close()
}

// certain marks errors after which a change was not made and a caller may say so.
func certain(err error) error {
	for _, nothing := range []error{store.ErrDeployment, store.ErrRefused, engine.ErrConflict} {
		if errors.Is(err, nothing) {
			return fmt.Errorf("%w: %w", countmill.ErrUnavailable, err)
		}
	}
	return err
}

// attempts is how often transact begins when others change the same rows meanwhile.
const attempts = 16

// transact is Transact, repeated after a conflict: nothing was applied then. do runs once in each attempt, and makes its
// results anew. A process that was suspended meanwhile changes nothing: its caller has looked at the settings before, and
// the marker of an id may be gone. So the clock is read after the rows: the suspension may come in any call, and in a pause.
func (s *Store) transact(ctx context.Context, soft bool, do func(tx engine.Tx) error) error {
	began := s.cfg.Clock()
	late := func() bool { return s.cfg.Clock().Sub(began) > store.MaxTransaction }
	for attempt := 1; ; attempt++ {
		_, err := s.engine.Transact(ctx, soft, func(tx engine.Tx) error {
			err := do(tx)
			switch {
			case err == nil && late():
				err = fmt.Errorf("%w: the process was suspended", engine.ErrConflict)
			case err != nil && errors.Is(err, ctx.Err()):
				err = engine.NotApplied(err) // the time was over while do was reading
			}
			return err
		})
		if !errors.Is(err, engine.ErrConflict) {
			return err
		}
		if attempt == attempts || late() {
			return fmt.Errorf("%w: %w", store.ErrContended, err)
		}
		if !clock.Sleep(ctx, s.cfg.Jitter(time.Millisecond<<min(attempt, 6))) {
			return engine.NotApplied(ctx.Err())
		}
	}
}

// commit applies changes in order, in as few commits as the limits allow. They may be repeated, and need not be applied together.
func (s *Store) commit(ctx context.Context, soft bool, changes []engine.Change) error {
	for len(changes) > 0 {
		n, size := 0, 0
		for n < len(changes) && (n < s.limits.Rows || s.limits.Rows == 0) {
			size += len(changes[n].Data) + len(changes[n].Key.Name) + 100
			if n > 0 && (s.limits.Bytes > 0 && size > s.limits.Bytes || changes[n-1].Key.Compare(changes[n].Key) >= 0) {
				break
			}
			n++
		}
		if _, err := s.engine.Commit(ctx, &engine.Commit{Changes: engine.Changes(changes[:n]...), Soft: soft}); err != nil {
			return err
		}
		changes = changes[n:]
	}
	return nil
}

// A reader is a view or a transaction.
type reader interface {
	Get(ctx context.Context, keys []engine.Key, fields ...engine.FieldID) ([]engine.Row, error)
}

// each reads any number of rows and visits them, in lots that the engine takes. A bad row is an error.
func (s *Store) each(ctx context.Context, from reader, keys []engine.Key, fields []engine.FieldID, visit func(i int, r *engine.Row)) error {
	for at := 0; at < len(keys); {
		rows, err := from.Get(ctx, keys[at:min(at+s.limits.Keys, len(keys))], fields...)
		if err != nil {
			return err
		}
		for i := range rows {
			r := &rows[i]
			r.Key = keys[at+i]
			if err := notBad(r); err != nil {
				return err
			}
			visit(at+i, r)
		}
		at += len(rows)
	}
	return nil
}

// get is each that keeps all rows.
func (s *Store) get(ctx context.Context, from reader, keys []engine.Key, fields ...engine.FieldID) ([]engine.Row, error) {
	all := make([]engine.Row, len(keys))
	return all, s.each(ctx, from, keys, fields, func(i int, r *engine.Row) { all[i] = *r })
}

func notBad(r *engine.Row) error {
	if r.Bad == "" {
		return nil
	}
	return fmt.Errorf("row %q of kind %s: %s", r.Key.Name, Kinds[r.Key.Kind].Name, r.Bad)
}

// keyOf copies the key of a row of a scan, which is the engine's.
func keyOf(r *engine.Row) engine.Key {
	key := r.Key
	key.Name = strings.Clone(key.Name)
	return key
}

// scan reads a range. A bad row is an error, which ends it.
func (s *Store) scan(ctx context.Context, v engine.View, r engine.Range, fields ...engine.FieldID) iter.Seq2[*engine.Row, error] {
	return func(yield func(*engine.Row, error) bool) {
		rows := v.Scan(ctx, r, fields...)
		defer rows.Close()
		for row := rows.Next(); row != nil; row = rows.Next() {
			err := notBad(row)
			if !yield(row, err) || err != nil {
				return
			}
		}
		if err := rows.Err(); err != nil {
			yield(nil, err)
		}
	}
}

// now returns the time of a transaction after its first read. An exclusive engine has moments, which come after all earlier
// ones, also if the clock was set back.
func (s *Store) now(tx engine.Tx) time.Time {
	if s.limits.Exclusive {
		return s.engine.Moment()
	}
	return tx.Now()
}

// field makes a narrow field.
func field(id engine.FieldID, n int64) engine.Field {
	return engine.Field{ID: id, Value: engine.IntOf(n)}
}

// micros returns a time as a number; 0 for the zero time.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// timeOf is the opposite of micros.
func timeOf(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}
