package admin_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

// evidence is a store with a journal, and the entries that each counter should have.
type evidence struct {
	*protocoltest.Store
	want map[string][]admin.JournalEntry
}

func newEvidence() *evidence {
	opts := protocoltest.Options{GrowsInFold: true, Entities: 1 << 20, MachineClock: true}
	return &evidence{protocoltest.New(opts), make(map[string][]admin.JournalEntry)}
}

func (e *evidence) rule(t *testing.T, pattern, keep string) {
	t.Helper()
	c := store.RuleChange{Kind: store.KindJournal, Pattern: pattern, Remove: true}
	if keep != "" {
		change, err := store.ParseRetention(store.KindJournal, keep)
		if err != nil {
			t.Fatal(err)
		}
		c.Keep, c.Remove = change, false
	}
	if _, err := e.ChangeRules(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

// fold writes a record with an entry for each counter, by the rules as they are.
func (e *evidence) fold(t *testing.T, part wire.PartID, names ...string) {
	t.Helper()
	checked, err := e.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at, done := e.JournalMoment(time.Now())
	defer done()
	c := &store.Commit{Rules: checked.Settings.Version}
	r := store.JournalRecord{Key: store.NewJournalKey(at, rand.Uint64()), ExpireAt: at.Add(time.Hour)}
	p := journal.Part{ID: part, Sender: "shop"}
	for i, name := range names {
		entry := journal.Entry{Counter: name, Delta: int64(i + 1)}
		place := store.JournalPlace{Key: r.Key, Position: uint32(i)}
		p.Entries = append(p.Entries, entry)
		e.want[name] = append(e.want[name], admin.JournalEntry{Key: place.String(), Time: at, Counter: name, Delta: entry.Delta, Part: part, Sender: "shop"})
		c.Adds = append(c.Adds, store.NewShardDelta(name, 0, entry.Delta))
		if checked.Settings.Rules.JournalOf(name).Keep.Paged {
			c.Rows = append(c.Rows, store.JournalRow{Counter: name, Place: place, ExpireAt: r.ExpireAt, Data: journal.EncodeRow(nil, &p, &entry)})
		}
	}
	r.Data = (&journal.Record{Parts: []journal.Part{p}}).Encode(nil)
	c.Records = append(c.Records, r)
	slices.SortFunc(c.Adds, func(a, b store.ShardDelta) int {
		if a.Order < b.Order {
			return -1
		}
		return 1
	})
	if _, err := e.Fold(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func (e *evidence) page(t *testing.T, q admin.JournalQuery) admin.JournalPage {
	t.Helper()
	page, err := admin.NewJournal(e, time.Minute).Page(t.Context(), q)
	if err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	if page.SettledUntil.IsZero() {
		t.Errorf("%+v: no time of settling", q)
	}
	return page
}

// wantPages compares pages of any size, forward and backward, with the written entries.
func (e *evidence) wantPages(t *testing.T, counter string) {
	t.Helper()
	want := e.want[counter]
	for _, limit := range []int{1, 2, 7, len(want), 1000} {
		var forward, backward []admin.JournalEntry
		q := admin.JournalQuery{Counter: counter, Limit: max(limit, 1)}
		for first := true; first || q.After != ""; first = false {
			page := e.page(t, q)
			if len(page.Entries) > q.Limit {
				t.Fatalf("limit %d: a page of %d entries", limit, len(page.Entries))
			}
			forward, q.After = append(forward, page.Entries...), page.Next
		}
		if diff := cmp.Diff(want, forward); diff != "" {
			t.Errorf("%s forward by %d (-want +got):\n%s", counter, limit, diff)
		}
		q = admin.JournalQuery{Counter: counter, Limit: max(limit, 1), Before: store.JournalPlace{Key: store.JournalKey{0xff}}.String()}
		for q.Before != "" {
			page := e.page(t, q)
			backward, q.Before = append(slices.Clone(page.Entries), backward...), page.Previous
			if n := len(page.Entries); n > 0 && page.Next != page.Entries[n-1].Key {
				t.Errorf("%s backward by %d: next is %q, want the last key", counter, limit, page.Next)
			}
		}
		if diff := cmp.Diff(want, backward); diff != "" {
			t.Errorf("%s backward by %d (-want +got):\n%s", counter, limit, diff)
		}
	}
}

// A page knows nothing of rules that came after it has read them: its machine may be suspended between two calls.
func TestPagesAreNotSettledBeyondTheirRules(t *testing.T) {
	t.Parallel()
	now := time.Now()
	e := &evidence{protocoltest.New(protocoltest.Options{Clock: func() time.Time { return now }}), make(map[string][]admin.JournalEntry)}
	e.rule(t, "a", "30d,paged")
	began := now
	e.On("scan journal", func(int) protocoltest.Answer {
		now = now.Add(time.Hour)
		return protocoltest.OK
	})
	if page := e.page(t, admin.JournalQuery{Counter: "a", Limit: 10}); page.SettledUntil.After(began.Add(time.Millisecond)) {
		t.Errorf("settled until %s by rules of %s", page.SettledUntil, began)
	}
}

func TestPagesOfTheJournal(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string][][2]string{
		"without rows":              {{"*", "30d"}},
		"with rows":                 {{"*", "30d,paged"}},
		"rows of one":               {{"*", "30d"}, {"a", "60d,paged"}},
		"rows later":                {{"*", "30d"}, {"", ""}, {"a", "60d,paged"}},
		"rows for a while":          {{"*", "30d,paged"}, {"", ""}, {"*", "30d"}},
		"no rows for a while":       {{"*", "30d,paged"}, {"", ""}, {"a", "30d"}, {"", ""}, {"a", ""}},
		"an end and a new begining": {{"*", "30d"}, {"", ""}, {"*", ""}, {"*", "30d,paged"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEvidence()
			for _, rule := range append(rules, [2]string{}) {
				if rule[0] != "" {
					e.rule(t, rule[0], rule[1])
					continue
				}
				for i := range 5 {
					e.fold(t, wire.PartID{byte(i)}, "a", "b", "ab")
					e.fold(t, wire.PartID{byte(i)}, "b")
				}
			}
			for _, counter := range []string{"a", "ab", "b", "nobody's"} {
				e.wantPages(t, counter)
			}
		})
	}
}

// A page of a rare counter ends early, and the next one goes on where it ended.
func TestPagesReadABoundedNumberOfRecords(t *testing.T) {
	t.Parallel()
	e := newEvidence()
	e.rule(t, "*", "30d")
	e.fold(t, wire.PartID{}, "rare", "busy")
	for range 5000 {
		e.fold(t, wire.PartID{}, "busy")
	}
	e.fold(t, wire.PartID{}, "rare")
	before := e.Calls("scan journal")
	page := e.page(t, admin.JournalQuery{Counter: "rare", Limit: 10})
	if calls := e.Calls("scan journal") - before; len(page.Entries) != 1 || page.Next == "" || page.Next == page.Entries[0].Key || calls > 15 {
		t.Errorf("a page of a rare counter: %d entries before %q, after %d calls", len(page.Entries), page.Next, calls)
	}
	e.wantPages(t, "rare")
}

// cutShort has views whose scans fail after some records.
type cutShort struct{ *evidence }

type cutShortView struct{ store.JournalView }

var errCutShort = errors.New("the scan ended early")

func (c cutShort) JournalView() store.JournalView { return cutShortView{c.evidence.JournalView()} }

func (v cutShortView) JournalRecords(ctx context.Context, q store.JournalQuery) (store.JournalPage, error) {
	page, _ := v.JournalView.JournalRecords(ctx, q)
	page.Records = page.Records[:1]
	return page, errCutShort
}

func TestPagesOfAScanThatFailsHalfWay(t *testing.T) {
	t.Parallel()
	e := newEvidence()
	e.rule(t, "*", "30d")
	for range 3 {
		e.fold(t, wire.PartID{}, "a")
	}
	page, err := admin.NewJournal(cutShort{e}, time.Minute).Page(t.Context(), admin.JournalQuery{Counter: "a", Limit: 10})
	if !errors.Is(err, errCutShort) {
		t.Errorf("%d of 3 entries, error %v", len(page.Entries), err)
	}
}

// Entries of one id are found by the hash of the id.
func TestPagesOfAnID(t *testing.T) {
	t.Parallel()
	for _, keep := range []string{"30d", "30d,paged"} {
		e := newEvidence()
		e.rule(t, "a", keep)
		for i := range 10 {
			e.fold(t, wire.IncrementID("a", fmt.Sprint("order-", i)), "a")
		}
		page := e.page(t, admin.JournalQuery{Counter: "a", ID: "order-7", Limit: 10})
		if diff := cmp.Diff(e.want["a"][7:8], page.Entries); diff != "" || page.Next != "" {
			t.Errorf("%s: the entry of an id (-want +got), next %q:\n%s", keep, page.Next, diff)
		}
	}
}

func TestPagesOfTheJournalAreChecked(t *testing.T) {
	t.Parallel()
	e := newEvidence()
	j := admin.NewJournal(e, time.Minute)
	key := store.JournalPlace{}.String()
	for _, q := range []admin.JournalQuery{
		{Limit: 1},
		{Counter: "a"},
		{Counter: "a", Limit: admin.MaxJournalPage + 1},
		{Counter: "a", Limit: 1, After: "x"},
		{Counter: "a", Limit: 1, Before: "x"},
		{Counter: "a", Limit: 1, After: key, Before: key},
		{Counter: "a", Limit: 1, ID: "\x00"},
	} {
		if _, err := j.Page(t.Context(), q); !errors.Is(err, countmill.ErrInvalid) {
			t.Errorf("%+v: got %v, want ErrInvalid", q, err)
		}
	}
	if page, err := j.Page(t.Context(), admin.JournalQuery{Counter: "a", Limit: 1, Before: key}); err != nil || len(page.Entries) != 0 || page.Previous != "" {
		t.Errorf("before the first place: got %+v, %v", page, err)
	}
	for _, op := range []string{"check", "scan journal"} {
		e.On(op, func(int) protocoltest.Answer { return protocoltest.UnknownNotApplied })
		if _, err := j.Page(t.Context(), admin.JournalQuery{Counter: "a", Limit: 1}); !errors.Is(err, countmill.ErrUnavailable) {
			t.Errorf("%s fails: got %v, want ErrUnavailable", op, err)
		}
		e.On(op, nil)
	}
}

// An erased counter is in no page and in no record, and all other entries stay.
func TestEraseJournal(t *testing.T) {
	t.Parallel()
	for _, keep := range []string{"30d", "30d,paged"} {
		e := newEvidence()
		e.rule(t, "*", keep)
		for i := range 2500 {
			names := []string{"b"}
			if i%100 == 0 {
				names = []string{"a", "b", "ab"}
			}
			e.fold(t, wire.PartID{byte(i)}, names...)
		}
		j := admin.NewJournal(e, time.Minute)
		for round := range 2 {
			erased, calls, after := 0, 0, ""
			for first := true; first || after != ""; first = false {
				done, err := j.Erase(t.Context(), "a", after)
				if err != nil || done.SettledUntil.IsZero() {
					t.Fatalf("Erase: %+v, %v", done, err)
				}
				erased, calls, after = erased+done.Erased, calls+1, done.Next
			}
			if want := []int{25, 0}[round]; erased != want || calls < 2 {
				t.Errorf("%s, round %d: %d entries erased in %d calls, want %d", keep, round, erased, calls, want)
			}
		}
		e.want["a"] = nil
		for _, counter := range []string{"a", "ab"} {
			e.wantPages(t, counter)
		}
		for _, r := range e.Journaled() {
			if content, err := journal.Decode(r.Data); err != nil {
				t.Errorf("record %s: %v", r.Place(), err)
			} else {
				content.Lines(r.Key, func(l journal.Line) {
					if l.Entry.Counter == "a" {
						t.Errorf("record %s still has the counter", r.Place())
					}
				})
			}
		}
		v := e.JournalView()
		defer v.Close()
		if rows, err := v.JournalRows(t.Context(), "a", store.JournalQuery{Limit: 1}); err != nil || len(rows.Rows) > 0 {
			t.Errorf("rows of the erased counter: %+v, %v", rows.Rows, err)
		}
	}
}
