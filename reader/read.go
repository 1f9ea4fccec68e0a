package reader

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// A reading reads several counters in one view, and so at one moment.
type reading struct {
	r        *Reader
	view     store.View
	partials []*partial
	pending  []store.Key // requested and not looked up
	owner    map[string]*partial
}

// read reads distinct counters at one moment, and returns the moment.
func (r *Reader) read(ctx context.Context, counters []string) (*reading, time.Time, error) {
	// A database that was wiped or replaced has totals too, and they are wrong.
	if err := r.checkStore(ctx); err != nil {
		return nil, time.Time{}, err
	}
	began := r.clock.Moment()
	view := r.store.View()
	defer view.Close()
	rd := r.newReading(view)
	for _, c := range counters {
		rd.ask(c)
	}
	if err := rd.run(ctx); err != nil {
		return nil, time.Time{}, err
	}
	r.clock.Learn(view.ReadTime(), began)
	return rd, view.ReadTime(), r.checkRead(ctx, rd, view.ReadTime())
}

// readTotals reads the totals of distinct counters at one moment. A total that does not fit 64 bits has Overflow.
func (r *Reader) readTotals(ctx context.Context, counters []string) ([]Total, error) {
	rd, at, err := r.read(ctx, counters)
	if err != nil {
		return nil, err
	}
	totals := make([]Total, len(rd.partials))
	for i, t := range rd.partials {
		total, err := t.total()
		if err != nil {
			r.stats.overflows.Add(1)
			total = Total{Counter: t.counter, Source: SourceStore, Shards: t.shards, Exists: true, Overflow: true}
		}
		total.AsOf = at
		totals[i] = total
	}
	return totals, nil
}

// Sum reads one counter's record and shards from the store, at a moment that is not before the
// call. Its errors are those of Totals, but for overflows.
func (r *Reader) Sum(ctx context.Context, counter string) (store.Sum, error) {
	if err := countmill.CheckName(counter); err != nil {
		return store.Sum{}, err
	}
	if err := r.checkGroups(ctx, []string{counter}); err != nil {
		return store.Sum{}, err
	}
	rd, at, err := r.read(ctx, []string{counter})
	if err != nil {
		return store.Sum{}, err
	}
	// The sum and the moment are of one view: a reset relies on both.
	t := rd.partials[0]
	return store.Sum{Exists: t.exists, Sum: t.sum, ResetState: t.reset, At: at}, nil
}

func (r *Reader) newReading(view store.View) *reading {
	return &reading{r: r, view: view, owner: make(map[string]*partial)}
}

// ask requests a counter's record and its remembered number of shards.
func (rd *reading) ask(counter string) { rd.askOf(&partial{counter: counter}) }

func (rd *reading) askOf(t *partial) {
	rd.adopt(t)
	rd.pending = append(rd.pending, store.Key{Counter: t.counter, Shard: store.RecordKey})
	n, ok := rd.r.shards.Get(t.counter)
	if !ok {
		n = rd.r.cfg.Guess
	}
	rd.askShards(t, n)
}

// askRecorded requests the shards of a counter whose record was read in this view.
func (rd *reading) askRecorded(rec store.Record) error {
	t := &partial{counter: rec.Counter}
	if err := t.takeRecord(store.Value{Exists: true, Shards: rec.Shards, Reset: rec.Reset, Remainder: rec.Remainder}); err != nil {
		return err
	}
	rd.adopt(t)
	rd.askShards(t, t.shards)
	return nil
}

func (rd *reading) adopt(t *partial) {
	rd.partials = append(rd.partials, t)
	rd.owner[t.counter] = t
}

// askShards requests the shards below n that were not requested before.
func (rd *reading) askShards(t *partial, n int) {
	for ; t.asked < n; t.asked++ {
		rd.pending = append(rd.pending, store.Key{Counter: t.counter, Shard: t.asked})
	}
}

// run looks up keys until none is pending: requested keys, and the shards that a record names
// beyond the remembered number. All look-ups use one view. Without that a total could show a state that never existed:
//
//	reader      looks up record (2 shards), shard 0, shard 1
//	aggregator  grows it to 3, folds +5 to shard 2 and -5 to another counter in one commit
//	reader      looks up the other counter: the -5 without the +5
func (rd *reading) run(ctx context.Context) error {
	for len(rd.pending) > 0 {
		n := min(len(rd.pending), store.LookupKeys)
		keys := rd.pending[:n:n]
		values, err := rd.r.lookup(ctx, rd.view, keys)
		if err != nil {
			return err
		}
		rd.pending = rd.pending[n:]
		// The keys that take requests next are looked up in the same view.
		if err := rd.take(keys, values); err != nil {
			return err
		}
	}
	return nil
}

// take notes the answers, and requests the shards that they show to be missing.
func (rd *reading) take(keys []store.Key, values []store.Value) error {
	for i, key := range keys {
		t := rd.owner[key.Counter]
		if err := t.take(key.Shard, values[i]); err != nil {
			return err
		}
		// The record decides how many shards there are: a remembered number may be old.
		if key.Shard == store.RecordKey {
			rd.r.remember(t)
			rd.askShards(t, t.shards)
		}
	}
	return nil
}

// remember keeps the number of shards for the next read. It is only a hint: the record is read
// every time, so an outdated number costs a look-up and never an increment.
func (r *Reader) remember(t *partial) {
	if !t.exists {
		r.shards.Remove(t.counter)
		return
	}
	if n, ok := r.shards.Get(t.counter); !ok || n != t.shards {
		r.shards.Add(strings.Clone(t.counter), t.shards) // the name is cut from a request, and would keep all of it in memory
	}
}

// lookup makes one look-up, and counts it.
func (r *Reader) lookup(ctx context.Context, view store.View, keys []store.Key) (values []store.Value, err error) {
	err = r.call(ctx, len(keys), "looking up shards", func(ctx context.Context) (err error) {
		r.stats.lookups.Add(1)
		r.stats.keys.Add(int64(len(keys)))
		values, err = view.Lookup(ctx, keys)
		if err == nil && len(values) != len(keys) {
			err = fmt.Errorf("the store answered %d of %d keys", len(values), len(keys))
		}
		return err
	})
	return values, err
}

// call calls the store for about n keys, within Config.Timeout. The time has the wait for its turn in it.
func (r *Reader) call(ctx context.Context, n int, doing string, read func(context.Context) error) error {
	call, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	err := r.semaphore.enter(call, n)
	if errors.Is(err, countmill.ErrUnavailable) {
		return err
	}
	if err == nil {
		defer r.semaphore.leave(n)
		err = read(call)
	}
	if err != nil {
		return r.storeError(ctx, doing, err)
	}
	return nil
}

// storeError wraps a store's error in countmill.ErrUnavailable, unless the caller gave up: then
// the store did not fail.
func (r *Reader) storeError(ctx context.Context, doing string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%s: %w", doing, context.Canceled)
	}
	r.stats.storeErrors.Add(1)
	return fmt.Errorf("%w: %s: %w", countmill.ErrUnavailable, doing, err)
}
