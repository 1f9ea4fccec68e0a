// Package storetest has the conformance suites: every store, every cache and every bus, including the
// fakes, passes the same tests. A new backend needs one directory and a page of test:
//
//	func TestStore(t *testing.T) {
//		storetest.RunStore(t, open, storetest.Durable(reopen))
//	}
package storetest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countmill/countmill/store"
)

// A Feature switches tests on, or adapts them to a store.
type Feature func(*suite)

// Durable says that the store keeps its data when its process ends. reopen closes s and opens the same
// data again.
func Durable(reopen func(t *testing.T, s store.Store) store.Store) Feature {
	return func(su *suite) { su.reopen = reopen }
}

// Slow cuts the rounds of the concurrent tests to a tenth, for stores behind a network.
func Slow() Feature { return func(su *suite) { su.rounds = 20 } }

// OfEngine leaves out the tests whose answers rest on package protocol alone. They run over a database in memory with
// the limits of each engine. The other tests depend on the engine: commits beside each other, limits, orders, moments, expiry, and the
// rows after a reopening.
func OfEngine() Feature { return func(su *suite) { su.ofEngine = true } }

// ofProtocol are the tests that OfEngine leaves out.
var ofProtocol = strings.Fields(`
	AppliedFindsMarkers GrowNeverLowers FoldGrows
	DeadLetters DeadLetterRefsAreFoundByCompletion DecisionsAreDecidedOnce
	ShardsOf BeatReplaces ResetTakesOffWhatItSaw ResetIsIdempotent ResetSeesTheLastOne ResetRefusesOldLooks
	DeleteEndsWithAGrowth WindowChanges 
	SeriesSums SeriesOfManyCounters SweepSeriesKeepsPromises FoldArchives IndexesChange RangesSwap RangesEndWithTheirIndex
	GroupedFolds SetRemainders SetRemaindersNeedsTheRange DropGroups SweepKeepsCountersOfIndexes SweepTakesGroups
	SequenceGivesEachOnce SequenceRemembersIDs SequenceEnds SequenceIsDeleted ReplaceRecord JournalSettles JournalView Corrections
	SumsOfOldMinutes SumsHideDeletedCounters SumsEndWithTheirVisitor`)

type suite struct {
	open   func(t *testing.T) store.Store
	reopen func(t *testing.T, s store.Store) store.Store
	rounds int

	ofEngine bool

	again   func(t *testing.T, s store.Store, window time.Duration) store.Store
	expire  func(t *testing.T, s store.Store)
	machine func(t *testing.T, m *Machine) store.Store
	sweep   func(t *testing.T, s store.Store)
}

// RunStore tests that a store does everything that the roles rely on. open returns an empty store of
// its own for each test and closes it with t.Cleanup; tests run in parallel. A store may answer a fold
// with an error that matches none of the errors of package store. The suite treats it as maybe applied,
// and repeats the fold, as an aggregator does.
func RunStore(t *testing.T, open func(t *testing.T) store.Store, features ...Feature) {
	su := &suite{open: open, rounds: 200}
	for _, f := range features {
		f(su)
	}
	for _, test := range append([]suiteTest{
		{"FoldTakesLimits", testFoldTakesLimits},
		{"FoldTakesAnyName", testFoldTakesAnyName},
		{"FoldReportsShards", testFoldReportsShards},
		{"MarkerExistsAppliesNothing", testMarkerExistsAppliesNothing},
		{"AppliedFindsMarkers", testAppliedFindsMarkers},
		{"GrowNeverLowers", testGrowNeverLowers},
		{"FoldGrows", testFoldGrows},
		{"LookupOfManyKeys", testLookupOfManyKeys},
		{"SumsBeyondInt64", testSumsBeyondInt64},
		{"ViewIsPinned", testViewIsPinned},
		{"ListOrder", testListOrder},
		{"PutDeadLettersIsIdempotent", testPutDeadLettersIsIdempotent},
		{"DeadLetters", testDeadLetters},
		{"DeadLetterRefsAreFoundByCompletion", testDeadLetterRefsAreFoundByCompletion},
		{"DecisionsAreDecidedOnce", testDecisionsAreDecidedOnce},
		{"ShardPages", testShardPages},
		{"ShardsOf", testShardsOf},
		{"BeatReplaces", testBeatReplaces},
		{"NotAppliedAppliesNothing", testNotAppliedAppliesNothing},
		{"Reopen", testReopen},
		{"ResetTakesOffWhatItSaw", testResetTakesOffWhatItSaw},
		{"ResetIsIdempotent", testResetIsIdempotent},
		{"ResetSeesTheLastOne", testResetSeesTheLastOne},
		{"ResetAfterAClockAhead", testResetAfterAClockAhead},
		{"ResetRefusesOldLooks", testResetRefusesOldLooks},
		{"ResetsBesideFolds", testResetsBesideFolds},
		{"ResetsBeyondInt64", testResetsBeyondInt64},
		{"DeleteEndsWithAGrowth", testDeleteEndsWithAGrowth},
		{"SweepRemovesDeletedCounters", testSweepRemovesDeletedCounters},
		{"WindowChanges", testWindowChanges},
		{"SettingsAreShared", testSettingsAreShared},
		{"CacheIdentityIsOfOneDatabase", testCacheIdentityIsOfOneDatabase},
		{"MarkersGoAtTheirTime", testMarkersGoAtTheirTime},
		{"WrongClockForgetsNothing", testWrongClockForgetsNothing},
		{"ReopenedSettings", testReopenedSettings},
		{"SeriesSums", testSeriesSums},
		{"SeriesOfManyCounters", testSeriesOfManyCounters},
		{"SeriesIsPinned", testSeriesIsPinned},
		{"SeriesBeyondInt64", testSeriesBeyondInt64},
		{"SweepSeriesKeepsPromises", testSweepSeriesKeepsPromises},
		{"SeriesGoesWithItsCounter", testSeriesGoesWithItsCounter},
		{"MoveChangesNoSum", testMoveChangesNoSum},
		{"FoldArchives", testFoldArchives},
		{"IndexesChange", testIndexesChange},
		{"RangesSwap", testRangesSwap},
		{"RangesEndWithTheirIndex", testRangesEndWithTheirIndex},
		{"RangesTakeLimits", testRangesTakeLimits},
		{"GroupedFolds", testGroupedFolds},
		{"OldRulesRefused", testOldRulesRefused},
		{"UngroupedCoversEachShardOnce", testUngroupedCoversEachShardOnce},
		{"UngroupedBeyondInt64", testUngroupedBeyondInt64},
		{"SetRemainders", testSetRemainders},
		{"SetRemaindersNeedsTheRange", testSetRemaindersNeedsTheRange},
		{"SetRemaindersTakesLimits", testSetRemaindersTakesLimits},
		{"RemaindersTakeAnyName", testRemaindersTakeAnyName},
		{"RemaindersBeyondInt64", testRemaindersBeyondInt64},
		{"DropGrouped", testDropGrouped},
		{"DropGroups", testDropGroups},
		{"SweepKeepsCountersOfIndexes", testSweepKeepsCountersOfIndexes},
		{"SweepTakesGroups", testSweepTakesGroups},
		{"SequenceGivesEachOnce", testSequenceGivesEachOnce},
		{"SequenceRemembersIDs", testSequenceRemembersIDs},
		{"SequenceTakesLimits", testSequenceTakesLimits},
		{"SequenceEnds", testSequenceEnds},
		{"SequenceIsDeleted", testSequenceIsDeleted},
		{"SequencesBesideEachOther", testSequencesBesideEachOther},
		{"SequenceMarkersGoAtTheirTime", testSequenceMarkersGoAtTheirTime},
		{"ReopenedSequences", testReopenedSequences},
		{"JournalIsOneWithItsCommit", testJournalIsOneWithItsCommit},
		{"JournalPages", testJournalPages},
		{"JournalRows", testJournalRows},
		{"JournalSettles", testJournalSettles},
		{"ReplaceRecord", testReplaceRecord},
		{"SweepJournal", testSweepJournal},
		{"ReopenedJournal", testReopenedJournal},
		{"JournalView", testJournalView},
		{"Corrections", testCorrections},
	}, sumsTests...) {
		if su.ofEngine && slices.Contains(ofProtocol, test.name) {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, su)
		})
	}
}
