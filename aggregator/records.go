package aggregator

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"
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
	newer, older map[string]int
}

func newRecords(store Recorder, keys, first, remember int) *records {
	return &records{store: store, keys: keys, first: first, half: max(remember/2, 1), newer: make(map[string]int)}
}

// learned counts what a call of learn cost.
type learned struct{ read, raised int }

// learn returns the number of shards of each add's counter, and makes sure first that
// each has a record that names them: a reader that does not know of a shard would not
// add it up.
func (r *records) learn(ctx context.Context, adds []Add) ([]int, learned, error) {
	shards := make([]int, len(adds))
	unknown := r.recall(adds, shards)
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

// recall fills in what is remembered and returns the positions of the others.
func (r *records) recall(adds []Add, shards []int) (unknown []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range adds {
		n, ok := r.newer[adds[i].Counter]
		if !ok {
			if n, ok = r.older[adds[i].Counter]; ok {
				r.rememberLocked(strings.Clone(adds[i].Counter), n)
			}
		}
		if shards[i] = n; !ok {
			unknown = append(unknown, i)
		}
	}
	return unknown
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
	for i, at := range positions {
		// The name is cut from a message: keep a copy, or the message stays in memory.
		r.rememberLocked(strings.Clone(names[i]), shards[at])
	}
	return len(raises), nil
}

func (r *records) rememberLocked(counter string, shards int) {
	if len(r.newer) >= r.half {
		r.older, r.newer = r.newer, make(map[string]int, r.half)
	}
	r.newer[counter] = shards
}
