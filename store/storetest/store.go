// Package storetest holds the conformance suites: every store and every cache, fakes
// included, passes the same tests. A newcomer writes one directory and a page of test:
//
//	func TestStore(t *testing.T) {
//		storetest.RunStore(t, open, storetest.Durable(reopen))
//	}
package storetest

import (
	"testing"
	"time"

	"github.com/countmill/countmill/store"
)

// A Feature switches tests on or fits them to a store.
type Feature func(*suite)

// Durable says that the store keeps what it has when its process ends. reopen closes s
// and opens the same data again.
func Durable(reopen func(t *testing.T, s store.Store) store.Store) Feature {
	return func(su *suite) { su.reopen = reopen }
}

// Slow cuts the rounds of the concurrent tests to a tenth, for stores behind a network.
func Slow() Feature { return func(su *suite) { su.rounds = 20 } }

// Settles says that the server shows a commit that it is just applying in parts, and
// completely some d after the moment that a view was pinned to, or more where it is slow.
// Tests of what a view sees beside commits under way then wait for d after pinning it, and
// look again in the same view where that was not enough. It is for emulators: a store that
// needs it in production gives totals that never existed.
func Settles(d time.Duration) Feature { return func(su *suite) { su.settle = d } }

// Clock says that the clock of a store can be set: to off from the right time.
func Clock(set func(s store.Store, off time.Duration)) Feature {
	return func(su *suite) { su.setClock = set }
}

type suite struct {
	open   func(t *testing.T) store.Store
	reopen func(t *testing.T, s store.Store) store.Store
	rounds int
	settle time.Duration

	again    func(t *testing.T, s store.Store, window time.Duration) store.Store
	expire   func(t *testing.T, s store.Store)
	machine  func(t *testing.T, m *Machine) store.Store
	sweep    func(t *testing.T, s store.Store)
	setClock func(s store.Store, off time.Duration)
}

// view opens a view beside commits that are under way.
func (su *suite) view(t testing.TB, s store.Store) store.View {
	t.Helper()
	v := s.View()
	if su.settle > 0 {
		lookup(t, v, store.Key{Counter: "nobody's", Shard: 0})
		<-time.After(su.settle)
	}
	return v
}

// settled looks until what a view shows is right, and once where the server needs no time for
// that. What a view shows of a moment that is over can become complete, and nothing else: so
// what was never right stays wrong.
func (su *suite) settled(right func() bool) bool {
	for deadline := time.Now().Add(time.Minute); !right(); <-time.After(su.settle) {
		if su.settle == 0 || time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// RunStore holds a store to everything that the roles rely on. open returns an empty
// store of its own for each test and closes it with t.Cleanup; tests run in parallel.
// A store may answer a fold with an error that matches none of aggregator's sentinels:
// the suite then takes it as maybe applied and repeats it, as an aggregator does.
func RunStore(t *testing.T, open func(t *testing.T) store.Store, features ...Feature) {
	su := &suite{open: open, rounds: 200}
	for _, f := range features {
		f(su)
	}
	for _, test := range []struct {
		name string
		run  func(t *testing.T, su *suite)
	}{
		{"FoldAdds", testFoldAdds},
		{"FoldKeepsNothing", testFoldKeepsNothing},
		{"FoldTakesMarkersOnly", testFoldTakesMarkersOnly},
		{"FoldTakesLimits", testFoldTakesLimits},
		{"FoldTakesAnyName", testFoldTakesAnyName},
		{"FoldTellsOfShards", testFoldTellsOfShards},
		{"MarkerExistsAppliesNothing", testMarkerExistsAppliesNothing},
		{"MarkerIsFoundWhateverItsTime", testMarkerIsFoundWhateverItsTime},
		{"OneOfManyWins", testOneOfManyWins},
		{"ConcurrentFoldsSum", testConcurrentFoldsSum},
		{"CommitIsAtomicForReaders", testCommitIsAtomicForReaders},
		{"AppliedFindsWhatWasWritten", testAppliedFindsWhatWasWritten},
		{"AppliedTakesLimits", testAppliedTakesLimits},
		{"RaiseNeverLowers", testGrowNeverLowers},
		{"RaiseTakesLimits", testGrowTakesLimits},
		{"FoldRaises", testFoldGrows},
		{"ConcurrentRaisesKeepTheLargest", testConcurrentGrowthsKeepTheLargest},
		{"LookupAnswersInOrder", testLookupAnswersInOrder},
		{"LookupTakesLimits", testLookupTakesLimits},
		{"LookupReportsOverflow", testLookupReportsOverflow},
		{"ViewIsPinned", testViewIsPinned},
		{"ViewBeginsAtFirstCall", testViewBeginsAtFirstCall},
		{"ViewClosesTwice", testViewClosesTwice},
		{"ReadTimeCoversFolds", testReadTimeCoversFolds},
		{"ReadTimeNeverGoesBack", testReadTimeNeverGoesBack},
		{"ListOrder", testListOrder},
		{"ListPages", testListPages},
		{"BuryIsIdempotent", testBuryIsIdempotent},
		{"DeadPages", testDeadPages},
		{"DiscardRemoves", testDiscardRemoves},
		{"DeadByKeyFinds", testDeadByKeyFinds},
		{"FatesAreDecidedOnce", testFatesAreDecidedOnce},
		{"ShardPages", testShardPages},
		{"ShardsOf", testShardsOf},
		{"ShardPageIsOfOneMoment", testShardPageIsOfOneMoment},
		{"AnnounceReplaces", testAnnounceReplaces},
		{"CheckIsFine", testCheckIsFine},
		{"CancelledContext", testCancelledContext},
		{"NotAppliedAppliesNothing", testNotAppliedAppliesNothing},
		{"ClosedStoreAnswersErrors", testClosedStoreAnswersErrors},
		{"Reopen", testReopen},
		{"RaiseCounterNeverLowers", testGrowCounterNeverLowers},
		{"ResetTakesOffWhatItSaw", testResetTakesOffWhatItSaw},
		{"ResetIsIdempotent", testResetIsIdempotent},
		{"ResetSeesTheLastOne", testResetSeesTheLastOne},
		{"ResetAfterAClockAhead", testResetAfterAClockAhead},
		{"ResetRefusesOldLooks", testResetRefusesOldLooks},
		{"ResetsBesideFolds", testResetsBesideFolds},
		{"DeleteEndsWithARaise", testDeleteEndsWithAGrowth},
		{"SweepRemovesDeletedCounters", testSweepRemovesDeletedCounters},
		{"SweepBesideFolds", testSweepBesideFolds},
		{"ReopenedResets", testReopenedResets},
		{"NewStoreHasItsWindow", testNewStoreHasItsWindow},
		{"WindowChanges", testWindowChanges},
		{"EqualWindowChangesNothing", testEqualWindowChangesNothing},
		{"SetWindowRefusesNonsense", testSetWindowRefusesNonsense},
		{"ConcurrentSetWindow", testConcurrentSetWindow},
		{"SettingsAreShared", testSettingsAreShared},
		{"CacheIdentityIsOfOneDatabase", testCacheIdentityIsOfOneDatabase},
		{"MarkersGoAtTheirTime", testMarkersGoAtTheirTime},
		{"WrongClockForgetsNothing", testWrongClockForgetsNothing},
		{"ReopenedSettings", testReopenedSettings},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, su)
		})
	}
}
