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

// The limits of a directory of one process, of a service that costs money, and of a server.
var (
	directory = engine.Limits{Exclusive: true, CertainOutcome: true, Conditions: true, ByName: true, FreeUpserts: true, Commits: 1, RowBytes: 8 << 20}
	service   = engine.Limits{
		RowsCost: true, ReadsCost: true, Spread: true, ByName: true, Returns: true, MaxThenAdd: true, Clock: true, Expires: true,
		Keys: 1000, Rows: 500, Fields: 500, RowBytes: 900 << 10, Bytes: 9 << 20, RowRate: 1, Past: time.Hour,
	}
	server = engine.Limits{Conditions: true, Clock: true, FreeUpserts: true, ByName: true, Keys: 1000, RowBytes: 8 << 20}
)

// unwritten are the tests whose protocol is missing.
var unwritten = strings.Fields(`
	CancelledContext ClosedStoreAnswersErrors

	ResetTakesOffWhatItSaw ResetIsIdempotent ResetSeesTheLastOne ResetAfterAClockAhead ResetRefusesOldLooks ResetsBesideFolds
	DeleteEndsWithAGrowth SweepRemovesDeletedCounters SweepBesideFolds ReopenedResets

	SeriesSums SeriesOfManyCounters SeriesTakesAnyName SeriesIsOneWithItsCommit SeriesIsPinned SeriesReportsOverflow
	SweepSeriesKeepsPromises SweepSeriesBesideFolds SeriesGoesWithItsCounter ReopenedSeries MoveChangesNoSum FoldArchives MovesBesideFolds
	Corrections

	ReopenedIndexes PiecesSwap PiecesEndWithTheirIndex PiecesTakeLimits OneWorkerTakesAPiece GroupedFolds GroupedSeries UngroupedCoversEachShardOnce
	UngroupedReportsOverflow UngroupedBesideFolds SetRests SetRestsNeedsThePiece SetRestsTakesLimits RestsTakeAnyName RestsReportOverflow
	RestsBesideGrowths DropGrouped DropGroups SweepKeepsCountersOfIndexes SweepTakesGroups

	SumsAreTotals SumsOfGroups SumsOfGroupsOfAnyName SumsOfMinutes SumsOfOldMinutes SumsHideDeletedCounters SumsAreOfOneMoment
	SumsEndWithTheirVisitor ChangesAreCounted
`)

// A tested is a store with its database, and with the clock of both.
type tested struct {
	*protocol.Store
	rest
	db  *memory.Database
	cfg protocol.Config
	off *atomic.Int64 // how far the clock is ahead
}

// rest has the methods that Store lacks.
type rest struct{ store.Store }

func TestStore(t *testing.T) {
	t.Parallel()
	reopen := storetest.Durable(func(t *testing.T, s store.Store) store.Store {
		if err := s.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
		return s.(tested).again(t)
	})
	shared := storetest.Shared(func(t *testing.T, s store.Store, window time.Duration) store.Store {
		other := s.(tested)
		other.cfg.Window = window
		return other.again(t)
	})
	for name, tt := range map[string]struct {
		limits   engine.Limits
		features []storetest.Feature
	}{
		"directory": {directory, []storetest.Feature{
			reopen,
			storetest.Clock(func(s store.Store, off time.Duration) { s.(tested).off.Store(int64(off)) }),
			storetest.RemovesByForgetBefore(func(t *testing.T, m *storetest.Machine) store.Store {
				return open(t, directory, protocol.Config{Clock: m.Now, Age: m.Age})
			}, sweep),
		}},
		"service": {service, []storetest.Feature{
			reopen, shared, storetest.RemovesByTime(func(_ *testing.T, s store.Store) { s.(tested).db.Expire(s.(tested).db.Clock()) }),
		}},
		"server": {server, []storetest.Feature{reopen, shared}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.RunStore(t, func(t *testing.T) store.Store {
				if slices.Contains(unwritten, t.Name()[strings.LastIndexByte(t.Name(), '/')+1:]) {
					t.Skip("not written yet")
				}
				return open(t, tt.limits, protocol.Config{})
			}, tt.features...)
		})
	}
}

func sweep(t *testing.T, s store.Store) {
	t.Helper()
	if err := s.(tested).Sweep(t.Context()); err != nil {
		t.Fatalf("Sweep: %v", err)
	}
}

// open opens a new database. One that costs money defers some reads.
func open(t *testing.T, l engine.Limits, cfg protocol.Config) tested {
	t.Helper()
	s := tested{off: new(atomic.Int64), cfg: cfg}
	if cfg.Clock == nil {
		s.cfg.Clock = func() time.Time { return time.Now().Add(time.Duration(s.off.Load())) }
	}
	s.db = memory.New(protocol.Kinds, memory.Options{Limits: l, Errorf: t.Errorf, Clock: s.cfg.Clock})
	if l.ReadsCost {
		s.db.OnCall(func(*memory.Call) memory.Answer {
			return memory.Answer{Defer: func(engine.Key) bool { return rand.IntN(20) == 0 }}
		})
	}
	return s.again(t)
}

// again opens another process on the database.
func (s tested) again(t *testing.T) tested {
	t.Helper()
	var err error
	if s.Store, err = protocol.Open(t.Context(), s.db.Open(), s.cfg); err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}
