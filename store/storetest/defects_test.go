package storetest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/store/storetest"
	"github.com/countmill/countmill/store/storetest/fakestore"
	"github.com/countmill/countmill/wire"
)

const defectEnv = "COUNTMILL_BACKENDTEST_DEFECT"

// A defect is a wrong store, and the test of the suite that must fail on it.
type defect struct {
	caught string
	make   func(s *fakestore.Store) store.Store
	opts   fakestore.Options
	forget func(s *fakestore.Store) // removes markers
}

// remove makes the store remove its markers.
func (d *defect) remove(_ *testing.T, s store.Store) {
	if d.forget == nil {
		below(s).Forget()
		return
	}
	d.forget(below(s))
}

// below returns the fake store inside a defective one.
func below(s store.Store) *fakestore.Store {
	if b, ok := s.(interface{ below() *fakestore.Store }); ok {
		return b.below()
	}
	return s.(*fakestore.Store)
}

// Each store of defects is wrong in one way.
var defects = map[string]*defect{
	"reads unpinned":      {caught: "ViewIsPinned", opts: fakestore.Options{Unpinned: true}},
	"reads half a commit": {caught: "CommitIsAtomicForReaders", make: splitAdds},
	"applies despite an existing marker": {caught: "MarkerExistsAppliesNothing", make: folds(func(ctx context.Context, s *fakestore.Store, c *store.Commit) (store.CommitResult, error) {
		folded, err := s.Fold(ctx, c)
		if errors.Is(err, store.ErrMarkerExists) && len(c.Markers) > 1 {
			_, _ = s.Fold(ctx, &store.Commit{Adds: c.Adds})
		}
		return folded, err
	})},
	"checks markers, then acts": {caught: "OneOfManyWins", make: folds(checkThenAct), opts: slow},
	"loses an add in a hundred": {caught: "ConcurrentFoldsSum", make: loseSome},
	"accepts one less than its limit": {caught: "FoldTakesLimits", make: folds(func(ctx context.Context, s *fakestore.Store, c *store.Commit) (store.CommitResult, error) {
		if c.Entities() >= s.Limits().Entities {
			return store.CommitResult{}, store.ErrRefused
		}
		return s.Fold(ctx, c)
	})},
	"keeps one tally for all shards":     {caught: "FoldReportsShards", make: reportsAll},
	"reports refused folds":              {caught: "FoldReportsShards", make: reportsRefused},
	"reports the last known shards":      {caught: "FoldReportsShards", make: reportsLast},
	"cleans paths":                       {caught: "FoldTakesAnyName", make: folds(cleanNames)},
	"denies applied folds":               {caught: "NotAppliedAppliesNothing", make: folds(deny)},
	"ignores the context":                {caught: "CancelledContext", make: folds(ignoreContext)},
	"keeps the caller's slice":           {caught: "FoldKeepsNothing", make: func(s *fakestore.Store) store.Store { return &lazy{Store: s} }},
	"forgets microseconds":               {caught: "AppliedFindsMarkers", make: func(s *fakestore.Store) store.Store { return coarse{s} }},
	"lowers records":                     {caught: "GrowNeverLowers", make: func(s *fakestore.Store) store.Store { return &lowering{s, map[string]int{}} }},
	"grows before it folds":              {caught: "FoldGrows", make: folds(growFirst), opts: fakestore.Options{GrowsInFold: true}},
	"folds and does not grow":            {caught: "FoldGrows", make: folds(foldOnly), opts: fakestore.Options{GrowsInFold: true}},
	"wraps sums":                         {caught: "SumsBeyondInt64", make: views(func(v *odd) { v.wraps = true })},
	"claims to be newer":                 {caught: "ReadTimeCoversFolds", make: views(func(v *odd) { v.shift = time.Hour })},
	"goes back with its clock":           {caught: "ReadTimeNeverGoesBack", make: func(s *fakestore.Store) store.Store { return &turning{Store: s} }},
	"claims to be older":                 {caught: "ReadTimeCoversFolds", make: views(func(v *odd) { v.shift = -time.Hour })},
	"lists one too many":                 {caught: "ListPages", make: views(func(v *odd) { v.more = 1 })},
	"stores letters again":               {caught: "PutDeadLettersIsIdempotent", make: func(s *fakestore.Store) store.Store { return &restoring{Store: s} }},
	"discards nothing":                   {caught: "DeleteDeadLettersRemoves", make: func(s *fakestore.Store) store.Store { return keeping{s} }},
	"discards all before":                {caught: "DeleteDeadLettersRemoves", make: func(s *fakestore.Store) store.Store { return purging{s} }},
	"finds other letters":                {caught: "GetDeadLettersFinds", make: func(s *fakestore.Store) store.Store { return shuffling{s} }},
	"loses shards at the end of a page":  {caught: "ShardPages", make: func(s *fakestore.Store) store.Store { return forgetful{s} }},
	"is empty when reopened":             {caught: "Reopen"},
	"grows to less":                      {caught: "GrowCounterNeverLowers", make: func(s *fakestore.Store) store.Store { return agreeing{s} }},
	"repeats resets with one id":         {caught: "ResetIsIdempotent", make: resets(func(r *store.ResetRequest) { r.ID[1]++; r.ID[15] += byte(r.Look.At.UnixMicro()) })},
	"resets to the present sum":          {caught: "ResetTakesOffWhatItSaw", make: resetToPresent},
	"believes any look-up":               {caught: "ResetRefusesOldLooks", make: resets(func(r *store.ResetRequest) { r.Look.At, r.Look.ResetAt = time.Now(), time.Time{} })},
	"lets the last reset win":            {caught: "ResetSeesTheLastOne", make: resetUnseen},
	"waits for a clock that was ahead":   {caught: "ResetAfterAClockAhead", make: func(s *fakestore.Store) store.Store { return &waiting{Store: s} }},
	"shows deleted records":              {caught: "DeleteEndsWithAGrowth", make: func(s *fakestore.Store) store.Store { return showing{s} }},
	"sweeps at once":                     {caught: "SweepRemovesDeletedCounters", make: func(s *fakestore.Store) store.Store { return hasty{s} }},
	"sweeps nothing":                     {caught: "SweepRemovesDeletedCounters", make: func(s *fakestore.Store) store.Store { return untidy{s} }},
	"forgets resets":                     {caught: "ReopenedResets"},
	"forgets the window":                 {caught: "ReopenedSettings"},
	"has another window than configured": {caught: "NewStoreHasItsWindow", opts: fakestore.Options{Window: time.Hour}},
	"forgets the pace":                   {caught: "WindowChanges", make: settings(func(_, x store.Settings) store.Settings { x.Pace, x.PaceUntil = 0, time.Time{}; return x })},
	"goes back when the window grows": {caught: "WindowChanges", make: settings(func(_, x store.Settings) store.Settings {
		x.ForgetBefore, x.Pace, x.PaceUntil = x.Since.Add(-x.Window), 0, time.Time{}
		return x
	})},
	"forgets the slower pace of a change before": {caught: "WindowChanges", make: settings(func(before, x store.Settings) store.Settings {
		if x.Pace != 0 {
			x.Pace = before.Window
		}
		return x
	})},
	"dates a change by another clock": {caught: "WindowChanges", make: settings(func(before, x store.Settings) store.Settings {
		return before.Changed(x.Window, x.Since.Add(30*24*time.Hour))
	})},
	"counts every call":                 {caught: "EqualWindowChangesNothing", make: func(s *fakestore.Store) store.Store { return &callCounter{Store: s} }},
	"sets any window":                   {caught: "SetWindowRefusesNonsense", make: settings(func(_, x store.Settings) store.Settings { return x })},
	"sets settings that it read before": {caught: "ConcurrentSetWindow", make: func(s *fakestore.Store) store.Store { return &stale{Store: s} }, opts: fakestore.Options{Latency: 50 * time.Millisecond}},
	"remembers the first settings":      {caught: "SettingsAreShared", make: func(s *fakestore.Store) store.Store { return &stale{Store: s, keeps: true} }},
	"expires markers an hour early":     {caught: "MarkersGoAtTheirTime", forget: func(s *fakestore.Store) { s.Expire(s.Now().Add(time.Hour)) }},
	"keeps markers for ever":            {caught: "MarkersGoAtTheirTime", forget: func(*fakestore.Store) {}},
	"drops markers by the clock":        {caught: "WrongClockForgetsNothing", forget: func(s *fakestore.Store) { s.Expire(s.Now()) }},
	"draws its identity at each open":   {caught: "CacheIdentityIsOfOneDatabase", make: func(s *fakestore.Store) store.Store { return otherIdentity{s, fakestore.New(fakestore.Options{})} }},
	"has everybody's identity":          {caught: "CacheIdentityIsOfOneDatabase", make: func(s *fakestore.Store) store.Store { return otherIdentity{s, everybody} }},
	"changes rules silently":            {caught: "RulesChange", make: ruled(changesSilently)},
	"has one rule":                      {caught: "ConcurrentRules", make: ruled(replacesRules)},
	"changes rules that it read before": {caught: "ConcurrentRules", make: ruled(changesRulesReadBefore)},
	"takes any rule":                    {caught: "RulesRefused", make: ruled(takesAnyRule)},
	"forgets rules":                     {caught: "ReopenedRules"},
	"sets buckets": {caught: "SeriesSums", make: func(s *fakestore.Store) store.Store {
		return &setting{Store: s, last: make(map[string]map[wire.Minute]int64)}
	}},
	"does not say what it bucketed":      {caught: "SeriesSums", make: func(s *fakestore.Store) store.Store { return untold{s} }},
	"answers series by name":             {caught: "SeriesOfManyCounters", make: func(s *fakestore.Store) store.Store { return unordered{s} }},
	"finds a series by a prefix":         {caught: "SeriesTakesAnyName", make: series(byPrefix)},
	"commits series after totals":        {caught: "SeriesIsOneWithItsCommit", make: folds(apartFold), opts: slow},
	"adds refused buckets":               {caught: "SeriesIsOneWithItsCommit", make: folds(bucketsAnyway)},
	"reads series unpinned":              {caught: "SeriesIsPinned", make: series(newestSeries)},
	"wraps sums of series":               {caught: "SeriesBeyondInt64", make: series(wrapsBuckets)},
	"loses what it joins":                {caught: "SweepSeriesKeepsPromises", make: series(withoutQuarters)},
	"keeps all series":                   {caught: "SweepSeriesKeepsPromises", make: func(s *fakestore.Store) store.Store { return keepingAll{s} }},
	"joins and keeps":                    {caught: "SweepSeriesBesideFolds", make: func(s *fakestore.Store) store.Store { return doubling{s} }},
	"keeps the series of swept counters": {caught: "SeriesGoesWithItsCounter", make: func(s *fakestore.Store) store.Store { return &sharing{s, make(map[string][]store.Bucket)} }},
	"forgets series":                     {caught: "ReopenedSeries"},
	"removes an index at once":           {caught: "IndexesChange", make: ruled(removesAtOnce)},
	"settles at once":                    {caught: "IndexesChange", make: ruled(settlesAtOnce)},
	"forgets when an index is served":    {caught: "IndexesChange", make: ruled(untimed)},
	"takes any index":                    {caught: "IndexesRefused", make: ruled(takesAnyIndex)},
	"forgets indexes":                    {caught: "ReopenedIndexes"},
	"swaps ranges that have changed":     {caught: "RangesSwap", make: indexing(oddIndexing{swap: swapAnyway})},
	"swaps over new ranges":              {caught: "RangesSwap", make: indexing(oddIndexing{swap: swapOver})},
	"makes ranges of no index":           {caught: "RangesEndWithTheirIndex", make: indexing(oddIndexing{swap: swapForNoIndex})},
	"leaves the first range":             {caught: "RangesEndWithTheirIndex", make: func(s *fakestore.Store) store.Store { return &leavingRanges{Store: s} }},
	"swaps few ranges":                   {caught: "RangesTakeLimits", make: indexing(oddIndexing{swap: swapFew})},
	"looks at a range, then swaps":       {caught: "OneWorkerTakesARange", make: indexing(oddIndexing{swap: lookThenSwap}), opts: slow},
	"forgets what is grouped":            {caught: "GroupedFolds", make: grouping(func(c *store.Commit) { c.Grouped = nil })},
	"groups by one index":                {caught: "GroupedFolds", make: grouping(groupsFirstOnly)},
	"groups what has no series":          {caught: "GroupedSeries", make: grouping(groupsPlainOnly)},
	"folds by old rules":                 {caught: "OldRulesRefused", make: grouping(oldRules), opts: fakestore.Options{GrowsInFold: true}},
	"loses the last shard of a page":     {caught: "UngroupedCoversEachShardOnce", make: indexing(oddIndexing{ungrouped: losesTheLastOfAPage})},
	"reads a place twice":                {caught: "UngroupedCoversEachShardOnce", make: indexing(oddIndexing{ungrouped: startsOverlap})},
	"wraps remainders of shards":         {caught: "UngroupedBeyondInt64", make: indexing(oddIndexing{ungrouped: wrapsRemainders})},
	"reads a shard at two moments":       {caught: "UngroupedBesideFolds", make: indexing(oddIndexing{ungrouped: readsTwice}), opts: slow},
	"adds remainders":                    {caught: "SetRemainders", make: indexing(oddIndexing{setRemainders: addRemainders})},
	"lists no remainders":                {caught: "SetRemainders", make: func(s *fakestore.Store) store.Store { return withoutRemainder{s} }},
	"sets remainders for anybody":        {caught: "SetRemaindersNeedsTheRange", make: indexing(oddIndexing{setRemainders: setAnybodys})},
	"sets few remainders":                {caught: "SetRemaindersTakesLimits", make: indexing(oddIndexing{setRemainders: setFew})},
	"cleans names of groups":             {caught: "RemaindersTakeAnyName", make: indexing(oddIndexing{setRemainders: setCleaned})},
	"finds remainders by a prefix":       {caught: "RemaindersTakeAnyName", make: func(s *fakestore.Store) store.Store { return prefixing{s} }},
	"wraps remainders of groups":         {caught: "RemaindersBeyondInt64", make: views(func(v *odd) { v.wraps = true })},
	"moves a remainder that it read before": {caught: "RemaindersBesideGrowths", make: func(s *fakestore.Store) store.Store {
		return &racing{Store: s, remainders: make(map[string]int128.Int)}
	}},
	"drops the parts of all indexes":    {caught: "DropGrouped", make: indexing(oddIndexing{drop: dropAll})},
	"drops the parts of a page":         {caught: "DropGrouped", make: indexing(oddIndexing{drop: dropFirst})},
	"drops groups in force":             {caught: "DropGroups", make: indexing(oddIndexing{groups: dropGroupsAnyway})},
	"drops no groups":                   {caught: "DropGroups", make: indexing(oddIndexing{groups: dropNone})},
	"sweeps counters of indexes":        {caught: "SweepKeepsCountersOfIndexes", make: ruled(apart)},
	"sweeps no groups":                  {caught: "SweepTakesGroups", make: func(s *fakestore.Store) store.Store { return untidy{s} }},
	"gives new values to a repeat":      {caught: "SequenceRemembersIDs", make: nexts(givesAgain)},
	"gives one value to all takes":      {caught: "SequenceGivesEachOnce", make: nexts(givesFirst)},
	"reads and then writes a sequence":  {caught: "SequencesBesideEachOther", make: func(s *fakestore.Store) store.Store { return &numbering{Store: s, last: map[string]int64{}} }, opts: slow},
	"writes the marker afterwards":      {caught: "RepeatsBesideEachOther", make: nexts(markAfter), opts: fakestore.Options{Latency: time.Millisecond}},
	"begins again after a delete":       {caught: "SequenceIsDeleted", make: func(s *fakestore.Store) store.Store { return &restarting{Store: s, begins: map[string]string{}} }},
	"counts past the end":               {caught: "SequenceEnds", make: nexts(wraps)},
	"forgets sequences":                 {caught: "ReopenedSequences"},
	"journals refused commits":          {caught: "JournalIsOneWithItsCommit", make: journals(journaling{fold: recordsFirst})},
	"pages forward only":                {caught: "JournalPages", make: journals(journaling{records: alwaysFirst})},
	"confuses rows":                     {caught: "JournalRows", make: journals(journaling{rows: rowsOfAny})},
	"settles before commits":            {caught: "JournalSettles", make: journals(journaling{moment: momentsOver}), opts: slowMachines},
	"replaces records blindly":          {caught: "ReplaceRecord", make: journals(journaling{replace: replacesBlindly})},
	"keeps replaced rows":               {caught: "ReplaceRecord", make: journals(journaling{replace: keepsRows})},
	"keeps records for ever":            {caught: "SweepJournal", make: journals(journaling{sweep: neverSweeps})},
	"forgets the journal":               {caught: "ReopenedJournal"},
	"views the newest journal":          {caught: "JournalView", opts: fakestore.Options{Unpinned: true}},
	"views records of other moments":    {caught: "JournalViewIsOfOneMoment", make: journals(journaling{fold: recordsBefore})},
	"counts corrected buckets":          {caught: "Corrections", make: journals(journaling{fold: countsCorrections})},
	"sums positive counters only":       {caught: "SumsAreTotals", make: boards(summing{sums: spoils(positiveOnly)})},
	"sums no overflow group":            {caught: "SumsOfGroups", make: boards(summing{sums: spoils(withoutOverflowGroup)})},
	"sums the overflow group twice":     {caught: "SumsOfGroupsOfAnyName", make: boards(summing{sums: overflowTwice})},
	"sums a minute more":                {caught: "SumsOfMinutes", make: boards(summing{sums: minuteMore})},
	"sums at two moments":               {caught: "SumsAreOfOneMoment", make: boards(summing{sums: twoMoments}), opts: slow},
	"visits on after an error":          {caught: "SumsEndWithTheirVisitor", make: boards(summing{sums: visitsOn})},
	"shows windows of deleted counters": {caught: "SumsHideDeletedCounters", make: boards(summing{sums: showsDeleted})},
	"counts no changes":                 {caught: "ChangesAreCounted", make: boards(summing{still: true}), opts: machines},
	"counts changes after its sums":     {caught: "ChangesAreCounted", make: boards(summing{sums: changesLater}), opts: machines},
	"believes the clock":                {caught: "WrongClockForgetsNothing", make: settings(func(_, x store.Settings) store.Settings { return x })},
}

// machines is a store that uses its machine's clock.
var machines = fakestore.Options{GrowsInFold: true, Latency: 50 * time.Microsecond, Age: func() time.Duration { return 0 }}

// slowMachines is one whose commits take long enough for a reader to come in between on a busy machine too.
var slowMachines = fakestore.Options{GrowsInFold: true, Latency: 200 * time.Microsecond, Age: func() time.Duration { return 0 }}

// slow gives a defect that acts between two calls as much time as a real store would.
var slow = fakestore.Options{Latency: 50 * time.Microsecond}

// TestSuiteSeesDefects runs the suite on each defective store in another process, where it must fail.
func TestSuiteSeesDefects(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, defect := range defects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), exe, "-test.run", "^TestDefectiveStore$/^"+defect.caught+"$", "-test.timeout", "5m")
			cmd.Env = append(os.Environ(), defectEnv+"="+name)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestDefectiveStore/"+defect.caught) {
				t.Errorf("%s does not see a store that %s (%v):\n%s", defect.caught, name, err, out)
			}
		})
	}
}

func TestDefectiveStore(t *testing.T) {
	name := os.Getenv(defectEnv)
	if name == "" {
		t.Skip("runs in the other process of TestSuiteSeesDefects")
	}
	defect := defects[name]
	wrap := func(s *fakestore.Store) store.Store {
		if defect.make == nil {
			return s
		}
		return defect.make(s)
	}
	open := func(*testing.T) store.Store { return wrap(fakestore.New(defect.opts)) }
	set := func(s store.Store, off time.Duration) {
		if s, ok := s.(*turning); ok {
			s.off.Store(int64(off))
		}
	}
	storetest.RunStore(t, open, storetest.Slow(), storetest.Clock(set),
		storetest.Durable(func(t *testing.T, _ store.Store) store.Store { return open(t) }),
		storetest.Shared(func(_ *testing.T, s store.Store, _ time.Duration) store.Store { return wrap(below(s)) }),
		storetest.RemovesByTime(defect.remove),
		storetest.RemovesByForgetBefore(func(_ *testing.T, m *storetest.Machine) store.Store {
			opts := defect.opts
			opts.Clock, opts.Age = m.Now, m.Age
			return wrap(fakestore.New(opts))
		}, defect.remove))
}

type foldFunc func(ctx context.Context, s *fakestore.Store, c *store.Commit) (store.CommitResult, error)

type folding struct {
	*fakestore.Store
	fold foldFunc
}

func (f folding) Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error) {
	return f.fold(ctx, f.Store, c)
}

func folds(fold foldFunc) func(*fakestore.Store) store.Store {
	return func(s *fakestore.Store) store.Store { return folding{s, fold} }
}

// splitting shows half of its first commit until a view that saw it is closed, or for half a minute.
type splitting struct {
	*fakestore.Store
	once sync.Once

	mu   sync.Mutex
	seen time.Time // the latest moment of a closed view
}

func splitAdds(s *fakestore.Store) store.Store { return &splitting{Store: s} }

func (s *splitting) Fold(ctx context.Context, c *store.Commit) (store.CommitResult, error) {
	if len(c.Adds) < 2 {
		return s.Store.Fold(ctx, c)
	}
	first, err := s.Store.Fold(ctx, &store.Commit{Markers: c.Markers, Adds: c.Adds[:1]})
	if err != nil {
		return first, err
	}
	s.once.Do(func() {
		for since := time.Now(); !s.saw(first.At) && time.Since(since) < 30*time.Second; {
			time.Sleep(time.Millisecond)
		}
	})
	rest, err := s.Store.Fold(ctx, &store.Commit{Adds: c.Adds[1:]})
	rest.Shards = append(first.Shards, rest.Shards...)
	return rest, err
}

func (s *splitting) saw(at time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.seen.Before(at)
}

func (s *splitting) View() store.View { return reporting{s.Store.View(), s} }

// reporting reports its moment when it is closed.
type reporting struct {
	store.View
	store *splitting
}

func (v reporting) Close() {
	at := v.ReadTime()
	v.View.Close()
	v.store.mu.Lock()
	defer v.store.mu.Unlock()
	if at.After(v.store.seen) {
		v.store.seen = at
	}
}

func growFirst(ctx context.Context, s *fakestore.Store, c *store.Commit) (store.CommitResult, error) {
	if err := s.Grow(ctx, c.Growths); err != nil {
		return store.CommitResult{}, err
	}
	return s.Fold(ctx, c)
}

func foldOnly(ctx context.Context, s *fakestore.Store, c *store.Commit) (store.CommitResult, error) {
	return s.Fold(ctx, &store.Commit{Markers: c.Markers, Adds: c.Adds})
}

func checkThenAct(ctx context.Context, s *fakestore.Store, c *store.Commit) (store.CommitResult, error) {
	for _, m := range c.Markers {
		if found, err := s.Applied(ctx, []wire.PartID{m.ID}); err != nil || len(found) > 0 {
			return store.CommitResult{}, errors.Join(err, store.ErrMarkerExists)
		}
	}
	folded, err := s.Fold(ctx, &store.Commit{Adds: c.Adds})
	if len(c.Markers) > 0 {
		_, _ = s.Fold(ctx, &store.Commit{Markers: c.Markers})
	}
	return folded, err
}

// deny treats the end of a context as proof that the fold never began.
func deny(ctx context.Context, s *fakestore.Store, c *store.Commit) (store.CommitResult, error) {
	folded, err := s.Fold(context.WithoutCancel(ctx), c)
	if ctx.Err() != nil {
		return folded, store.ErrNotApplied
	}
	return folded, err
}

func loseSome(s *fakestore.Store) store.Store {
	s.OnFold(func(n int, _ *store.Commit) fakestore.Answer {
		if n%100 == 0 {
			return fakestore.NotCounted
		}
		return fakestore.OK
	})
	return folding{s, func(ctx context.Context, s *fakestore.Store, c *store.Commit) (store.CommitResult, error) {
		folded, err := s.Fold(ctx, c)
		if errors.Is(err, store.ErrNotCounted) {
			return folded, nil
		}
		return folded, err
	}}
}

// turning uses a clock that a test sets.
type turning struct {
	*fakestore.Store
	off atomic.Int64
}

func (s *turning) View() store.View { return turned{s.Store.View(), s} }

type turned struct {
	store.View
	store *turning
}

func (v turned) ReadTime() time.Time { return v.View.ReadTime().Add(time.Duration(v.store.off.Load())) }

func reportsAll(s *fakestore.Store) store.Store {
	n := int64(0)
	return folding{s, func(ctx context.Context, s *fakestore.Store, c *store.Commit) (store.CommitResult, error) {
		folded, err := s.Fold(ctx, c)
		for i := range folded.Shards {
			n++
			folded.Shards[i].Tally = n
		}
		return folded, err
	}}
}

func reportsLast(s *fakestore.Store) store.Store {
	return folding{s, func(ctx context.Context, s *fakestore.Store, c *store.Commit) (store.CommitResult, error) {
		folded, err := s.Fold(ctx, c)
		if c.KnownShards != nil {
			for i := range folded.Shards {
				folded.Shards[i].KnownShards = c.KnownShards[i]
			}
		}
		return folded, err
	}}
}

func reportsRefused(s *fakestore.Store) store.Store {
	return folding{s, func(ctx context.Context, s *fakestore.Store, c *store.Commit) (store.CommitResult, error) {
		folded, err := s.Fold(ctx, c)
		if errors.Is(err, store.ErrMarkerExists) {
			folded.Shards = make([]store.ShardStats, len(c.Adds))
		}
		return folded, err
	}}
}

func cleanNames(ctx context.Context, s *fakestore.Store, c *store.Commit) (store.CommitResult, error) {
	for _, a := range c.Adds {
		a = store.NewShardDelta(path.Clean(a.Counter), a.Shard, a.Delta)
		if _, err := s.Fold(ctx, &store.Commit{Adds: []store.ShardDelta{a}}); err != nil {
			return store.CommitResult{}, err
		}
	}
	return store.CommitResult{}, nil
}

func ignoreContext(ctx context.Context, s *fakestore.Store, c *store.Commit) (store.CommitResult, error) {
	return s.Fold(context.WithoutCancel(ctx), c)
}

// lazy applies a commit when it gets the next one.
type lazy struct {
	*fakestore.Store
	last *store.Commit
}

func (l *lazy) Fold(_ context.Context, c *store.Commit) (store.CommitResult, error) {
	l.last = c
	return store.CommitResult{}, nil
}

func (l *lazy) View() store.View {
	_, _ = l.Store.Fold(context.Background(), l.last)
	return l.Store.View()
}

type coarse struct{ *fakestore.Store }

func (c coarse) Applied(ctx context.Context, ids []wire.PartID) ([]store.Marker, error) {
	found, err := c.Store.Applied(ctx, ids)
	for i := range found {
		found[i].At, found[i].ExpireAt = time.Time{}, found[i].ExpireAt.Truncate(time.Millisecond)
	}
	return found, err
}

type lowering struct {
	*fakestore.Store
	last map[string]int
}

func (l *lowering) Grow(ctx context.Context, growths []store.Growth) error {
	for _, r := range growths {
		l.last[r.Counter] = r.Shards
	}
	return l.Store.Grow(ctx, growths)
}

func (l *lowering) Shards(_ context.Context, counters []string) ([]int, error) {
	shards := make([]int, len(counters))
	for i, c := range counters {
		shards[i] = l.last[c]
	}
	return shards, nil
}

// An odd view is wrong in one way.
type odd struct {
	store.View
	wraps bool
	shift time.Duration
	more  int
}

type oddViews struct {
	*fakestore.Store
	spoil func(*odd)
}

func views(spoil func(*odd)) func(*fakestore.Store) store.Store {
	return func(s *fakestore.Store) store.Store { return oddViews{s, spoil} }
}

func (s oddViews) View() store.View {
	v := &odd{View: s.Store.View()}
	s.spoil(v)
	return v
}

func (v *odd) Lookup(ctx context.Context, keys []store.Key) ([]store.Value, error) {
	values, err := v.View.Lookup(ctx, keys)
	for i := range values {
		if value := &values[i]; v.wraps {
			value.Count, value.Remainder = wrapped(value.Count), wrapped(value.Remainder)
		}
	}
	return values, err
}

// wrapped is what 64 bits keep of a sum.
func wrapped(sum int128.Int) int128.Int { return int128.Of(int64(sum.Lo)) }

func (v *odd) List(ctx context.Context, prefix, after string, limit int) ([]store.Record, error) {
	return v.View.List(ctx, prefix, after, limit+v.more)
}

func (v *odd) ReadTime() time.Time { return v.View.ReadTime().Add(v.shift) }

type restoring struct {
	*fakestore.Store
	dug int
}

func (g *restoring) PutDeadLetters(ctx context.Context, letters []store.DeadLetter) error {
	g.dug++
	for _, d := range letters {
		d.Key += strings.Repeat("+", g.dug)
		if err := g.Store.PutDeadLetters(ctx, []store.DeadLetter{d}); err != nil {
			return err
		}
	}
	return nil
}

type keeping struct{ *fakestore.Store }

func (keeping) DeleteDeadLetters(ctx context.Context, _ []string) error { return ctx.Err() }

// shuffling finds letters in the order of their keys.
type shuffling struct{ *fakestore.Store }

func (s shuffling) GetDeadLetters(ctx context.Context, keys []string) ([]store.DeadLetter, error) {
	return s.Store.GetDeadLetters(ctx, slices.Sorted(slices.Values(keys)))
}

// forgetful omits a shard at the end of a full page.
type forgetful struct{ *fakestore.Store }

func (s forgetful) ShardPage(ctx context.Context, prefix, from string, limit int) (store.ShardPage, error) {
	page, err := s.Store.ShardPage(ctx, prefix, from, limit)
	if page.Next != "" {
		page.Shards = page.Shards[1:]
	}
	return page, err
}

type purging struct{ *fakestore.Store }

func (p purging) DeleteDeadLetters(ctx context.Context, keys []string) error {
	for _, d := range p.DeadLetters() {
		for _, key := range keys {
			if d.Key <= key {
				keys = append(keys, d.Key)
				break
			}
		}
	}
	return p.Store.DeleteDeadLetters(ctx, keys)
}

// agreeing returns the requested number, even if the record names another one.
type agreeing struct{ *fakestore.Store }

func (a agreeing) GrowCounter(ctx context.Context, counter string, shards int) (int, error) {
	_, err := a.Store.GrowCounter(ctx, counter, shards)
	return shards, err
}

type resetting struct {
	*fakestore.Store
	spoil func(*store.ResetRequest)
}

func (s resetting) ResetCounter(ctx context.Context, r store.ResetRequest) (store.ResetResult, error) {
	s.spoil(&r)
	return s.Store.ResetCounter(ctx, r)
}

func resets(spoil func(*store.ResetRequest)) func(*fakestore.Store) store.Store {
	return func(s *fakestore.Store) store.Store { return resetting{s, spoil} }
}

// resetToPresent also removes increments that were folded since the look-up.
func resetToPresent(s *fakestore.Store) store.Store {
	return resetting{s, func(r *store.ResetRequest) { r.Look.Sum = int128.Of(s.Total(r.Counter)) }}
}

// resetUnseen applies a reset whether or not its look-up has seen the last one.
func resetUnseen(s *fakestore.Store) store.Store {
	return resetting{s, func(r *store.ResetRequest) {
		v := s.View()
		defer v.Close()
		if values, err := v.Lookup(context.Background(), []store.Key{{Counter: r.Counter, Shard: store.RecordKey}}); err == nil {
			r.Look.ResetAt = values[0].Reset.ResetAt
		}
	}}
}

// waiting refuses resets until the clock is past the last one.
type waiting struct {
	*fakestore.Store
	last time.Time
}

func (w *waiting) ResetCounter(ctx context.Context, r store.ResetRequest) (store.ResetResult, error) {
	if r.Look.At.Before(w.last) {
		return store.ResetResult{}, countmill.ErrUnavailable
	}
	w.last = r.Look.At
	return w.Store.ResetCounter(ctx, r)
}

type showing struct{ *fakestore.Store }

func (s showing) Shards(ctx context.Context, counters []string) ([]int, error) {
	v := s.View()
	defer v.Close()
	shards := make([]int, len(counters))
	for i, c := range counters {
		values, err := v.Lookup(ctx, []store.Key{{Counter: c, Shard: store.RecordKey}})
		if err != nil {
			return nil, err
		}
		shards[i] = values[0].Shards
	}
	return shards, nil
}

type hasty struct{ *fakestore.Store }

func (h hasty) SweepCounters(ctx context.Context, _ time.Duration) (int, error) {
	return h.Store.SweepCounters(ctx, 0)
}

type untidy struct{ *fakestore.Store }

func (untidy) SweepCounters(ctx context.Context, _ time.Duration) (int, error) { return 0, ctx.Err() }
