package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/countmill/countmill/store"
)

// pagePlan has the choices of a schedule whose journal is read while it grows.
type pagePlan struct {
	paged map[string]bool // the patterns of plan.journal that begin with rows
	limit int             // entries of a page
}

// drawJournal draws the counters that have a journal, and for how many days: none, some or all.
func (pl *plan) drawJournal() {
	rng := pl.rng
	pl.journal = []map[string]int{nil, {"a": 300, "page:*": 400}, {"*": 360, "a": 300}}[rng.IntN(3)]
}

// drawPages draws the schedules whose journal is read.
func (pl *plan) drawPages() {
	rng := pl.rng
	often := 4
	if pl.embedded {
		often = 2
	}
	if pl.journal == nil || rng.IntN(often) > 0 || pl.crowd != nil || pl.contest != nil {
		return
	}
	pl.pages = &pagePlan{paged: make(map[string]bool), limit: 1 + rng.IntN(4)}
	for _, pattern := range slices.Sorted(maps.Keys(pl.journal)) {
		pl.pages.paged[pattern] = rng.IntN(2) == 0
	}
	pl.rates[RulesSettled], pl.rates[JournalRuled] = 0.3, 0.3
	pl.shape.entities = max(pl.shape.entities, 120) // a part of 24 counters may write 24 rows more
	pl.shape.eventRate = max(pl.shape.eventRate, 0.04)
	pl.shape.minSteps += 60
	pl.shape.works += 12
	if pl.embedded {
		pl.rates[RulesSettled] = 0 // its store knows the attempts under way
		return
	}
	// A record has the time that its aggregator takes for the store's.
	pl.rates[ClockJumps], pl.rates[StoreClockJumps] = 0, 0
	pl.rates[Suspended], pl.rates[FoldLate] = 0.3, 0.2 // commits that come as late as they can
}

// journals reports whether a counter has a journal. Rules for it never go.
func (pl *plan) journals(counter string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(pl.journal)), func(pattern string) bool { return (&store.Rule{Pattern: pattern}).Matches(counter) })
}

// addJournal writes the rules into the database, before anything is counted.
func (db *database) addJournal() {
	for _, pattern := range []string{"*", "a", "page:*"} {
		if days := db.plan.journal[pattern]; days > 0 {
			keep := store.Retention{Entries: time.Duration(days) * 24 * time.Hour}
			keep.Paged = db.pages != nil && db.pages.paged[pattern]
			must(db.other.ChangeRules(background, store.RuleChange{Kind: store.KindJournal, Pattern: pattern, Keep: keep}))
		}
	}
}

// settleJournal lets time pass until no commit can add anything to the journal.
func (w *World) settleJournal() {
	if !w.embedded {
		w.pass(store.JournalSettle + time.Minute)
	}
}
