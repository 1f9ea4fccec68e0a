package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/indexer"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/sequence"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/protocol"
	"github.com/countmill/countmill/wire"
)

// simStore is the store as a role of a process sees it: the real one of the process, whose engine parks.
type simStore struct {
	*protocol.Store
	db    *database
	p     *proc
	clock *accuracy // of an aggregator or a reader; nil for others, whose checks do not reach those two
}

var (
	_ aggregator.Store      = (*simStore)(nil)
	_ reader.Store          = (*simStore)(nil)
	_ admin.Store           = (*simStore)(nil)
	_ admin.JournalStore    = (*simStore)(nil)
	_ admin.DeadLetterStore = (*simStore)(nil)
	_ sequence.Store        = (*simStore)(nil)
	_ indexer.Store         = (*simStore)(nil)
)

// background is what calls of the simulator itself run under.
var background = context.Background()

// storeOf returns the store of p for a role.
func (db *database) storeOf(p *proc, clock *accuracy) *simStore {
	return &simStore{p.store, db, p, clock}
}

// openStore opens the store of a process.
func (db *database) openStore(p *proc) {
	e := db.openEngine()
	p.store = db.openWith(e, p.shards, p.n)
	if e, ok := e.(*twinEngine); ok {
		e.free = false
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	db.engines[e] = p
}

func (db *database) openWith(e engine.Engine, shards, n int) *protocol.Store {
	return must(protocol.Open(background, e, protocol.Config{
		Window: db.window1, Create: true, Shards: shards, Clock: db.storeNow, Age: db.age, Ring: db.ring, Jitter: db.newJitter(uint64(n)),
	}))
}

// Keys of the contexts of calls.
type (
	foldKey  struct{} // a *store.Commit
	resetKey struct{} // a *store.ResetRequest
	nameKey  struct{} // the name of a call in the trace: a string, or *lots
	indexKey struct{} // set by a worker of indexes
	aloneKey struct{} // set where the simulator calls the store of a process: it does not park
)

// named names the calls of an op.
func named(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, nameKey{}, name)
}

// Applied looks markers up.
func (s *simStore) Applied(ctx context.Context, ids []wire.PartID) ([]store.Marker, error) {
	return s.Store.Applied(named(ctx, "applied"), ids)
}

// Shards reads records.
func (s *simStore) Shards(ctx context.Context, counters []string) ([]int, error) {
	return s.Store.Shards(named(ctx, "shards"), counters)
}

// Fold folds. A person who decides about a letter folds a marker alone.
func (s *simStore) Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error) {
	if s.clock == nil {
		return s.Store.Fold(named(ctx, "decide"), c)
	}
	f := &store.Commit{
		Markers: slices.Clone(c.Markers), Adds: slices.Clone(c.Adds), KnownShards: slices.Clone(c.KnownShards), Buckets: slices.Clone(c.Buckets), Archive: c.Archive, Tally: c.Tally,
		Growths: slices.Clone(c.Growths), Grouped: slices.Clone(c.Grouped), Rules: c.Rules, Restores: c.Restores, Records: slices.Clone(c.Records), Rows: slices.Clone(c.Rows),
	}
	began := s.begins()
	folded, err := s.Store.Fold(context.WithValue(named(ctx, "fold"), foldKey{}, f), f)
	if err == nil && c.Tally > 0 { // a decision about a letter has none, and nobody looks at its time
		s.learns(began, folded.At)
	}
	return folded, err
}

// DeleteDeadLetters removes letters, for a person or after a replay.
func (s *simStore) DeleteDeadLetters(ctx context.Context, keys []string) error {
	if s.clock == nil {
		ctx = named(ctx, "discard")
	}
	return s.Store.DeleteDeadLetters(ctx, keys)
}

// Beat writes the worker's record.
func (s *simStore) Beat(ctx context.Context, worker store.Worker) error {
	s.db.mu.Lock()
	s.p.lag = worker.Lag
	s.db.mu.Unlock()
	s.p.checkExpiry(&worker)
	return s.Store.Beat(named(ctx, "announce"), worker)
}

// Workers reads them.
func (s *simStore) Workers(ctx context.Context) ([]store.Worker, error) {
	workers, err := s.Store.Workers(ctx)
	if err == nil {
		s.db.setClocks(func() { s.p.records = slices.Clone(workers) })
	}
	return workers, err
}

// Check reports whether this is still the database that was opened.
func (s *simStore) Check(ctx context.Context) (store.Checked, error) {
	if s.clock == nil {
		return s.Store.Check(named(ctx, "settings"))
	}
	s.p.asks()
	defer func() { s.p.answered(time.Now()) }()
	began, asked := s.db.wall(), s.begins()
	checked, err := s.Store.Check(named(ctx, "check"))
	if err == nil {
		checked.At = s.db.storeNow() // also where the store's clock is the machine's
		s.p.taught(began)
		s.learns(asked, checked.At)
	}
	s.p.hears(ctx, err)
	return checked, err
}

// ResetCounter resets for an operator.
func (s *simStore) ResetCounter(ctx context.Context, r store.ResetRequest) (store.ResetResult, error) {
	return s.Store.ResetCounter(context.WithValue(ctx, resetKey{}, &r), r)
}

// View opens a view: one that teaches a reader the store's time, or another.
func (s *simStore) View() store.View {
	if s.clock == nil {
		return s.Store.View()
	}
	return &view{View: s.Store.View(), s: s}
}

type view struct {
	store.View
	s     *simStore
	read  bool      // from
	began time.Time // the first call
}

func (v *view) Lookup(ctx context.Context, keys []store.Key) ([]store.Value, error) {
	return v.View.Lookup(v.begin(ctx, "lookup"), keys)
}

func (v *view) List(ctx context.Context, prefix, after string, limit int) ([]store.Record, error) {
	return v.View.List(v.begin(ctx, "list"), prefix, after, limit)
}

func (v *view) Series(ctx context.Context, of []store.Record, from, to wire.Minute) ([][]store.Bucket, error) {
	return v.View.Series(v.begin(ctx, "series"), of, from, to)
}

// begin notes when the first call began. The quicker the call, the more exact is the store's time in
// its answer.
func (v *view) begin(ctx context.Context, name string) context.Context {
	if v.read {
		return named(ctx, "further "+name)
	}
	v.read, v.began = true, v.s.db.wall()
	return context.WithValue(ctx, nameKey{}, &lots{name: name})
}

// lots are the calls of the first look-up of a view: the engine may take fewer keys. Only the first begins to read.
type lots struct {
	name  string
	begun bool
}

func (l *lots) next() string {
	if l.begun {
		return "further " + l.name
	}
	l.begun = true
	return l.name
}

// ReadTime is asked for when the reader learns from it, or has.
func (v *view) ReadTime() time.Time {
	v.s.p.taught(v.began)
	return v.View.ReadTime()
}

var errLost = fmt.Errorf("sim: the answer was lost: %w", context.DeadlineExceeded)
