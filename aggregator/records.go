package aggregator

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// records remembers the number of shards of counters. Its size is bounded: when the newer half is
// full, the older half is forgotten; a counter that is used moves to the newer half.
//
// Its age is bounded too: a record is read again after store.RememberFor, because its counter may
// have been deleted, and is swept a day after that. A fold by an older record could write a shard
// that no record names, and readers would ignore it.
type records struct {
	store store.Records
	keys  int // the most keys of one call
	first int // shards of a counter without a record
	half  int
	limit time.Duration // time for a look-up and the growth after it; 0 for no limit
	aging *aging

	mu           sync.Mutex
	newer, older *names
	forgotten    int // calls of forget
}

// nameRoom is the average length of a remembered name, in bytes. Fewer counters are remembered if
// their names are longer.
const nameRoom = 48

// contendedFor replaces store.RememberFor after a commit ended with ErrContended. Such a commit
// gets no ShardStats, but the others may know of more shards. So the records are read again, at
// most this often.
const contendedFor = 5 * time.Second

func newRecords(st store.Records, keys, first, remember int, aging *aging) *records {
	return &records{
		store: st, keys: keys, first: first, half: max(remember/2, 1), aging: aging,
		newer: newNames(), older: newNames(),
	}
}

// learned counts the records that a call has read and written.
type learned struct{ read, raised int }

// learn returns the number of shards of each add's counter. First it makes sure that each counter
// has a record, because readers ignore a shard that no record names. It reads records again that
// were read longer than young ago. All adds have Shard 0.
func (r *records) learn(ctx context.Context, adds []store.ShardDelta, young time.Duration) (known, learned, error) {
	k, unknown := r.recall(adds, young)
	var cost learned
	for chunk := range slices.Chunk(unknown, r.keys) {
		raised, err := r.ensure(ctx, adds, &k, chunk)
		cost.read += len(chunk)
		cost.raised += raised
		if err != nil {
			return known{}, cost, err
		}
	}
	return k, cost, nil
}

// known has the records that a commit relies on.
type known struct {
	shards    []int // by add
	asked     age   // age at which the oldest of them was read
	forgotten int   // records.forgotten then
}

// tooOld reports whether a record that was read at the age asked must be read again.
func (r *records) tooOld(asked, now age) bool {
	return now-asked >= age(store.RememberFor/time.Second)
}

// guess replaces learn for a store with Limits.GrowsInFold. A counter that is not remembered is
// assumed to have the first number of shards, and gets a growth to that number in the commit. The
// commit's success, and nothing before it, makes the record remembered.
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

// remember notes that counters had these records at the age at, unless all were forgotten since.
func (r *records) remember(growths []store.Growth, at age, forgotten int) {
	// In the order of their hashes: recall then reads the text of names from beginning to end.
	type place struct {
		hash uint64
		at   int
	}
	places := make([]place, len(growths))
	for i := range growths {
		places[i] = place{wire.HashCounter(growths[i].Counter), i}
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.hash, b.hash) })
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.forgotten != forgotten {
		return
	}
	for _, p := range places {
		r.rememberLocked(p.hash, growths[p.at].Counter, growths[p.at].Shards, at)
	}
}

// recall returns the remembered numbers of shards, 0 for unknown counters, and the positions of
// the unknown ones.
func (r *records) recall(adds []store.ShardDelta, young time.Duration) (k known, unknown []int) {
	now := r.aging.age()
	k = known{shards: make([]int, len(adds)), asked: now}
	r.mu.Lock()
	defer r.mu.Unlock()
	k.forgotten = r.forgotten
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

// ensure looks up the records at positions and writes the missing ones.
func (r *records) ensure(ctx context.Context, adds []store.ShardDelta, k *known, positions []int) (raised int, err error) {
	shards := k.shards
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
		// No fold before the growth is durable: readers ignore a shard that no record names.
		if err := r.store.Grow(ctx, growths); err != nil {
			return 0, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.forgotten != k.forgotten {
		return len(growths), nil
	}
	for _, at := range positions {
		r.rememberLocked(adds[at].Hash, adds[at].Counter, shards[at], asked)
	}
	return len(growths), nil
}

// forget forgets all records, also the ones that calls under way are reading.
func (r *records) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.newer.clear()
	r.older.clear()
	r.forgotten++
}

func (r *records) rememberLocked(hash uint64, counter string, shards int, asked age) {
	if r.newer.n >= r.half || len(r.newer.text) >= min(nameRoom*r.half, maxNameText) {
		r.older, r.newer = r.newer, r.older
		r.newer.clear()
	}
	r.newer.put(hash, counter, shards, asked)
}
