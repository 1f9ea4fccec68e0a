package sim

import (
	"math/rand/v2"
	"time"

	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// drawJournal draws the counters that have a journal, and for how many days: none, some or all.
func (pl *plan) drawJournal() {
	rng := rand.New(rand.NewPCG(pl.seed, 0x6a6f75726e616c))
	pl.journal = []map[string]int{nil, {"a": 30, "page:*": 400}, {"*": 60, "a": 30}}[rng.IntN(3)]
}

// addJournal writes these rules into the database, before anything is counted.
func (db *database) addJournal() {
	for _, pattern := range []string{"*", "a", "page:*"} {
		if days := db.plan.journal[pattern]; days > 0 {
			keep := store.JournalChange{Keep: time.Duration(days) * 24 * time.Hour}
			must(db.fake.ChangeRules(background, store.RuleChange{Pattern: pattern, Journal: &keep}))
		}
	}
}

// JournalMoment is a call that does not reach the store.
func (s *simStore) JournalMoment(now time.Time) (at time.Time, done func()) {
	return s.fake.JournalMoment(now)
}

// A journalOracle compares the journal with all that was ever added.
type journalOracle struct {
	*kernel
	db    *database
	added map[string]int64
}

func newJournalOracle(k *kernel, db *database) *journalOracle {
	return &journalOracle{k, db, make(map[string]int64)}
}

func (jo *journalOracle) applied(c *store.Commit) {
	for _, a := range c.Adds {
		jo.added[a.Counter] += a.Delta
	}
}

// check: the journal has each applied part once, and of counters under a rule nothing else.
func (jo *journalOracle) check() {
	if jo.plan.journal == nil {
		return
	}
	rules := must(jo.db.fake.Check(background)).Settings.Rules
	type once struct {
		part    wire.PartID
		counter string
	}
	seen, kept := make(map[once]bool), make(map[string]int64)
	for _, r := range jo.db.fake.Journaled() {
		content, err := journal.Decode(r.Data)
		if err != nil {
			jo.violate("record %x of the journal: %v", r.Key, err)
			return
		}
		content.Lines(r.Key, func(l journal.Line) {
			key := once{l.Part.ID, l.Entry.Counter}
			if seen[key] {
				jo.violate("part %s of %s is in the journal twice", l.Part.ID, l.Entry.Counter)
			}
			seen[key] = true
			kept[l.Entry.Counter] += l.Entry.Delta // of counters whose sums wrap both sides wrap
		})
	}
	for counter, n := range kept {
		if rules.JournalOf(counter) == nil {
			jo.violate("%s is in the journal with %d, and has no rule", counter, n)
		}
	}
	for counter, n := range jo.added {
		if rules.JournalOf(counter) != nil && kept[counter] != n {
			jo.violate("the journal of %s sums to %d, and %d was added", counter, kept[counter], n)
		}
	}
	jo.recount()
}
