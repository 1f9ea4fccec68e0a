package aggregator_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// addingStore keeps increments of other programs beside a store.
type addingStore struct {
	*protocoltest.Store
	mu      sync.Mutex
	rows    map[int64]store.Added
	last    int64
	answers []func(fold func() error) error // of the next folds that take rows
	unread  error
}

func (s *addingStore) add(counter string, deltas ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, delta := range deltas {
		s.last++
		s.rows[s.last] = store.Added{ID: s.last, Counter: counter, Delta: delta, At: time.Now()}
	}
}

func (s *addingStore) Added(_ context.Context, limit int) (all []store.Added, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unread != nil {
		return nil, s.unread
	}
	for _, id := range slices.Sorted(maps.Keys(s.rows)) {
		if len(all) < limit {
			all = append(all, s.rows[id])
		}
	}
	return all, nil
}

func (s *addingStore) Fold(ctx context.Context, c *store.Commit) (result store.CommitResult, err error) {
	if len(c.Taken) == 0 {
		return s.Store.Fold(ctx, c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fold := func() error {
		for _, id := range c.Taken {
			if _, ok := s.rows[id]; !ok {
				return store.ErrMarkerExists
			}
		}
		var err error
		if result, err = s.Store.Fold(ctx, c); err == nil {
			for _, id := range c.Taken {
				delete(s.rows, id)
			}
		}
		return err
	}
	answer := func(fold func() error) error { return fold() }
	if len(s.answers) > 0 {
		answer, s.answers = s.answers[0], s.answers[1:]
	}
	return result, answer(fold)
}

func (s *addingStore) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rows)
}

func adding(t *testing.T) *addingStore {
	return &addingStore{Store: large(t), rows: make(map[int64]store.Added)}
}

// What other programs add counts once, whatever the store answers, and whoever takes it first.
func TestAddedCountsOnce(t *testing.T) {
	unknown := errors.New("no answer")
	for name, answer := range map[string]func(fold func() error) error{
		"applied":              func(fold func() error) error { return fold() },
		"applied, no answer":   func(fold func() error) error { return errors.Join(fold(), unknown) },
		"not applied":          func(func() error) error { return unknown },
		"not begun":            func(func() error) error { return store.ErrNotApplied },
		"the deployment":       func(func() error) error { return store.ErrDeployment },
		"refused for a while":  func(func() error) error { return store.ErrRefused },
		"taken by another one": func(func() error) error { return store.ErrMarkerExists },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := adding(t)
				for range 3 {
					st.answers = append(st.answers, answer)
				}
				for range 30 {
					st.add("a", 1, 2)
					st.add("b", 5, -5)
				}
				for i := range 40 { // more counters than a part has
					st.add(fmt.Sprintf("n%d", i), 1)
				}
				r := runOver(t, st.Store, st, aggregator.Config{})
				settle(2 * time.Minute)
				st.add("a", 100)
				settle(time.Second)
				if got := st.Totals(); got["a"] != 190 || got["b"] != 0 || got["n39"] != 1 || st.left() != 0 {
					t.Errorf("totals are %v with %d left, want 190 of a", got, st.left())
				}
				if err := r.finish(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// While the last check of the database failed, its increments stay there: they may be another database's. Ready says what keeps them
// from being counted.
func TestAddedStaysWhileSomethingIsWrong(t *testing.T) {
	for name, trouble := range map[string]func(st *addingStore){
		"another database": func(st *addingStore) {
			st.On("check", func(int) protocoltest.Answer { return protocoltest.Deployment })
		},
		"no rights": func(st *addingStore) {
			st.answers = slices.Repeat([]func(func() error) error{func(func() error) error { return store.ErrDeployment }}, 1000)
		},
		"no rights to read": func(st *addingStore) { st.unread = store.ErrDeployment },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				st := adding(t)
				r := runOver(t, st.Store, st, aggregator.Config{})
				settle(time.Second)
				st.mu.Lock()
				trouble(st)
				st.mu.Unlock()
				settle(2 * store.CheckEvery)
				st.add("a", 1)
				settle(2 * store.CheckEvery) // the settings are not too old yet
				if err := r.agg.Ready(); st.left() != 1 || !errors.Is(err, store.ErrDeployment) {
					t.Errorf("%d increments are left, ready: %v; want 1 and ErrDeployment", st.left(), err)
				}
				st.mu.Lock()
				st.answers, st.unread = nil, nil
				st.mu.Unlock()
				st.On("check", nil)
				settle(2 * store.CheckEvery)
				if err := r.agg.Ready(); st.left() != 0 || st.Total("a") != 1 || err != nil {
					t.Errorf("%d increments are left, the total is %d, ready: %v; want 0, 1 and ready", st.left(), st.Total("a"), err)
				}
			})
		})
	}
}

// hangingStore answers no commit of increments of other programs.
type hangingStore struct{ *addingStore }

func (s hangingStore) Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error) {
	if len(c.Taken) == 0 {
		return s.addingStore.Fold(ctx, c)
	}
	<-ctx.Done()
	return store.CommitResult{}, ctx.Err()
}

// A commit of them bounds a drain no less than others do.
func TestAddedEndsWithTheDrain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := adding(t)
		st.add("a", 1)
		r := runOver(t, st.Store, hangingStore{st}, aggregator.Config{CommitTimeout: time.Hour, DrainTimeout: 5 * time.Second})
		settle(2 * time.Second)
		began := time.Now()
		if err := r.finish(); err != nil || time.Since(began) != 5*time.Second {
			t.Errorf("Run returned %v after %s, want nil after 5s", err, time.Since(began))
		}
	})
}

// Two aggregators take what there is, and nothing counts twice. Their sums may leave int64.
func TestAddedBesideEachOther(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := adding(t)
		runOver(t, st.Store, st, aggregator.Config{})
		runOver(t, st.Store, st, aggregator.Config{})
		for range 200 {
			st.add("a", 1, 1, 1)
			settle(20 * time.Millisecond)
		}
		st.add("b", slices.Repeat([]int64{-countmill.MaxDelta}, 1000)...)
		settle(time.Minute)
		st.add("b", slices.Repeat([]int64{countmill.MaxDelta}, 2000)...) // together beyond int64
		settle(time.Minute)
		if got := st.Totals(); got["a"] != 600 || got["b"] != 1000*countmill.MaxDelta || st.left() != 0 {
			t.Errorf("totals are %v with %d left, want 600 of a", got, st.left())
		}
	})
}

// Increments that wait in the store are lag, from their own time on, and none once they are counted. The log has one line of an outage.
func TestAddedIsLag(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := adding(t)
		refused := func(func() error) error { return store.ErrNotApplied }
		st.answers = slices.Repeat([]func(func() error) error{refused}, 1000)
		st.add("a", 1, 2)
		var log strings.Builder
		r := runOver(t, st.Store, st, aggregator.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		settle(10 * time.Second)
		if s := r.agg.Stats(); s.Added != 2 || s.Lag != 10*time.Second {
			t.Errorf("%d increments and a lag of %s, want 2 and 10s", s.Added, s.Lag)
		}
		st.mu.Lock()
		st.unread = errors.New("away") // the last look holds
		st.mu.Unlock()
		settle(10 * time.Second)
		if s := r.agg.Stats(); s.Added != 2 || s.Lag != 20*time.Second {
			t.Errorf("%d increments and a lag of %s, want 2 and 20s", s.Added, s.Lag)
		}
		st.mu.Lock()
		st.answers, st.unread = nil, nil
		st.mu.Unlock()
		settle(time.Second)
		if s := r.agg.Stats(); s.Added != 0 || s.Lag != 0 || st.left() != 0 {
			t.Errorf("%d increments and a lag of %s, want none", s.Added, s.Lag)
		}
		if err := r.finish(); err != nil || strings.Count(log.String(), "increments of other programs") != 1 {
			t.Errorf("got %v and the log\n%s", err, log.String())
		}
	})
}

// The log names an increment that the store refuses alone, once. In PostgreSQL the table refuses such increments before.
func TestAddedRefusedAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := adding(t)
		st.answers = slices.Repeat([]func(func() error) error{func(func() error) error { return store.ErrRefused }}, 20)
		st.add("a", 1)
		var log strings.Builder
		runOver(t, st.Store, st, aggregator.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		settle(5 * time.Second)
		if got := log.String(); strings.Count(got, "refused, will try again") != 1 || !strings.Contains(got, "id 1: ") {
			t.Errorf("the log is\n%s", got)
		}
		if settle(time.Minute); st.left() != 0 {
			t.Errorf("%d are left", st.left())
		}
	})
}

// slowStore has commits that take their time.
type slowStore struct{ *addingStore }

func (s slowStore) Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error) {
	time.Sleep(7 * time.Millisecond)
	return s.addingStore.Fold(ctx, c)
}

// Counters that always have a commit under way do not keep those of other programs from being counted, nor the other way round.
func TestAddedTakesTurns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := adding(t)
		r := runOver(t, st.Store, slowStore{st}, aggregator.Config{Linger: -1, Commits: 3, ShardRate: -1})
		busy := []string{"a", "b"}
		for i := range 2000 {
			r.send(t, anonymous(one(busy[i%2], 1)))
			time.Sleep(time.Millisecond)
			if i > 500 && i < 1000 {
				st.add(busy[i%2], 1000)
				st.add(fmt.Sprint("n", i), 1)
			}
			if i == 1600 && st.left() > 0 {
				t.Errorf("%d increments wait beside a busy counter", st.left())
			}
			if i%50 != 0 {
				continue
			}
			if got := st.Totals(); (got["a"]+got["b"])%1000 < int64(i%1000)-100 {
				t.Fatalf("%d of %d messages are counted beside increments of other programs", (got["a"]+got["b"])%1000, i%1000)
			}
		}
		settle(time.Second)
		if got := st.Totals(); got["a"]+got["b"] != 2000+499*1000 || st.left() != 0 {
			t.Errorf("totals are %d and %d with %d left", got["a"], got["b"], st.left())
		}
	})
}

// A job whose shard such a commit holds asks for it with pauses: without them the look-ups of a new aggregator would follow each other.
func TestAJobWaitsForAdded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := &lookedAt{addingStore: &addingStore{Store: small(t), rows: make(map[int64]store.Added)}}
		st.answers = append(st.answers, func(fold func() error) error { time.Sleep(time.Second); return fold() })
		st.add("c0", 1)
		r := runOver(t, st.Store, st, aggregator.Config{Commits: 2})
		settle(600 * time.Millisecond) // the commit has begun
		r.send(t, keyed(t, "k", 1, 5)...)
		settle(2 * time.Second)
		if got, looks := st.Totals()["c0"], st.looks.Load(); got != 6 || looks >= manyLooks {
			t.Errorf("the total is %d after %d look-ups, want 6 after less than %d", got, looks, manyLooks)
		}
	})
}

// lookedAt counts look-ups. Many of them wait: otherwise they would stop the time of the bubble.
type lookedAt struct {
	*addingStore
	looks atomic.Int64
}

const manyLooks = 1000

func (s *lookedAt) Applied(ctx context.Context, ids []wire.PartID) ([]store.Marker, error) {
	if s.looks.Add(1) >= manyLooks {
		time.Sleep(time.Minute)
	}
	return s.Store.Applied(ctx, ids)
}
