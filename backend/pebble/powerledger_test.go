package pebble

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countmill/countmill/store"
	sums "github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/wire"
)

// An outcome is the caller's knowledge of a deed.
type outcome int

const (
	unknown outcome = iota // not answered, or answered with an unknown outcome: it may be done
	done                   // answered, or seen after a cut: it stays for ever
	absent                 // missing after a cut: it never appears by itself
)

// A deed is a fold or a stored dead letter. After each cut the test looks for its traces.
type deed struct {
	id      int
	commit  *store.Commit
	hot     int64 // its delta for the hot counter
	letter  *store.DeadLetter
	outcome outcome
}

// counter is the counter to which only this fold adds.
func (d *deed) counter() string { return fmt.Sprintf("fold-%d", d.id) }

// A ledger is the knowledge of a store's callers. It records nothing that happens after the power cut.
type ledger struct {
	mu    sync.Mutex
	cut   bool
	id    string // the database's id
	deeds []*deed
	next  int
	set   store.Settings // the newest settings that were answered

	forgetBefore atomic.Pointer[time.Time] // that an aggregator knows
}

// do records that the deed begins, performs it, and records its outcome. It returns false after the
// cut.
func (l *ledger) do(d *deed, how func() (outcome, error)) (bool, error) {
	l.mu.Lock()
	if l.cut {
		l.mu.Unlock()
		return false, nil
	}
	d.outcome = unknown
	if !slices.Contains(l.deeds, d) {
		l.deeds = append(l.deeds, d)
	}
	l.mu.Unlock()
	got, err := how()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.cut {
		d.outcome = got
	}
	return !l.cut, err
}

func (l *ledger) number() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	return l.next
}

// hotCounter is in nearly every fold, wideCounter has many shards.
const (
	hotCounter  = "hot"
	wideCounter = "wide"
)

func addTo(counter string, shard int, delta int64) store.ShardDelta {
	return store.NewShardDelta(counter, shard, delta)
}

// look reads the settings, which moves ForgetBefore, as an aggregator does.
func (l *ledger) look(ctx context.Context, s *Store) (store.Settings, error) {
	checked, err := s.Check(ctx)
	l.forgetBefore.Store(&checked.Settings.ForgetBefore)
	return checked.Settings, err
}

// newFold draws a fold: a few counters or hundreds, with or without markers, and perhaps on a further
// shard.
func (l *ledger) newFold(random *rand.Rand) *deed {
	d := &deed{id: l.number(), hot: random.Int64N(1000) - 500, commit: &store.Commit{}}
	c := d.commit
	c.Adds = append(c.Adds, addTo(d.counter(), 0, 1))
	if d.hot != 0 {
		c.Adds = append(c.Adds, addTo(hotCounter, 0, d.hot))
	}
	if random.IntN(4) == 0 {
		c.Adds = append(c.Adds, addTo(wideCounter, d.id, 1))
	}
	if random.IntN(8) == 0 {
		for n := range 20 + random.IntN(200) {
			c.Adds = append(c.Adds, addTo(fmt.Sprintf("%s-%d-%s", "filler", n, strings.Repeat("x", random.IntN(200))), 0, 1))
		}
	}
	slices.SortFunc(c.Adds, func(a, b store.ShardDelta) int { return cmpAdds(a, b) })
	if random.IntN(2) == 0 {
		at := l.forgetBefore.Load().Add(time.Duration(random.IntN(200)) * time.Hour)
		for range 1 + random.IntN(3) {
			m := store.Marker{Fingerprint: wire.Fingerprint(d.id), Fold: uint64(d.id), At: at}
			for i := range m.ID {
				m.ID[i] = byte(random.Uint32())
			}
			c.Markers = append(c.Markers, m)
		}
	}
	return d
}

func cmpAdds(a, b store.ShardDelta) int {
	if a.Order != b.Order {
		if a.Order < b.Order {
			return -1
		}
		return 1
	}
	return strings.Compare(a.Counter, b.Counter)
}

// fold applies a fold as an aggregator does: it writes the record first, and takes an existing marker
// as proof that the fold was applied.
func (l *ledger) fold(ctx context.Context, s *Store, d *deed) (bool, error) {
	return l.do(d, func() (outcome, error) {
		for _, a := range d.commit.Adds {
			if a.Shard > 0 {
				if err := s.Grow(ctx, []store.Growth{{Counter: a.Counter, Shards: a.Shard + 1}}); err != nil {
					return unknown, err
				}
			}
		}
		_, err := s.Fold(ctx, d.commit)
		if errors.Is(err, store.ErrMarkerExists) {
			err = nil
		}
		if err != nil {
			return unknown, err
		}
		return done, nil
	})
}

// ask looks up a fold by its markers. Every marker that it finds is on disk. A marker that it does not find
// proves nothing: another worker may have begun the same fold since.
func (l *ledger) ask(ctx context.Context, s *Store, d *deed) (bool, error) {
	found, err := s.Applied(ctx, []wire.PartID{d.commit.Markers[0].ID})
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.cut && err == nil && len(found) > 0 {
		d.outcome = done
	}
	return !l.cut, err
}

func (l *ledger) bury(ctx context.Context, s *Store, random *rand.Rand) (bool, error) {
	n := l.number()
	letter := store.DeadLetter{Key: fmt.Sprintf("letter-%06d", n), Source: "x", Reason: "drawn", Payload: make([]byte, random.IntN(5000))}
	for i := range letter.Payload {
		letter.Payload[i] = byte(random.Uint32())
	}
	return l.do(&deed{id: n, letter: &letter}, func() (outcome, error) {
		return done, s.PutDeadLetters(ctx, []store.DeadLetter{letter})
	})
}

// setWindow draws a window.
func (l *ledger) setWindow(ctx context.Context, s *Store, random *rand.Rand) (bool, error) {
	set, err := s.SetWindow(ctx, time.Duration(1+random.IntN(8))*day)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.cut && err == nil && set.Version > l.set.Version {
		l.set = set
	}
	return !l.cut, err
}

// unsettled draws a fold with markers and without an answer, or nil: a bus would deliver its message
// again. A part from before ForgetBefore is refused.
func (l *ledger) unsettled(random *rand.Rand) *deed {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*deed
	oldest := *l.forgetBefore.Load()
	for _, d := range l.deeds {
		if d.commit != nil && len(d.commit.Markers) > 0 && d.outcome != done && !d.commit.Markers[0].At.Before(oldest) {
			all = append(all, d)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[random.IntN(len(all))]
}

// check compares the ledger with a store that was opened after a cut, and settles unknown outcomes. It
// returns all differences.
//
// Nothing else may use the store meanwhile. check takes the lock at its end only. The recorder of the
// cut takes the lock too, from within the store, which may hold a lock that closing a view needs.
func (l *ledger) check(ctx context.Context, s *Store) (wrong []string, err error) {
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if l.id != "" && s.ID() != l.id {
		complain("the database was %s and is %s", l.id, s.ID())
	}
	got, err := l.look(ctx, s)
	if err != nil {
		return nil, err
	}
	if got.Version < l.set.Version || got.Version == l.set.Version && got.Window != l.set.Window {
		complain("the settings were %+v and are %+v", l.set, got)
	}
	view := s.View()
	defer view.Close()
	letters, err := s.ListDeadLetters(ctx, "", 1<<20)
	if err != nil {
		return nil, err
	}
	var hot int64
	top := 0 // the most shards of a fold that is there
	settled := make(map[*deed]outcome)
	for _, d := range l.deeds {
		got := absent
		if d.letter != nil {
			at := slices.IndexFunc(letters, func(x store.DeadLetter) bool { return x.Key == d.letter.Key })
			if at >= 0 {
				got = done
				if !bytes.Equal(letters[at].Payload, d.letter.Payload) {
					complain("%s has other bytes", d.letter.Key)
				}
			}
		} else if got, err = l.checkFold(ctx, s, view, d, complain); err != nil {
			return nil, err
		}
		if d.outcome != unknown && got != d.outcome {
			complain("deed %d (markers: %t): it was %s and is %s", d.id, d.commit != nil && len(d.commit.Markers) > 0, d.outcome, got)
		}
		settled[d] = got
		if got == done && d.commit != nil {
			hot += d.hot
			for _, a := range d.commit.Adds {
				top = max(top, a.Shard+1)
			}
		}
	}
	values, err := view.Lookup(ctx, []store.Key{{Counter: hotCounter}})
	if err != nil {
		return nil, err
	}
	if values[0].Count != sums.Of(hot) {
		complain("the hot counter is %d, but the folds that are there add %d", values[0].Count, hot)
	}
	shards, err := s.Shards(ctx, []string{wideCounter})
	if err != nil {
		return nil, err
	}
	if top > 1 && shards[0] < top {
		complain("a record names %d shards, a fold that is there used %d", shards[0], top)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.cut { // otherwise this was the machine before the cut
		l.id = s.ID()
		for d, got := range settled {
			d.outcome = got
		}
	}
	return wrong, nil
}

// checkFold wants a fold completely or not at all: each of its adds and each of its markers.
func (l *ledger) checkFold(ctx context.Context, s *Store, view store.View, d *deed, complain func(string, ...any)) (outcome, error) {
	keys := []store.Key{{Counter: d.counter()}}
	for _, a := range d.commit.Adds {
		if a.Counter == wideCounter {
			keys = append(keys, store.Key{Counter: a.Counter, Shard: a.Shard})
		}
	}
	values, err := view.Lookup(ctx, keys)
	if err != nil {
		return unknown, err
	}
	count := int64(values[0].Count.Lo)
	for i, v := range values {
		if int64(v.Count.Lo) != count {
			complain("fold %d: %v has %d, %v has %d", d.id, keys[0], count, keys[i], v.Count)
		}
	}
	ids := make([]wire.PartID, len(d.commit.Markers))
	for i, m := range d.commit.Markers {
		ids[i] = m.ID
	}
	found, err := s.Applied(ctx, ids)
	if err != nil {
		return unknown, err
	}
	forgotten := len(ids) > 0 && d.commit.Markers[0].At.Add(store.MarkerSlack).Before(*l.forgetBefore.Load())
	if want := int(count) * len(ids); len(found) != want && !(forgotten && len(found) == 0) {
		complain("fold %d is there %d times, with %d of %d markers", d.id, count, len(found), len(ids))
	}
	switch count {
	case 0:
		return absent, nil
	case 1:
		return done, nil
	}
	complain("fold %d is there %d times", d.id, count)
	return done, nil
}

func (o outcome) String() string { return [...]string{"unknown", "there", "not there"}[o] }
