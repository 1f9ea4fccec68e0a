package protocol_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
	"github.com/countmill/countmill/store/engine/memory"
	"github.com/countmill/countmill/store/protocol"
	"github.com/countmill/countmill/store/storetest"
)

// The limits of three databases.
var limits = map[string]engine.Limits{
	"pebble":     {Exclusive: true, CertainOutcome: true, Conditions: true, ByName: true, FreeUpserts: true, Commits: 1, RowBytes: 8 << 20},
	"datastore":  {RowsCost: true, ReadsCost: true, Spread: true, ByName: true, Returns: true, MaxThenAdd: true, Clock: true, Expires: true, Keys: 1000, Rows: 500, Fields: 500, RowBytes: 1 << 20, Bytes: 9 << 20, RowRate: 1, Past: time.Hour},
	"cramped":    {RowsCost: true, ReadsCost: true, Spread: true, ByName: true, Returns: true, MaxThenAdd: true, Clock: true, Expires: true, Keys: 20, Rows: 200, Fields: 130, RowBytes: 1 << 20, Bytes: 9 << 20, RowRate: 1},
	"postgresql": {Conditions: true, Clock: true, FreeUpserts: true, ByName: true, Keys: 1000, RowBytes: 8 << 20},
}

// unwritten are the tests whose protocol is missing.
var unwritten = []string{
	"PutDeadLettersIsIdempotent", "ListDeadLettersPages", "DeleteDeadLettersRemoves", "GetDeadLettersFinds", "AsidesAreFoundByTail", "FatesAreDecidedOnce", "Reopen",
	"ShardPages", "ShardsOf", "ShardPageIsOfOneMoment", "BeatReplaces", "CancelledContext", "ClosedStoreAnswersErrors", "MarkersGoAtTheirTime", "WrongClockForgetsNothing",
	"SequenceGivesEachOnce", "SequenceRemembersIDs", "SequenceTakesLimits", "SequenceEnds", "SequenceIsDeleted", "SequencesBesideEachOther", "RepeatsBesideEachOther",
	"SequenceMarkersGoAtTheirTime", "ReopenedSequences", "JournalIsOneWithItsCommit", "JournalPages", "JournalRows", "JournalSettles", "ReplaceRecord", "SweepJournal",
	"ReopenedJournal", "JournalView", "JournalViewIsOfOneMoment",
}

// A tested is a store with its database, and a clock that the test can set.
type tested struct {
	*protocol.Store
	rest
	db    *memory.Database
	clock *atomic.Int64
}

// rest has the methods that Store lacks.
type rest struct{ store.Store }

func TestStore(t *testing.T) {
	t.Parallel()
	for name, l := range limits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			features := []storetest.Feature{
				storetest.Durable(func(t *testing.T, s store.Store) store.Store {
					_ = s.Close()
					return reopen(t, s.(tested))
				}),
				storetest.Clock(func(s store.Store, off time.Duration) { s.(tested).clock.Store(int64(off)) }),
			}
			if !l.Exclusive {
				features = append(features, storetest.Shared(func(t *testing.T, s store.Store, _ time.Duration) store.Store { return reopen(t, s.(tested)) }))
			}
			storetest.RunStore(t, func(t *testing.T) store.Store {
				name := t.Name()[strings.LastIndexByte(t.Name(), '/')+1:]
				if slices.Contains(unwritten, name) {
					t.Skip("not written yet")
				}
				return open(t, l)
			}, features...)
		})
	}
}

func open(t *testing.T, l engine.Limits) tested {
	t.Helper()
	clock := new(atomic.Int64)
	db := memory.New(protocol.Kinds, memory.Options{
		Limits: l, Errorf: t.Errorf, Clock: func() time.Time { return time.Now().Add(time.Duration(clock.Load())) },
	})
	if l.ReadsCost { // it defers a third of all rows
		db.OnCall(func(*memory.Call) memory.Answer {
			return memory.Answer{Defer: func(engine.Key) bool { return rand.IntN(3) == 0 }}
		})
	}
	return reopen(t, tested{clock: clock, db: db})
}

// reopen opens another process on the database.
func reopen(t *testing.T, s tested) tested {
	t.Helper()
	p, err := protocol.Open(t.Context(), s.db.Open(), protocol.Config{Clock: s.db.Clock})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = p.Close() })
	s.Store = p
	return s
}
