package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/reader"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/internal/testing/sim/fakestore"
	"github.com/countmill/countmill/wire"
)

// A database is the store of a schedule: the fake one, whose answers get lost.
type database struct {
	*kernel
	store.Boards // of no schedule

	fake    *fakestore.Store
	watch   storeWatch
	swapped bool                        // another one has taken its place
	swept   map[string]int              // in which step each counter was swept last
	buried  map[string]store.DeadLetter // all letters that processes wrote, by key
	mover   *mover
}

// A storeWatch sees what reaches the store.
type storeWatch interface {
	// applied sees a commit after it was applied. called is the step in which p asked for it.
	applied(p *proc, c *store.Commit, called int)
	// reset sees the first application of a reset by operation by.
	reset(r *store.ResetRequest, done *store.ResetResult, by int)
	// removing comes before p removes dead letters, discarding before a person does.
	removing(p *proc, keys []string)
	discarding(keys []string)
	// forgetting comes before the store drops expired markers.
	forgetting()
	// gave sees values of a sequence that are given for the first time.
	gave(name string, t *store.Take, g store.Given)
	// ruled sees the rules after a step of an index.
	ruled(rules *store.Rules)
}

// simStore is the store as one process sees it.
type simStore struct {
	*database
	p     *proc
	clock *accuracy // of the role that has it
}

var (
	_ aggregator.Store = (*simStore)(nil)
	_ reader.Store     = (*simStore)(nil)
	_ admin.Store      = adminStore{}
)

var (
	errFenced = errors.New("sim: the process is dead")
	errLost   = fmt.Errorf("sim: the answer was lost: %w", context.DeadlineExceeded)
)

// background is what calls of the fake store run under: their time is the simulator's.
var background = context.Background()

func (s *simStore) Limits() store.Limits {
	l := s.fake.Limits()
	l.Commits, l.Shards = s.shape.commits, s.p.shards
	return l
}

func (s *simStore) Keys() int { return s.fake.Keys() }

// call parks for a call that changes nothing that outlives it, and does it when it is
// its turn. lost is the fault that loses it.
func (s *simStore) call(ctx context.Context, op string, key uint64, lost Fault, asks, found text, do func() error) (err error) {
	if !s.park(&step{p: s.p, op: op, key: key, ctx: ctx, asks: asks, gets: func() string { return answerText(err, found) }, run: func(f callEnd) {
		switch {
		case f == ended:
			err = fmt.Errorf("sim: no answer: %w", context.DeadlineExceeded)
		case f == killed:
		case s.away(StoreAway), s.strikes(lost):
			err = errLost
		case s.refused():
			err = errDeployment
		default:
			err = do()
		}
	}}) {
		return errFenced
	}
	return err
}

var errDeployment = fmt.Errorf("sim: %w: permission denied", store.ErrDeployment)

// change parks for a call that changes the store and may be repeated. A lost call may have had its
// effect, or have it later.
func (s *simStore) change(ctx context.Context, op string, key uint64, lost, answerLost, late Fault, asks text, do func() error) (err error) {
	if !s.park(&step{p: s.p, op: op, key: key, ctx: ctx, asks: asks, gets: func() string { return answerText(err, nil) }, run: func(f callEnd) {
		switch {
		case f != released:
			err = fmt.Errorf("sim: no answer: %w", context.DeadlineExceeded)
			s.maybe(do)
		case s.away(StoreAway):
			err = errLost
			s.maybe(do)
		case s.strikes(lost):
			err = errLost
		case s.strikes(answerLost):
			_ = do()
			err = errLost
		case late >= 0 && s.strikes(late):
			s.later(do)
			err = errLost
		case s.refused():
			err = errDeployment
		default:
			err = do()
		}
	}}) {
		return errFenced
	}
	return err
}

func idsKey(ids []wire.PartID) uint64 {
	var h xxhash.Digest
	h.Reset()
	for _, id := range ids {
		_, _ = h.Write(id[:])
	}
	return h.Sum64()
}

func stringsKey(names []string) uint64 {
	var h xxhash.Digest
	h.Reset()
	for _, name := range names {
		_, _ = h.WriteString(name)
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}

// Applied looks markers up.
func (s *simStore) Applied(ctx context.Context, ids []wire.PartID) (found []store.Marker, err error) {
	ids = slices.Clone(ids)
	err = s.call(ctx, "applied", idsKey(ids), LookupFails,
		func() string { return idsText(ids) }, func() string { return markersText(found) }, func() (err error) {
			found, err = s.fake.Applied(background, ids)
			if s.strikes(LookupBlank) {
				found = nil
			}
			return err
		})
	return found, err
}

// Shards reads records.
func (s *simStore) Shards(ctx context.Context, counters []string) (shards []int, err error) {
	counters = slices.Clone(counters)
	err = s.call(ctx, "shards", stringsKey(counters), LookupFails,
		joined(counters), func() string { return fmt.Sprint(shards) }, func() (err error) {
			shards, err = s.fake.Shards(background, counters)
			if s.strikes(LookupBlank) {
				clear(shards)
			}
			if err == nil {
				s.noteLookUp(s.p, counters, shards)
			}
			return err
		})
	return shards, err
}

// Grow writes records.
func (s *simStore) Grow(ctx context.Context, growths []store.Growth) error {
	growths = slices.Clone(growths)
	names := make([]string, len(growths))
	for i := range growths {
		names[i] = growths[i].Counter
	}
	return s.change(ctx, "grow", stringsKey(names), GrowthLost, GrowthAnswerLost, GrowthLate, func() string { return fmt.Sprint(growths) }, func() error {
		s.noteGrowth(growths)
		return s.fake.Grow(background, growths)
	})
}

// noteGrowth counts the records that are about to name more shards than they did.
func (db *database) noteGrowth(growths []store.Growth) {
	for _, r := range growths {
		if named := must(db.fake.Shards(background, []string{r.Counter}))[0]; named > 0 && named < r.Shards {
			db.Grown++
		}
	}
}

// PutDeadLetters writes dead letters.
func (s *simStore) PutDeadLetters(ctx context.Context, letters []store.DeadLetter) error {
	letters = slices.Clone(letters)
	keys := make([]string, len(letters))
	for i := range letters {
		keys[i] = letters[i].Key
	}
	return s.change(ctx, "bury", stringsKey(keys), DeadLetterLost, DeadLetterAnswerLost, -1, func() string { return deadLettersText(letters) }, func() error {
		for _, d := range letters {
			s.buried[d.Key] = d
		}
		return s.fake.PutDeadLetters(background, letters)
	})
}

// ListDeadLetters reads dead letters.
func (s *simStore) ListDeadLetters(ctx context.Context, after string, limit int) (letters []store.DeadLetter, err error) {
	err = s.call(ctx, "letters", stringsKey([]string{after}), DeadLettersFail,
		joined([]string{after}), func() string { return deadLettersText(letters) }, func() (err error) {
			letters, err = s.fake.ListDeadLetters(background, after, limit)
			return err
		})
	return letters, err
}

// DeadLetterRefs looks up which letters have parts of messages.
func (s *simStore) DeadLetterRefs(ctx context.Context, completions []wire.PartID) (found []store.DeadLetterRef, err error) {
	completions = slices.Clone(completions)
	err = s.call(ctx, "dead-letter references", idsKey(completions), DeadLettersFail,
		func() string { return idsText(completions) }, func() string { return fmt.Sprint(len(found), " letters") }, func() (err error) {
			found, err = s.fake.DeadLetterRefs(background, completions)
			return err
		})
	return found, err
}

// DeleteDeadLetters removes dead letters.
func (s *simStore) DeleteDeadLetters(ctx context.Context, keys []string) error {
	keys = slices.Clone(keys)
	return s.change(ctx, "discard", stringsKey(keys), DiscardLost, DiscardAnswerLost, DiscardLate, joined(keys), func() error {
		s.watch.removing(s.p, keys)
		return s.fake.DeleteDeadLetters(background, keys)
	})
}

// Beat writes the worker's record.
func (s *simStore) Beat(ctx context.Context, worker store.Worker) error {
	s.mu.Lock()
	s.p.lag = worker.Lag
	s.mu.Unlock()
	s.p.checkExpiry(&worker)
	return s.call(ctx, "announce", 0, HeartbeatLost, nil, nil, func() error { return s.fake.Beat(background, worker) })
}

// Workers reads them.
func (s *simStore) Workers(ctx context.Context) (workers []store.Worker, err error) {
	err = s.call(ctx, "workers", 0, ReadFails, nil, nil, func() (err error) {
		workers, err = s.fake.Workers(background)
		return err
	})
	if err == nil {
		s.setClocks(func() { s.p.records = slices.Clone(workers) })
	}
	return workers, err
}

var errSwapped = fmt.Errorf("sim: this is %w", store.ErrOtherDatabase)

// Check reports whether this is still the database that was opened.
func (s *simStore) Check(ctx context.Context) (checked store.Checked, err error) {
	began, asked := s.wall(), s.begins()
	defer func() { s.p.hears(ctx, err) }()
	err = s.call(ctx, "check", 0, CheckFails, nil, func() string { return "it is " + checked.At.Format(clockFormat) }, func() error {
		if s.swapped {
			return errSwapped
		}
		checked, _ = s.fake.Check(background)
		checked.At = s.storeNow() // also where the store's clock is the machine's
		s.setClocks(func() { s.p.goesBy = checked.Settings.Version })
		return nil
	})
	if err == nil {
		s.p.taught(began)
		s.learns(asked, checked.At)
	}
	return checked, err
}

// SetWindow is for whoever starts a process; here the world does it (changeWindow).
func (s *simStore) SetWindow(context.Context, time.Duration) (store.Settings, error) {
	return store.Settings{}, errors.New("sim: nobody calls this")
}

// ChangeRules is for whoever starts a process; here the world does it (changeRules).
func (s *simStore) ChangeRules(context.Context, store.RuleChange) (store.Settings, error) {
	return store.Settings{}, errors.New("sim: nobody calls this")
}

// SweepCounters is for whoever aggregates; here the world does it (sweep).
func (s *simStore) SweepCounters(ctx context.Context, after time.Duration) (int, error) {
	return 0, errors.New("sim: nobody calls this")
}
