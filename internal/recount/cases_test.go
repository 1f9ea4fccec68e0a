package recount_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/internal/recount"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/int128"
	"github.com/countmill/countmill/store/protocol/protocoltest"
	"github.com/countmill/countmill/wire"
)

const total = "billing:1"

// damage changes the total of a counter without a record.
func damage(t *testing.T, r *rig, name string, delta int64) {
	t.Helper()
	c := &store.Commit{
		Correction: true, Rules: r.Settings().Version, Adds: []store.ShardDelta{store.NewShardDelta(name, 0, delta)},
		Markers: []store.Marker{{ID: r.NewID(), At: r.Now(), ExpireAt: r.Now().Add(time.Hour)}},
	}
	if _, err := r.Store.Fold(t.Context(), c); err != nil {
		t.Fatal(err)
	}
}

func fold(t *testing.T, r *rig, name string, delta int64) wire.PartID {
	t.Helper()
	id := r.NewID()
	if err := r.Fold(id, wire.MinuteOf(r.Now()), map[string]int64{name: delta}); err != nil {
		t.Fatal(err)
	}
	return id
}

func (s sums) want(t *testing.T, r *rig) {
	t.Helper()
	got := r.State().Totals
	for name, want := range s {
		if got[name] != want {
			t.Errorf("%s is %d, want %d", name, got[name], want)
		}
	}
}

type sums map[string]int64

// The same damage twice is corrected twice.
func TestDamageComesAgain(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		fold(t, r, total, 7)
		for range 3 {
			damage(t, r, total, -5)
			got := r.Recount(recount.Query{Prefix: "billing:", Repair: true})
			if len(got.Findings) != 1 || !got.Findings[0].Fixed || got.Findings[0].Stored != int128.Of(2) || got.Findings[0].Counted != int128.Of(7) {
				t.Fatalf("found %+v", got.Findings)
			}
			sums{total: 7}.want(t, r)
		}
	})
}

// Two recounts find the same damage, and one of them corrects it.
func TestTwoRecountsAtOnce(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		fold(t, r, total, 7)
		damage(t, r, total, 100)
		r.OnFold(func(int, *store.Commit) protocoltest.Answer {
			r.OnFold(nil)
			if got := r.Recount(recount.Query{Repair: true}); len(got.Findings) != 1 || !got.Findings[0].Fixed {
				t.Errorf("the other recount found %+v", got.Findings)
			}
			return protocoltest.OK
		})
		got := r.Recount(recount.Query{Repair: true})
		if len(got.Findings) != 1 || got.Findings[0].Fixed || !strings.Contains(got.Findings[0].Detail, "another recount") {
			t.Errorf("the first recount found %+v", got.Findings)
		}
		sums{total: 7}.want(t, r)
	})
}

// A correction whose answer is lost is applied once, and one that never arrives is reported.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		st := r.Store
		fold(t, r, total, 7)
		for name, tt := range map[string]struct {
			answers []protocoltest.Answer
			fixed   bool
		}{
			"applied":     {[]protocoltest.Answer{protocoltest.UnknownApplied}, true},
			"not applied": {[]protocoltest.Answer{protocoltest.UnknownNotApplied, protocoltest.NotApplied}, true},
			"never":       {[]protocoltest.Answer{protocoltest.UnknownNotApplied, protocoltest.UnknownNotApplied, protocoltest.UnknownNotApplied, protocoltest.UnknownNotApplied, protocoltest.UnknownNotApplied}, false},
		} {
			damage(t, r, total, 3)
			answers := tt.answers
			st.OnFold(func(int, *store.Commit) protocoltest.Answer {
				if len(answers) == 0 {
					return protocoltest.OK
				}
				a := answers[0]
				answers = answers[1:]
				return a
			})
			got := r.Recount(recount.Query{Prefix: total, Repair: true})
			if len(got.Findings) != 1 || got.Findings[0].Fixed != tt.fixed {
				t.Errorf("%s: found %+v, want it fixed: %t", name, got.Findings, tt.fixed)
			}
			r.Recount(recount.Query{Prefix: total, Repair: true})
			sums{total: 7}.want(t, r)
		}
	})
}

// A part in two records counts once.
func TestPartsInTwoRecords(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		st := r.Store
		fold(t, r, total, 7)
		fold(t, r, "page:s1:1", 9)
		for _, record := range st.Journaled() {
			again := record
			again.Key[15]++
			st.WriteRecords(&store.Commit{Records: []store.JournalRecord{again}})
		}
		r.Nothing("with every record twice")
	})
}

// Small bounds of memory change nothing but the number of ranges.
func TestBoundsOfMemory(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		r.History(200)
		r.Damage(30)
		want := r.Recount(recount.Query{})
		small := r.RecountBy(r.Recounter(r.Store, recount.Config{MostParts: 40, MostSums: 300}), recount.Query{})
		if diff := cmp.Diff(named(want.Findings), named(small.Findings)); diff != "" {
			t.Errorf("in small ranges (-whole +small):\n%s", diff)
		}
		if small.Counters != want.Counters || small.Buckets != want.Buckets || small.Entries <= want.Entries {
			t.Errorf("in small ranges: %+v, want the same as %+v in several ranges", small, want)
		}
	})
}

// Findings take memory too: with many of them a range is smaller.
func TestBoundOfFindings(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		const counters = 10
		for i := range counters {
			name := fmt.Sprint("billing:", i)
			fold(t, r, name, 7)
			damage(t, r, name, 1)
		}
		got := r.RecountBy(r.Recounter(r.Store, recount.Config{MostSums: counters + counters/2}), recount.Query{Prefix: "billing:"})
		if len(got.Findings) != counters || got.Entries <= counters {
			t.Errorf("%d findings and %d entries read, want %d findings in several ranges", len(got.Findings), got.Entries, counters)
		}
	})
}

// A counter that the journal does not cover is never judged, nor changed.
func TestNotCovered(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		do   func(t *testing.T, r *rig)
		want string // in the reason; empty if the counter is judged
	}{
		"covered":        {func(*testing.T, *rig) {}, ""},
		"the rule ended": {func(t *testing.T, r *rig) { r.Change(endJournal("billing:*")) }, "no rule"},
		"the rule came back": {func(t *testing.T, r *rig) {
			r.Change(endJournal("billing:*"))
			r.Change(keepJournal(t, "billing:*", "30d"))
		}, "no opening balance"},
		"kept for less":     {func(t *testing.T, r *rig) { r.Change(keepJournal(t, "billing:*", "1d")) }, "no opening balance"},
		"another rule":      {func(t *testing.T, r *rig) { r.Change(keepJournal(t, total, "400d")) }, "was changed"},
		"a rule for others": {func(t *testing.T, r *rig) { r.Change(keepJournal(t, "billing:2", "400d")) }, ""},
		"records went":      {func(t *testing.T, r *rig) { r.pass(31 * 24 * time.Hour) }, "are gone"},
		"another was erased": {func(t *testing.T, r *rig) {
			fold(t, r, "billing:9", 5)
			r.pass(2 * store.RulesSettle)
			if got, err := admin.NewJournal(r.Store, time.Minute).Erase(t.Context(), "billing:9", ""); err != nil || got.Erased != 1 {
				t.Fatalf("erased %+v, %v", got, err)
			}
		}, "were erased"},
	} {
		t.Run(name, func(t *testing.T) {
			forKinds(t, func(t *testing.T, r *rig) {
				fold(t, r, total, 7)
				damage(t, r, total, 1)
				tt.do(t, r)
				got := r.Recount(recount.Query{Prefix: total, Repair: true})
				if tt.want == "" {
					if len(got.Findings) != 1 || len(got.Reasons) != 0 {
						t.Errorf("got %+v, want the damage", got)
					}
					return
				}
				if len(got.Findings) != 0 || len(got.Reasons) != 1 || !strings.Contains(fmt.Sprint(got.Reasons), tt.want) {
					t.Errorf("got %+v, want nothing found, because %s", got, tt.want)
				}
				sums{total: 8}.want(t, r)
			})
		})
	}
}

// A counter that is older than its rule has an opening balance, and a new one leaves damage as it is.
func TestOpeningBalances(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		damage(t, r, "old:1", 50) // before the rule
		if err := r.Grow(t.Context(), []store.Growth{{Counter: "old:1", Shards: 1}}); err != nil {
			t.Fatal(err)
		}
		r.Change(keepJournal(t, "old:*", "30d"))
		if !r.Limits().RefusesOldRules {
			_, err := r.Recounter(r.Store, recount.Config{}).Recount(t.Context(), recount.Query{Prefix: "old:", Open: true})
			if !errors.Is(err, recount.ErrEarly) || !errors.Is(err, countmill.ErrUnavailable) {
				t.Errorf("an opening balance right after the rule: got %v, want ErrEarly", err)
			}
			r.pass(2 * store.RulesSettle)
		}
		fold(t, r, "old:1", 7)
		for range 3 {
			if got := r.Recount(recount.Query{Prefix: "old:", Open: true}); got.Opened != 1 || len(got.Findings) > 0 {
				t.Fatalf("an opening balance: %+v", got)
			}
			fold(t, r, "old:1", 1)
			r.pass(time.Hour)
		}
		damage(t, r, "old:1", 5)
		if got := r.Recount(recount.Query{Prefix: "old:", Open: true}); len(got.Findings) != 1 || got.Findings[0].Counted != int128.Of(60) {
			t.Errorf("found %+v, want 60 counted", got.Findings)
		}
		if got := r.Recount(recount.Query{Prefix: "old:", Repair: true}); len(got.Findings) != 1 || got.Counters != 1 {
			t.Errorf("after another opening balance found %+v", got)
		}
		sums{"old:1": 60}.want(t, r)
	})
}

// Minutes that were joined are compared as a quarter hour.
func TestJoinedMinutes(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		r.History(60)
		want := r.State()
		damaged := r.Damage(20)
		forget(r, 1)
		for range 3 {
			if _, err := r.MoveSeries(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := r.SweepSeries(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.pass(time.Minute)
		}
		got := r.Recount(recount.Query{Repair: true})
		quarters := 0
		for _, f := range got.Findings {
			if !f.Fixed {
				t.Errorf("not corrected: %+v", f)
			}
			if f.Quarter {
				quarters++
			}
		}
		if quarters == 0 && r.Limits().Ring.Buckets == 0 || len(got.Findings) > len(damaged) {
			t.Errorf("%d quarter hours among %d findings of %d", quarters, len(got.Findings), len(damaged))
		}
		r.Nothing("after the repair")
		if diff := cmp.Diff(want.Totals, r.State().Totals); diff != "" {
			t.Errorf("totals (-want +got):\n%s", diff)
		}
	})
}

// A counter whose record is gone gets one, and is corrected by the next recount.
func TestMissingRecords(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		at, done := r.JournalMoment(r.Now())
		defer done()
		record := journal.Record{Parts: []journal.Part{{ID: r.NewID(), Entries: []journal.Entry{{Counter: "billing:lost", Delta: 9}}}}}
		r.Store.WriteRecords(&store.Commit{Records: []store.JournalRecord{{
			Key: store.NewJournalKey(at, 1), ExpireAt: at.Add(time.Hour), Data: record.Encode(nil),
		}}})
		for _, want := range []string{"missing billing:lost 0", "total billing:lost 0"} {
			if got := named(r.Recount(recount.Query{Prefix: "billing:", Repair: true}).Findings); len(got) != 1 || got[0] != want {
				t.Fatalf("found %q, want %q", got, want)
			}
		}
		sums{"billing:lost": 9}.want(t, r)
	})
}

// Records of corrections and opening balances are no increments.
func TestRecordsOfRecounts(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		fold(t, r, "page:s1:1", 3)
		damage(t, r, "page:s1:1", 5)
		st := r.Store
		before := len(st.Journaled())
		x := r.Recounter(r.Store, recount.Config{})
		r.RecountBy(x, recount.Query{Repair: true, Open: true, Prefix: "page:"})
		kinds := make(map[journal.Kind]int)
		for _, record := range st.Journaled()[before:] {
			content, err := journal.Decode(record.Data)
			if err != nil {
				t.Error(err)
			}
			kinds[content.Kind]++
			content.Lines(record.Key, func(l journal.Line) { t.Errorf("an increment of %s", l.Entry.Counter) })
		}
		if kinds[journal.CorrectionKind] != 1 || kinds[journal.OpeningBalanceKind] != 1 || len(kinds) != 2 {
			t.Errorf("records %v, want a correction and an opening balance", kinds)
		}
	})
}

// Tend opens a rule that has no opening balance, and one whose opening balance is old, and no other.
func TestTend(t *testing.T) {
	t.Parallel()
	forKinds(t, func(t *testing.T, r *rig) {
		st := r.Store
		tend := func(want, lacking int) {
			t.Helper()
			before := len(st.Journaled())
			n, err := r.Recounter(r.Store, recount.Config{}).Tend(t.Context(), quiet)
			if err != nil {
				t.Fatal(err)
			}
			if got := len(st.Journaled()) - before; got != want || n != lacking {
				t.Errorf("%d opening balances were written, and %d rules lack some; want %d and %d", got, n, want, lacking)
			}
		}
		fold(t, r, total, 7)
		tend(0, 0)
		change := store.Retention{Entries: 30 * 24 * time.Hour}
		r.Change(store.RuleChange{Kind: store.KindJournal, Pattern: "new:*", Keep: change})
		if !r.Limits().RefusesOldRules {
			tend(0, 1)
			r.pass(2 * store.RulesSettle)
		}
		tend(1, 0)
		tend(0, 0)
		r.pass(16 * 24 * time.Hour)
		tend(2, 0) // billing:* and new:*
		r.pass(15 * 24 * time.Hour)
		if got := r.Recount(recount.Query{Prefix: total}); got.Counters != 1 || len(got.Findings) > 0 {
			t.Errorf("after a month: %+v", got)
		}
	})
}
