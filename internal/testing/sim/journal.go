package sim

import (
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/clock"
	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/internal/recount"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// A journalOracle compares the journal with all that was ever added, and what its readers saw with the journal.
type journalOracle struct {
	*World
}

// lines visits all entries of the journal in their order.
func (jo *journalOracle) lines(visit func(journal.Line)) {
	for _, r := range jo.db.journaled() {
		content, err := journal.Decode(r.Data)
		if err != nil {
			jo.violate("record %x of the journal: %v", r.Key, err)
			return
		}
		content.Lines(r.Key, visit)
	}
}

// check: the journal has each applied part once, and of counters under a rule nothing else.
func (jo *journalOracle) check() {
	if jo.plan.journal == nil {
		return
	}
	rules := jo.db.rulesNow()
	type once struct {
		part    wire.PartID
		counter string
	}
	seen, kept := make(map[once]bool), make(map[string]int64)
	jo.lines(func(l journal.Line) {
		key := once{l.Part.ID, l.Entry.Counter}
		if seen[key] {
			jo.violate("part %s of %s is in the journal twice", l.Part.ID, l.Entry.Counter)
		}
		seen[key] = true
		kept[l.Entry.Counter] += l.Entry.Delta // of counters whose sums wrap both sides wrap
	})
	for counter, n := range kept {
		if rules.JournalOf(counter) == nil {
			jo.violate("%s is in the journal with %d, and has no rule", counter, n)
		}
	}
	for counter, n := range jo.totals.folded {
		if rules.JournalOf(counter) != nil && kept[counter] != n {
			jo.violate("the journal of %s sums to %d, and %d was added", counter, kept[counter], n)
		}
	}
	jo.recount()
}

// newest is the time of the newest entry.
func (jo *journalOracle) newest() (at time.Time) {
	if records := jo.db.journaled(); len(records) > 0 {
		at = records[len(records)-1].Key.Time()
	}
	return at
}

// checkWalk: the pages of a walk have each entry of the counter in their range once, in the order of the keys. Entries
// that came after a page are not before its end.
func (jo *journalOracle) checkWalk(w *walk) {
	got := w.entries
	if w.back {
		got = slices.Clone(got)
		slices.Reverse(got)
	}
	jo.lines(func(l journal.Line) {
		if l.Entry.Counter != w.counter || !w.passed(l.Place.String(), l.Place.Key.Time()) {
			return
		}
		key := l.Place.String()
		switch {
		case len(got) == 0 || got[0].Key > key:
			jo.violate("the pages of %s do not have the entry %s (backward: %t)", w.counter, key, w.back)
		case got[0].Key < key || got[0].Delta != l.Entry.Delta || got[0].Part != l.Part.ID:
			jo.violate("the pages of %s have the entry %s twice, or the journal has another one (backward: %t)", w.counter, got[0].Key, w.back)
			got = nil
		default:
			got = got[1:]
		}
	})
	if len(got) > 0 {
		jo.violate("the pages of %s have the entry %s, and the journal does not (backward: %t)", w.counter, got[0].Key, w.back)
	}
}

// passed reports whether an entry is in the range that the walk has read.
func (w *walk) passed(key string, at time.Time) bool {
	switch {
	case w.back:
		return key < w.start && !at.After(w.settled) && (!w.open || key >= w.key)
	case w.open:
		return key <= w.key
	}
	return !at.After(w.settled)
}

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

// recounter recounts the database by its clock. The same schedule writes the same records.
func (db *database) recounter() *recount.Recounter {
	return recount.New(db.own, clock.With(recount.Config{}, &clock.Env{
		Wall: func() time.Time { return db.storeNow() }, Random: rand.NewPCG(db.plan.seed, 0x7265636f756e74), Entropy: rand.NewChaCha8([32]byte{7}),
	}))
}

// openJournal writes opening balances before anything is counted. Where commits by older rules could still come it
// writes none, and nothing is recounted.
func (db *database) openJournal() {
	if db.plan.journal != nil {
		if _, err := db.recounter().Tend(background, slog.New(slog.DiscardHandler)); err != nil {
			panic(err)
		}
	}
}

// recount: whatever happened, no sum of a counter with a journal differs from it. A disk that was full may refuse for some seconds more.
func (jo *journalOracle) recount() {
	got, err := jo.db.recounter().Recount(background, recount.Query{})
	for until := time.Now().Add(time.Minute); errors.Is(err, countmill.ErrUnavailable) && time.Now().Before(until); {
		<-time.After(time.Second)
		got, err = jo.db.recounter().Recount(background, recount.Query{})
	}
	must(got, err)
	for i := range got.Findings {
		f := &got.Findings[i]
		jo.violate("a recount finds a wrong %s of %s: %d stored, %d in the journal", f.Kind, f.Name, f.Stored, f.Counted)
	}
}
