package sim

import (
	"math"
	"slices"
	"time"

	"github.com/countmill/countmill/internal/journal"
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

// checkRows: while a rule has rows, each entry of its counters has one. No row is without its entry. All is settled.
func (jo *journalOracle) checkRows() {
	rules, rows := jo.db.rulesNow(), make(map[string][]store.JournalRow)
	jo.lines(func(l journal.Line) {
		counter := l.Entry.Counter
		if _, ok := rows[counter]; !ok {
			rows[counter] = jo.rowsOf(counter)
		}
		if left := rows[counter]; len(left) > 0 && left[0].Place == l.Place {
			if row, err := journal.DecodeRow(&left[0]); err != nil || *row.Entry != (journal.Entry{Counter: counter, Delta: l.Entry.Delta}) || row.Part.ID != l.Part.ID {
				jo.violate("the row of the entry %s of %s has something else", l.Place, counter)
			}
			rows[counter] = left[1:]
			return
		}
		if from, ok := rules.PagedFrom(counter); ok && !l.Place.Key.Time().Before(from) {
			jo.violate("the entry %s of %s has no row", l.Place, counter)
		}
	})
	for counter, left := range rows {
		if len(left) > 0 {
			jo.violate("the row %s of %s is out of order, or has no entry", left[0].Place, counter)
		}
	}
}

// rowsOf returns all rows of a counter.
func (jo *journalOracle) rowsOf(counter string) []store.JournalRow {
	v := jo.db.own.JournalView()
	defer v.Close()
	return must(v.JournalRows(background, counter, store.JournalQuery{Limit: math.MaxInt32})).Rows
}
