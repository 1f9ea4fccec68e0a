package aggregator

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countmill/countmill/wire"
)

// records remembers how many shards counters have. It is bounded: when the newer half
// is full, the older half is forgotten; what is used again moves to the newer half.
type records struct {
	store Recorder
	keys  int // per call
	first int // shards of a counter without a record
	half  int
	limit time.Duration // of a look-up and the raise after it; 0: none

	mu           sync.Mutex
	newer, older *names
}

// nameRoom is how many bytes a remembered counter's name may have on average. Where they
// are longer fewer are remembered.
const nameRoom = 48

func newRecords(store Recorder, keys, first, remember int) *records {
	return &records{
		store: store, keys: keys, first: first, half: max(remember/2, 1),
		newer: newNames(), older: newNames(),
	}
}

// learned counts what a call of learn cost.
type learned struct{ read, raised int }

// learn returns the number of shards of each add's counter, and makes sure first that
// each has a record that names them: a reader that does not know of a shard would not
// add it up. The adds are of shard 0.
func (r *records) learn(ctx context.Context, adds []Add) ([]int, learned, error) {
	shards, unknown := r.recall(adds)
	var cost learned
	for chunk := range slices.Chunk(unknown, r.keys) {
		raised, err := r.ensure(ctx, adds, shards, chunk)
		cost.read += len(chunk)
		cost.raised += raised
		if err != nil {
			return nil, cost, err
		}
	}
	return shards, cost, nil
}

// guess is learn for a store that takes raises in its folds: what is not remembered has
// the first number of shards, and a raise to that, in case. After the fold, and not
// before, they can be remembered.
func (r *records) guess(adds []Add) ([]int, []Raise) {
	shards, unknown := r.recall(adds)
	raises := make([]Raise, len(unknown))
	for i, at := range unknown {
		shards[at] = r.first
		raises[i] = Raise{Counter: adds[at].Counter, Shards: r.first}
	}
	slices.SortFunc(raises, func(a, b Raise) int { return strings.Compare(a.Counter, b.Counter) })
	return shards, raises
}

// remember notes that counters have records.
func (r *records) remember(raises []Raise) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range raises {
		r.rememberLocked(wire.HashCounter(raises[i].Counter), raises[i].Counter, raises[i].Shards)
	}
}

// recall returns what is remembered, 0 for what is not, and the positions of those.
func (r *records) recall(adds []Add) (shards, unknown []int) {
	shards = make([]int, len(adds))
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range adds {
		a := &adds[i]
		n := r.newer.get(a.Hash, a.Counter)
		if n == 0 {
			if n = r.older.get(a.Hash, a.Counter); n > 0 {
				r.rememberLocked(a.Hash, a.Counter, n)
			}
		}
		if shards[i] = n; n == 0 {
			unknown = append(unknown, i)
		}
	}
	return shards, unknown
}

// ensure looks the records at positions up and writes the missing ones.
func (r *records) ensure(ctx context.Context, adds []Add, shards, positions []int) (raised int, err error) {
	names := make([]string, len(positions))
	for i, at := range positions {
		names[i] = adds[at].Counter
	}
	if r.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.limit)
		defer cancel()
	}
	found, err := r.store.Shards(ctx, names)
	if err != nil {
		return 0, err
	}
	var raises []Raise
	for i, at := range positions {
		if shards[at] = found[i]; found[i] == 0 {
			shards[at] = r.first
			raises = append(raises, Raise{Counter: names[i], Shards: r.first})
		}
	}
	if len(raises) > 0 {
		if err := r.store.Raise(ctx, raises); err != nil {
			return 0, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range positions {
		r.rememberLocked(adds[at].Hash, adds[at].Counter, shards[at])
	}
	return len(raises), nil
}

func (r *records) rememberLocked(hash uint64, counter string, shards int) {
	if r.newer.n >= r.half || len(r.newer.text) >= min(nameRoom*r.half, maxNameText) {
		r.older, r.newer = r.newer, r.older
		r.newer.clear()
	}
	r.newer.put(hash, counter, shards)
}
