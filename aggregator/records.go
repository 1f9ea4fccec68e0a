package aggregator

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// records remembers how many shards counters have. It is bounded: when the newer half
// is full, the older half is forgotten; what is used again moves to the newer half. And it
// is bounded in time: a record that was asked for store.RememberFor ago is asked for again, as its
// counter may have been deleted, and swept a day after that. A fold that goes by an older
// one could write a shard that no record names, and nobody reads.
type records struct {
	store store.Records
	keys  int // per call
	first int // shards of a counter without a record
	half  int
	limit time.Duration // of a look-up and the raise after it; 0: none
	aging *aging

	mu           sync.Mutex
	newer, older *names
}

// nameRoom is how many bytes a remembered counter's name may have on average. Where they
// are longer fewer are remembered.
const nameRoom = 48

// contendedFor is the same for a commit that was given up because of others. They may know
// of more shards, and no shard has told: then records are looked at again, not more often
// than this.
const contendedFor = 5 * time.Second

func newRecords(st store.Records, keys, first, remember int, aging *aging) *records {
	return &records{
		store: st, keys: keys, first: first, half: max(remember/2, 1), aging: aging,
		newer: newNames(), older: newNames(),
	}
}

// learned counts what a call of learn cost.
type learned struct{ read, raised int }

// learn returns the number of shards of each add's counter, and makes sure first that
// each has a record that names them: a reader that does not know of a shard would not
// add it up. The adds are of shard 0.
// What was asked for longer ago than young is asked for again.
func (r *records) learn(ctx context.Context, adds []store.ShardDelta, young time.Duration) (known, learned, error) {
	k, unknown := r.recall(adds, young)
	var cost learned
	for chunk := range slices.Chunk(unknown, r.keys) {
		raised, err := r.ensure(ctx, adds, k.shards, chunk)
		cost.read += len(chunk)
		cost.raised += raised
		if err != nil {
			return known{}, cost, err
		}
	}
	return k, cost, nil
}

// known is what a commit goes by.
type known struct {
	shards []int // of each add's counter
	asked  age   // when the first of them was asked for
}

// tooOld reports whether a record that was asked for then has to be asked for again.
func (r *records) tooOld(asked, now age) bool {
	return now-asked >= age(store.RememberFor/time.Second)
}

// guess is learn for a store that takes raises in its folds: what is not remembered has
// the first number of shards, and a raise to that, in case. After the fold, and not
// before, they can be remembered.
func (r *records) guess(adds []store.ShardDelta) (known, []store.Growth) {
	k, unknown := r.recall(adds, store.RememberFor)
	growths := make([]store.Growth, len(unknown))
	for i, at := range unknown {
		k.shards[at] = r.first
		growths[i] = store.Growth{Counter: adds[at].Counter, Shards: r.first}
	}
	slices.SortFunc(growths, func(a, b store.Growth) int { return strings.Compare(a.Counter, b.Counter) })
	return k, growths
}

// remember notes that counters had records at that age.
func (r *records) remember(growths []store.Growth, at age) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range growths {
		r.rememberLocked(wire.HashCounter(growths[i].Counter), growths[i].Counter, growths[i].Shards, at)
	}
}

// recall returns what is remembered and not too old, 0 shards for what is not, and the
// positions of those.
func (r *records) recall(adds []store.ShardDelta, young time.Duration) (k known, unknown []int) {
	now := r.aging.age()
	k = known{shards: make([]int, len(adds)), asked: now}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range adds {
		a := &adds[i]
		n, asked := r.newer.get(a.Hash, a.Counter)
		if n == 0 {
			if n, asked = r.older.get(a.Hash, a.Counter); n > 0 {
				r.rememberLocked(a.Hash, a.Counter, n, asked)
			}
		}
		if n == 0 || now-asked >= age(young/time.Second) {
			unknown = append(unknown, i)
			continue
		}
		k.shards[i], k.asked = n, min(k.asked, asked)
	}
	return k, unknown
}

// ensure looks the records at positions up and writes the missing ones.
func (r *records) ensure(ctx context.Context, adds []store.ShardDelta, shards, positions []int) (raised int, err error) {
	names := make([]string, len(positions))
	for i, at := range positions {
		names[i] = adds[at].Counter
	}
	if r.limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.limit)
		defer cancel()
	}
	asked := r.aging.age()
	found, err := r.store.Shards(ctx, names)
	if err != nil {
		return 0, err
	}
	var growths []store.Growth
	for i, at := range positions {
		if shards[at] = found[i]; found[i] == 0 {
			shards[at] = r.first
			growths = append(growths, store.Growth{Counter: names[i], Shards: r.first})
		}
	}
	if len(growths) > 0 {
		// No fold before the raise is durable: nobody reads a shard that no record names.
		if err := r.store.Grow(ctx, growths); err != nil {
			return 0, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, at := range positions {
		r.rememberLocked(adds[at].Hash, adds[at].Counter, shards[at], asked)
	}
	return len(growths), nil
}

func (r *records) rememberLocked(hash uint64, counter string, shards int, asked age) {
	if r.newer.n >= r.half || len(r.newer.text) >= min(nameRoom*r.half, maxNameText) {
		r.older, r.newer = r.newer, r.older
		r.newer.clear()
	}
	r.newer.put(hash, counter, shards, asked)
}
