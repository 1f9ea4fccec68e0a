package admin_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

func TestRecordsOfTheJournalAreAskedForByThePage(t *testing.T) {
	t.Parallel()
	e := newEvidence()
	j := admin.NewJournal(e, time.Minute)
	for limit, fits := range map[int]bool{0: false, 1: true, admin.MaxJournalPage: true, admin.MaxJournalPage + 1: false} {
		_, err := j.Records(t.Context(), store.JournalQuery{Limit: limit})
		if field, ok := errors.AsType[*countmill.FieldError](err); ok == fits || !fits && (field.Field != "limit" || field.Limit != "1 to 1000") {
			t.Errorf("limit %d: got %v", limit, err)
		}
	}
	if calls := e.Calls("scan journal"); calls != 2 {
		t.Errorf("%d calls of the store, want 2", calls)
	}
}

// erasing has one record, and makes interrupt happen before each change of it. The interrupt's own
// changes are not interrupted.
func erasing(t *testing.T, names []string, interrupt func(n int, e *evidence, j *admin.Journal)) (*evidence, *admin.Journal) {
	t.Helper()
	e := newEvidence()
	e.rule(t, "*", "30d,paged")
	e.fold(t, wire.PartID{1}, names...)
	j := admin.NewJournal(e, 24*time.Hour)
	n, inside := 0, false
	e.On("tx journal", func(int) protocoltest.Answer {
		if !inside {
			inside = true
			n++
			interrupt(n, e, j)
			inside = false
		}
		return protocoltest.OK
	})
	return e, j
}

// mustErase erases the entries of a counter.
func (e *evidence) mustErase(t *testing.T, j *admin.Journal, counter string) {
	t.Helper()
	if done, err := j.Erase(t.Context(), counter, ""); err != nil || done.Erased != len(e.want[counter]) {
		t.Errorf("erase %q: %+v, %v; want %d entries", counter, done, err, len(e.want[counter]))
	}
	e.want[counter] = nil
}

// Of two erasures of one record the later one reads it again, and both hold.
func TestErasuresOfOneRecord(t *testing.T) {
	t.Parallel()
	e, j := erasing(t, []string{"a"}, func(n int, e *evidence, j *admin.Journal) {
		if n == 2 {
			e.mustErase(t, j, "b")
		}
	})
	e.fold(t, wire.PartID{2}, "a", "b", "ab")
	e.mustErase(t, j, "a")
	for _, counter := range []string{"a", "b", "ab"} {
		e.wantPages(t, counter)
	}
}

// A record that expires while it is changed has nothing left to erase.
func TestErasingAnExpiredRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, j := erasing(t, []string{"a"}, func(_ int, e *evidence, _ *admin.Journal) {
			for range 6 { // at the pace of a machine's clock
				time.Sleep(20 * time.Minute)
				if _, err := e.Check(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := e.Sweep(t.Context()); err != nil || len(e.Journaled()) != 0 {
				t.Fatalf("%d records are left, %v", len(e.Journaled()), err)
			}
		})
		if done, err := j.Erase(t.Context(), "a", ""); err != nil || done.Erased != 0 {
			t.Errorf("got %+v, %v; want no entry", done, err)
		}
	})
}

// A record that changes before each try does not hold the caller for ever. Nothing was erased, unless another record was before.
func TestErasingARecordThatChangesAllTheTime(t *testing.T) {
	t.Parallel()
	for before, want := range []error{countmill.ErrUnavailable, countmill.ErrOutcomeUnknown} {
		names := []string{"a"}
		for i := range 20 {
			names = append(names, fmt.Sprint("other", i))
		}
		tries := 0
		e, j := erasing(t, names[:before], func(n int, e *evidence, j *admin.Journal) {
			if tries = n - before; tries > 0 {
				e.mustErase(t, j, names[tries])
			}
		})
		e.fold(t, wire.PartID{2}, names...)
		done, err := j.Erase(t.Context(), "a", "")
		if !errors.Is(err, want) || errors.Is(err, countmill.ErrUnavailable) == (before > 0) || done.Erased != before || tries != 10 {
			t.Errorf("got %+v, %v after %d tries; want %v after 10", done, err, tries, want)
		}
	}
}

// After a lost answer the entry is erased or not. A repetition erases it in both cases.
func TestErasingWithALostAnswer(t *testing.T) {
	t.Parallel()
	for _, answer := range []protocoltest.Answer{protocoltest.UnknownApplied, protocoltest.UnknownNotApplied} {
		e, j := erasing(t, []string{"a", "b"}, nil)
		e.On("tx journal", protocoltest.Script(answer))
		if _, err := j.Erase(t.Context(), "a", ""); !errors.Is(err, countmill.ErrOutcomeUnknown) {
			t.Errorf("got %v, want ErrOutcomeUnknown", err)
		}
		if _, err := j.Erase(t.Context(), "a", ""); err != nil {
			t.Error(err)
		}
		e.want["a"] = nil
		e.wantPages(t, "a")
		e.wantPages(t, "b")
	}
}

// OpeningBalance balances and corrections of a counter are erased too, and are no entries.
func TestErasingBalances(t *testing.T) {
	t.Parallel()
	e := newEvidence()
	e.rule(t, "*", "30d")
	e.fold(t, wire.PartID{1}, "a", "b")
	e.fold(t, wire.PartID{2}, "a")
	for i, kind := range []journal.Kind{journal.CorrectionKind, journal.OpeningBalanceKind} {
		r := journal.Record{Kind: kind, Parts: []journal.Part{{ID: wire.PartID{9}, Entries: []journal.Entry{{Counter: "a", Delta: 7}, {Counter: "b", Delta: 7}}}}}
		if kind == journal.OpeningBalanceKind {
			r.OpeningBalance = new(journal.OpeningBalance)
		}
		at, done := e.JournalMoment(time.Now())
		e.WriteRecords(&store.Commit{Records: []store.JournalRecord{{Key: store.NewJournalKey(at, uint64(i)), ExpireAt: at.Add(time.Hour), Data: r.Encode(nil)}}})
		done()
	}
	j := admin.NewJournal(e, time.Minute)
	for _, want := range []struct{ entries, others int }{{2, 2}, {0, 0}} {
		if done, err := j.Erase(t.Context(), "a", ""); err != nil || done.Erased != want.entries || done.Others != want.others {
			t.Errorf("erased %+v, %v; want %d entries and %d others", done, err, want.entries, want.others)
		}
	}
}
