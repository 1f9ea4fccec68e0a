// Package indexer builds, checks and deletes indexes, while everything runs. How App Engine does it is
// the model: an index is built by many small ranges of work that leave no harm when they are done twice
// (see store.Index and store.IndexRange).
//
//	created             ranges are made
//	building            each range is read after Index.Since, and its remainders are set
//	serving             when every range was; then ranges are read again, now and then
//	deleting            the grouped parts are removed, range by range, then the groups, then the ranges
//
// Workers need no coordination but the ranges themselves. A worker leases a range, and nobody else takes
// it until the lease is over. A worker that was stopped for longer than its lease loses the
// range: the round of the range has changed, so its remainders are refused. A range whose lease ran out before it
// was read was perhaps too large, and is split in two.
//
// App Engine split a range of rows into n that each scan all of it, and take a row if hash(key) mod n is theirs.
// Here shards are stored in the order of a hash, their place. So the halves of a range are ranges of places: as
// even as by mod n, and no shard is scanned twice.
package indexer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/countmill/countmill/store"
)

// Store is the part of a store that an Indexer needs.
type Store interface {
	store.Indexing
	Limits() store.Limits
	Check(ctx context.Context) (store.Checked, error)
	ChangeRules(ctx context.Context, change store.RuleChange) (store.Settings, error)
}

// Stats count the work of an Indexer.
type Stats struct {
	// Shards, Ranges and Remainders count the shards and ranges read and the remainders set.
	Shards, Ranges, Remainders int64
	// Corrected counts the remainders that a later reading of a range has changed: increments were folded
	// without an index that was complete.
	Corrected int64
	// Failures counts the steps of Run that ended with an error. Run repeats them.
	Failures int64
	// Building, Serving and Deleting are the indexes in that state when the worker last looked.
	Building, Serving, Deleting int64
}

// An Indexer works at the indexes of one database. Its methods may be called concurrently.
type Indexer struct {
	store Store
	cfg   Config
	poked chan struct{}

	shards, ranges, remainders, corrected, failures atomic.Int64
	building, serving, deleting                     atomic.Int64
	failing                                         atomic.Pointer[error] // of the last step; nil before the first
}

// New returns an Indexer. It does nothing before Run or Step.
func New(s Store, cfg Config) *Indexer {
	return &Indexer{store: s, cfg: cfg.withDefaults(), poked: make(chan struct{}, 1)}
}

// Stats returns the counts so far.
func (x *Indexer) Stats() Stats {
	return Stats{
		Shards: x.shards.Load(), Ranges: x.ranges.Load(), Remainders: x.remainders.Load(), Corrected: x.corrected.Load(), Failures: x.failures.Load(),
		Building: x.building.Load(), Serving: x.serving.Load(), Deleting: x.deleting.Load(),
	}
}

// Ready returns why the last step of Run failed; nil if it did not.
func (x *Indexer) Ready() error {
	if err := x.failing.Load(); err != nil {
		return *err
	}
	return errBegins
}

var errBegins = errors.New("the worker has not read the rules yet")

// Poke makes Run look for work now.
func (x *Indexer) Poke() {
	select {
	case x.poked <- struct{}{}:
	default:
	}
}

// Run works until ctx ends. After an error it tries again later.
func (x *Indexer) Run(ctx context.Context) {
	fails := 0
	for ctx.Err() == nil {
		worked, err := x.Step(ctx)
		x.failing.Store(&err)
		wait := x.cfg.Every
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			x.failures.Add(1)
		}
		switch {
		case worked:
			continue
		case err != nil:
			fails++
			wait = x.cfg.env.Backoff(fails, x.cfg.Every, 32*x.cfg.Every)
			x.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "index work failed, will try again", slog.Any("err", err), slog.Duration("in", wait))
		default:
			fails = 0
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-x.poked:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// Step does one range of work, and reports whether there was any. After an error the range is done
// again, by this worker or by another one. The error may be about one index, and the work for
// another.
func (x *Indexer) Step(ctx context.Context) (worked bool, err error) {
	w, err := x.look(ctx)
	if err != nil || w.rules == nil {
		return false, err
	}
	for _, index := range byNeed(w.rules) {
		worked, failed := x.work(ctx, w, index)
		switch {
		case errors.Is(failed, store.ErrChanged), errors.Is(failed, store.ErrNoIndex):
			return true, nil // another worker was first
		case errors.Is(failed, errEarly):
		case failed != nil: // the work for another index may succeed
			err = cmp.Or(err, fmt.Errorf("index %q: %w", index.Name, failed))
		case worked:
			return true, err
		}
	}
	return false, err
}

// byNeed returns the indexes in the order of work: unfinished ones first, and then by their last check, the oldest first. Checks can take longer than Config.Recheck, at a low Config.Rate, and are then always due.
func byNeed(rules *store.Rules) []*store.Index {
	indexes := make([]*store.Index, len(rules.Indexes))
	for i := range indexes {
		indexes[i] = &rules.Indexes[i]
	}
	slices.SortStableFunc(indexes, func(a, b *store.Index) int {
		switch {
		case a.Finished() == b.Finished():
			return a.Checked.Compare(b.Checked)
		case b.Finished():
			return -1
		}
		return 1
	})
	return indexes
}

// errEarly: the store's clock shows an earlier time than the one of its last Check.
var errEarly = errors.New("the index does not hold yet")

// A work is the knowledge of a step.
type work struct {
	rules *store.Rules
	asked time.Time // the store's time when it had these rules
	heard time.Time // when its answer came, by the machine
}

// at is the store's time now, or a little earlier.
func (w *work) at() time.Time { return w.asked.Add(time.Since(w.heard)) }

func (x *Indexer) look(ctx context.Context) (*work, error) {
	ctx, cancel := context.WithTimeout(ctx, x.cfg.CallTimeout)
	defer cancel()
	asked, began := x.moment(), time.Now()
	checked, err := x.store.Check(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the rules: %w", err)
	}
	w := &work{checked.Settings.Rules, checked.At, time.Now()}
	x.count(w.rules)
	if w.asked.IsZero() { // the store's clock is the machine's
		w.asked, w.heard = asked, began
	}
	return w, nil
}

// moment is the store's time where its clock is the machine's: a moment of its views, if it gives them out
// (backend.Moments). These are ahead of a clock that was set back, and so are Index.Since and the times of pages.
func (x *Indexer) moment() time.Time {
	if m, ok := x.store.(interface{ Moment() time.Time }); ok {
		return m.Moment()
	}
	return x.cfg.env.Now()
}

// count counts the indexes by their states.
func (x *Indexer) count(rules *store.Rules) {
	var building, serving, deleting int64
	if rules != nil {
		for i := range rules.Indexes {
			switch r := &rules.Indexes[i]; {
			case !r.InForce():
				deleting++
			case r.Serving.IsZero():
				building++
			default:
				serving++
			}
		}
	}
	x.building.Store(building)
	x.serving.Store(serving)
	x.deleting.Store(deleting)
}

// work does one range of work for an index.
func (x *Indexer) work(ctx context.Context, w *work, index *store.Index) (bool, error) {
	if x.idle(index, w.at()) {
		return false, nil
	}
	ranges, err := x.allRanges(ctx, index)
	if err != nil {
		return false, err
	}
	now := w.at()
	switch {
	case len(ranges) == 0:
		return true, x.swap(ctx, nil, firstRanges(index.Number, x.cfg.Ranges))
	case !now.After(since(index)):
		return false, nil
	}
	oldest, all := readSince(ranges, since(index))
	switch {
	case !all:
	case !index.InForce():
		return true, x.remove(ctx, index, ranges)
	case index.Serving.IsZero(), x.cfg.Recheck > 0 && oldest.Sub(index.Checked) >= x.cfg.Recheck: // although some may be due again
		return true, x.serve(ctx, index, oldest)
	}
	if p := x.next(ranges, index, now); p != nil {
		return true, x.take(ctx, w, index, ranges, *p)
	}
	if all && oldest.After(index.Checked) {
		return true, x.serve(ctx, index, oldest)
	}
	return false, nil // or others are at work
}

// readSince returns when the oldest range was read, and reports whether all were read after since.
func readSince(ranges []store.IndexRange, since time.Time) (oldest time.Time, all bool) {
	oldest = ranges[0].Read
	for i := range ranges {
		if p := &ranges[i]; p.Read.Before(oldest) {
			oldest = p.Read
		}
	}
	return oldest, oldest.After(since)
}

// next returns the range to work at: the free and due range whose last read is the oldest. It returns nil if there is none.
func (x *Indexer) next(ranges []store.IndexRange, index *store.Index, now time.Time) (next *store.IndexRange) {
	for i := range ranges {
		p := &ranges[i]
		isFree := p.Worker == "" || p.Worker == x.cfg.WorkerID || !now.Before(p.Until)
		if isFree && x.due(p, index, now) && (next == nil || p.Read.Before(next.Read)) {
			next = p
		}
	}
	return next
}

// since is the moment after which the ranges are read, or their grouped parts removed. Before it, commits
// by older rules may come, and for a deleted index readers that serve its groups, and workers that
// build it.
func since(index *store.Index) time.Time {
	at := index.Since
	if ended := index.Ended.Add(store.SettingsMaxAge); !index.InForce() && ended.After(at) {
		at = ended
	}
	return at
}

// idle reports whether the index is built, and none of its ranges is old. It costs no call of the store.
func (x *Indexer) idle(index *store.Index, now time.Time) bool {
	return index.InForce() && !index.Serving.IsZero() && (x.cfg.Recheck <= 0 || now.Sub(index.Checked) < x.cfg.Recheck)
}

// due reports whether the range must be read.
func (x *Indexer) due(p *store.IndexRange, index *store.Index, now time.Time) bool {
	if !p.Read.After(since(index)) {
		return true
	}
	return index.InForce() && x.cfg.Recheck > 0 && now.Sub(p.Read) >= x.cfg.Recheck
}

func (x *Indexer) allRanges(ctx context.Context, index *store.Index) ([]store.IndexRange, error) {
	ctx, cancel := context.WithTimeout(ctx, x.cfg.CallTimeout)
	defer cancel()
	ranges, err := x.store.Ranges(ctx, index.Number)
	if err != nil {
		return nil, fmt.Errorf("listing the ranges of index %q: %w", index.Name, err)
	}
	slices.SortFunc(ranges, func(a, b store.IndexRange) int { return cmp.Compare(a.ID, b.ID) })
	return ranges, nil
}

// firstRanges divides all places evenly.
func firstRanges(index int64, n int) []store.IndexRange {
	ranges := make([]store.IndexRange, n)
	size := math.MaxUint64/uint64(n) + 1
	if n == 1 {
		size = 0
	}
	for i := range ranges {
		ranges[i] = store.IndexRange{Index: index, ID: i + 1, From: uint64(i) * size, To: uint64(i+1)*size - 1}
	}
	ranges[n-1].To = math.MaxUint64
	return ranges
}

func (x *Indexer) swap(ctx context.Context, old, next []store.IndexRange) error {
	ctx, cancel := context.WithTimeout(ctx, x.cfg.CallTimeout)
	defer cancel()
	return x.store.SwapRanges(ctx, old, next)
}

// take leases a range and does its work, or splits it.
func (x *Indexer) take(ctx context.Context, w *work, index *store.Index, ranges []store.IndexRange, p store.IndexRange) error {
	lost := p.Worker != "" && p.Worker != x.cfg.WorkerID
	if lost && p.Read.IsZero() && !p.Retired && index.InForce() && len(ranges) < store.MaxRanges && p.From < p.To {
		x.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "a range of an index is split: its worker was lost", slog.String("index", index.Name),
			slog.Int("range", p.ID), slog.String("worker", p.Worker))
		return x.split(ctx, ranges, p, p.From+(p.To-p.From)/2)
	}
	leased := p
	leased.Worker, leased.Until, leased.Round = x.cfg.WorkerID, w.at().Add(x.cfg.Lease), p.Round+1
	if err := x.swap(ctx, []store.IndexRange{p}, []store.IndexRange{leased}); err != nil {
		return err
	}
	h := &holding{x: x, w: w, index: index, p: leased}
	if !index.InForce() {
		return h.drop(ctx)
	}
	return h.read(ctx)
}

// split retires a range, and makes two of it: up to last, and the remainder. A retired range gives back the
// remainders that its worker may have set. It stays as long as the index: a worker that was stopped before it
// made the first ranges must find that they were made.
func (x *Indexer) split(ctx context.Context, ranges []store.IndexRange, p store.IndexRange, last uint64) error {
	id := ranges[len(ranges)-1].ID
	retired := store.IndexRange{Index: p.Index, ID: p.ID, Retired: true, Round: p.Round + 1}
	return x.swap(ctx, []store.IndexRange{p}, []store.IndexRange{
		retired,
		{Index: p.Index, ID: id + 1, From: p.From, To: last},
		{Index: p.Index, ID: id + 2, From: last + 1, To: p.To},
	})
}

// serve notes that every range was read.
func (x *Indexer) serve(ctx context.Context, index *store.Index, checked time.Time) error {
	change := store.IndexChange{Step: store.ServeIndex, Index: store.Index{Name: index.Name, Number: index.Number, Checked: checked}}
	if err := x.change(ctx, change); err != nil {
		return err
	}
	if index.Serving.IsZero() {
		x.cfg.Logger.LogAttrs(ctx, slog.LevelInfo, "index built", slog.String("index", index.Name))
		x.cfg.OnRules(ctx)
	}
	return nil
}

func (x *Indexer) change(ctx context.Context, c store.IndexChange) error {
	ctx, cancel := context.WithTimeout(ctx, x.cfg.CallTimeout)
	defer cancel()
	_, err := x.store.ChangeRules(ctx, store.RuleChange{Index: &c})
	return err
}
