package aggregator_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

func keepJournal(t *testing.T, st *protocoltest.Store, pattern, keep string) {
	t.Helper()
	change, err := store.ParseRetention(store.KindJournal, keep)
	if err == nil {
		_, err = st.ChangeRules(t.Context(), store.RuleChange{Kind: store.KindJournal, Pattern: pattern, Keep: change})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A kept entry is one of the journal, without its place.
type kept struct {
	Counter, Sender string
	Delta           int64
	Part            wire.PartID
	Minute          wire.Minute
}

func journalOf(t *testing.T, st *protocoltest.Store) (all []kept) {
	t.Helper()
	for _, r := range st.Journaled() {
		content, err := journal.Decode(r.Data)
		if err != nil {
			t.Errorf("record %x: %v", r.Key, err)
		}
		content.Lines(r.Key, func(l journal.Line) {
			all = append(all, kept{l.Entry.Counter, l.Part.Sender, l.Entry.Delta, l.Part.ID, l.Part.Minute})
		})
	}
	return all
}

// wantJournal compares the journal with the totals of the counters with a prefix: each part is in it
// once, and nothing else is.
func wantJournal(t *testing.T, st *protocoltest.Store, totals map[string]int64, prefixes ...string) {
	t.Helper()
	want, got := make(map[string]int64), make(map[string]int64)
	for counter, n := range totals {
		if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(counter, prefix) }) {
			want[counter] = n
		}
	}
	seen := make(map[kept]bool)
	for _, e := range journalOf(t, st) {
		got[e.Counter] += e.Delta
		one := kept{Counter: e.Counter, Part: e.Part}
		if seen[one] {
			t.Errorf("part %s of %q is in the journal twice", e.Part, e.Counter)
		}
		seen[one] = true
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the journal's sums and the totals differ (-totals +journal):\n%s", diff)
	}
}

// A record has the entries with a rule of each part that its commit applies, with their minute, sender
// and id.
func TestARecordSaysWhatItsPartsSay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := large(t)
		keepJournal(t, st, "billing:*", "400d")
		r := run(t, st, aggregator.Config{})
		settle(time.Second)
		now := wire.MinuteOf(st.Now())
		first := at(anonymous(one("billing:a", 5), one("page:x", 1)), now-100)
		first.Sender = "shop"
		ahead := at(wire.CutIdentified(countmill.Increment{Counter: "billing:b", Delta: 2, ID: "e1"}), now+9000)
		keyed, err := wire.CutRequest("web", "k", []countmill.Increment{{Counter: "billing:a", Delta: 7}, {Counter: "x", Delta: 1}})
		if err != nil {
			t.Fatal(err)
		}
		keyed[0].Minute = now
		r.send(t, append([]wire.Part{first, ahead, anonymous(one("y", 1))}, keyed...)...)
		settle(2 * time.Second)
		want := map[kept]bool{
			{"billing:a", "shop", 5, first.ID, now - 100}: true,
			{"billing:b", "", 2, ahead.ID, now}:           true,
			{"billing:a", "web", 7, keyed[0].ID, now}:     true,
		}
		got := make(map[kept]bool)
		for _, e := range journalOf(t, st) {
			got[e] = true
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the journal (-want +got):\n%s", diff)
		}
		records := st.Journaled()
		if len(records) != 1 {
			t.Fatalf("%d records of one commit, want 1", len(records))
		}
		if at := records[0].Key.Time(); !records[0].ExpireAt.Equal(at.Add(400*24*time.Hour)) || st.Now().Sub(at).Abs() > time.Minute {
			t.Errorf("a record of %s stays until %s", at, records[0].ExpireAt)
		}
	})
}

// A commit has a record for each 512 KiB of a retention, and rows only of paged counters.
func TestRecordsAreCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := strict(t, protocoltest.Options{Entities: 1 << 20, GrowsInFold: true, CertainOutcome: true})
		keepJournal(t, st, "long*", "400d")
		keepJournal(t, st, "paged*", "400d,paged")
		keepJournal(t, st, "short*", "30d")
		r := run(t, st, aggregator.Config{})
		settle(time.Second)
		want := make(map[string]int64)
		var parts []wire.Part
		for i := range 150 {
			var entries []wire.Entry
			for k := range wire.MaxEntries {
				e := wire.Entry{Counter: fmt.Sprintf("%s-%0490d", []string{"long", "paged", "short"}[k%3], k), Delta: int64(i + 1)}
				want[e.Counter] += e.Delta
				entries = append(entries, e)
			}
			slices.SortFunc(entries, func(a, b wire.Entry) int { return int(wire.Order(a.Counter)>>1) - int(wire.Order(b.Counter)>>1) })
			parts = append(parts, anonymous(entries...))
		}
		// Two messages, of one window.
		r.send(t, parts[:40]...)
		r.send(t, parts[40:80]...)
		r.send(t, parts[80:120]...)
		r.send(t, parts[120:]...)
		settle(2 * time.Second)
		if folds := st.Counts().Folds; folds != 1 {
			t.Fatalf("%d folds, want 1", folds)
		}
		byKeep := make(map[time.Duration]int)
		for _, rec := range st.Journaled() {
			byKeep[rec.ExpireAt.Sub(rec.Key.Time())]++
			if len(rec.Data) > store.MaxJournalRecord {
				t.Errorf("a record of %d bytes", len(rec.Data))
			}
		}
		// 150 parts have 1.2 MB of entries of 400 days, and 0.6 MB of 30 days.
		if diff := cmp.Diff(map[time.Duration]int{400 * 24 * time.Hour: 3, 30 * 24 * time.Hour: 2}, byKeep); diff != "" {
			t.Errorf("records by retention (-want +got):\n%s", diff)
		}
		wantJournal(t, st, want, "long", "paged", "short")
		settle(2 * store.JournalSettle)
		for counter := range maps.Keys(want) {
			v := st.JournalView()
			page, err := v.JournalRows(t.Context(), counter, store.JournalQuery{Limit: 1000})
			v.Close()
			if n := 150 * strings.Count(counter, "paged"); err != nil || len(page.Rows) != n {
				t.Errorf("%d rows of %.6s, %v, want %d", len(page.Rows), counter, err, n)
			}
		}
	})
}
