package protocol_test

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/memory"
	"github.com/countmill/countmill/store/protocol"
	"github.com/countmill/countmill/wire"
)

func changeIndex(t *testing.T, s store.Store, step store.IndexStep, x store.Index) *store.Index {
	t.Helper()
	x.Name = "sites"
	set, err := s.ChangeRules(t.Context(), store.RuleChange{Index: &store.IndexChange{Step: step, Index: x}})
	if err != nil {
		t.Fatal(err)
	}
	return set.Rules.Index(x.Name)
}

func createIndex(t *testing.T, s store.Store) *store.Index {
	t.Helper()
	return changeIndex(t, s, store.CreateIndex, store.Index{Match: "page:{site}:*", Group: "site:{site}"})
}

// stored are the keys of a kind.
func (s tested) stored(t *testing.T, kind string) (keys []engine.Key) {
	t.Helper()
	v := s.db.Open().View()
	defer v.Close()
	for id := range protocol.Kinds {
		if protocol.Kinds[id].Name != kind {
			continue
		}
		rows := v.Scan(t.Context(), engine.Range{Kind: engine.KindID(id)})
		for r := rows.Next(); r != nil; r = rows.Next() {
			keys = append(keys, r.Key)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return keys
}

// grow makes a counter with one shard.
func grow(t *testing.T, s store.Store, counter string) {
	t.Helper()
	if err := s.Grow(t.Context(), []store.Growth{{Counter: counter, Shards: 1}}); err != nil {
		t.Fatal(err)
	}
}

// crowd folds so many minutes to a counter that MoveSeries of the same process moves them.
func crowd(t *testing.T, s tested, counter string) (sum int64) {
	t.Helper()
	if _, err := s.ChangeRules(t.Context(), store.RuleChange{Pattern: "*", Keep: store.Retention{Minutes: 24 * time.Hour, Quarters: 400 * 24 * time.Hour}}); err != nil {
		t.Fatal(err)
	}
	grow(t, s, counter)
	var minutes []wire.Minute
	for i := range store.SeriesBuckets + 1 {
		minutes = append(minutes, wire.MinuteOf(time.Now())-wire.Minute(store.SeriesBuckets-i))
	}
	foldMinutes(t, s, counter, minutes...)
	return int64(len(minutes))
}

func move(t *testing.T, s store.Store) {
	if n, err := s.MoveSeries(t.Context()); err != nil || n != 1 {
		t.Errorf("moved %d shards, %v, want 1", n, err)
	}
}

// A group's buckets are moved beside DropGroups: no day of it stays.
func TestDropGroupsBesideAMove(t *testing.T) {
	t.Parallel()
	s := open(t, limits["datastore"])
	other := s.again(t)
	createIndex(t, other)
	crowd(t, other, "=site:a")
	x := changeIndex(t, other, store.DeleteIndex, store.Index{})
	s.between(memory.Transact, func() { move(t, other) })
	for n, calls := 1, 0; n > 0; calls++ {
		var err error
		if n, err = s.DropGroups(t.Context(), x, 10); err != nil || calls > 10 {
			t.Fatalf("call %d of DropGroups: %d, %v", calls, n, err)
		}
	}
	for _, kind := range []string{"record", "shard", "day"} {
		if left := s.stored(t, kind); len(left) > 0 {
			t.Errorf("rows of the kind %s are left: %v", kind, left)
		}
	}
}

// A worker is stopped in DropGroups. Meanwhile the index is removed, and another one with the same groups begins.
func TestDropGroupsBesideALaterIndex(t *testing.T) {
	t.Parallel()
	s := open(t, limits["datastore"])
	other := s.again(t)
	createIndex(t, other)
	grow(t, other, "=site:a")
	x := changeIndex(t, other, store.DeleteIndex, store.Index{})
	s.between(memory.TxGet, func() {
		if _, err := other.DropGroups(t.Context(), x, 10); err != nil {
			t.Error(err)
		}
		changeIndex(t, other, store.RemoveIndex, store.Index{Number: x.Number})
		createIndex(t, other)
		grow(t, other, "=site:a")
	})
	if n, err := s.DropGroups(t.Context(), x, 10); !errors.Is(err, store.ErrChanged) || n != 0 {
		t.Errorf("DropGroups of an index that is gone: got %d, %v, want ErrChanged", n, err)
	}
	if left := s.stored(t, "record"); len(left) != 1 {
		t.Errorf("the records are %v, want the group of the later index", left)
	}
}

// An index begins beside a sweep of its counter: the counter stays.
func TestIndexBesideASweep(t *testing.T) {
	t.Parallel()
	s := open(t, limits["datastore"])
	other := s.again(t)
	grow(t, s, "page:a:1")
	fold(t, s, "page:a:1", 5)
	remove(t, s, "page:a:1")
	s.between(memory.Transact, func() { createIndex(t, other) })
	sweepOnce(t, s, 0, 0)
	if left := s.stored(t, "shard"); len(left) != 1 {
		t.Errorf("the shards are %v, want that of the counter", left)
	}
}

// A shard that goes beside DropGrouped does not come back without a count.
func TestShardGoesBesideDropGrouped(t *testing.T) {
	t.Parallel()
	s := open(t, limits["datastore"])
	x := createIndex(t, s)
	c := &store.Commit{Adds: []store.ShardDelta{store.NewShardDelta("page:a:1", 0, 2)}, Grouped: []store.Grouping{{Indexes: []int64{x.Number}}}, Rules: store.AnyRules}
	if _, err := s.Fold(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	gone := s.stored(t, "shard")
	s.between(memory.Commit, func() {
		if _, err := s.db.Open().Commit(t.Context(), &engine.Commit{Changes: engine.Changes(engine.Change{Key: gone[0], Op: engine.Delete})}); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.DropGrouped(t.Context(), x, &store.IndexRange{Index: x.Number, ID: 1, To: math.MaxUint64}, "", 10); err == nil {
		t.Error("DropGrouped of a shard that is gone has no error")
	}
	if left := s.stored(t, "shard"); len(left) > 0 {
		t.Errorf("the shards are %v, want none", left)
	}
}

// A series is read beside a move: it has all.
func TestSeriesBesideAMove(t *testing.T) {
	t.Parallel()
	s := open(t, limits["datastore"])
	other := s.again(t)
	sum := crowd(t, other, "a")
	s.between(memory.Scan, func() { move(t, other) })
	wantWhole(t, s, "a", sum)
	if len(s.stored(t, "day")) == 0 {
		t.Error("nothing was moved")
	}
}

// Nobody changes the settings of a database that has replaced the one that was opened.
func TestSettingsOfAnotherDatabaseStay(t *testing.T) {
	t.Parallel()
	s := open(t, limits["datastore"])
	key := s.stored(t, "meta")[0]
	e := s.db.Open()
	rows, err := e.View().Get(t.Context(), []engine.Key{key}, engine.Data)
	if err != nil {
		t.Fatal(err)
	}
	another := bytes.ReplaceAll(rows[0].Data, []byte(s.ID()), []byte("another"))
	if _, err := e.Commit(t.Context(), &engine.Commit{Changes: engine.Changes(engine.Change{Key: key, Data: another})}); err != nil {
		t.Fatal(err)
	}
	if set, err := s.SetWindow(t.Context(), 48*time.Hour); !errors.Is(err, store.ErrOtherDatabase) {
		t.Errorf("a window for another database: got %+v, %v, want ErrOtherDatabase", set, err)
	}
}
