package pebble

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	records "github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/internal/recount"
	"github.com/countmill/countmill/store"
)

// foldRecorded folds an increment with its record, and returns the moment of that.
func foldRecorded(t *testing.T, s *Store, counter string, delta int64) time.Time {
	t.Helper()
	at, done := s.JournalMoment(time.Time{})
	defer done()
	r := records.Record{Parts: []records.Part{{ID: marker(at)[0].ID, Entries: []records.Entry{{Counter: counter, Delta: delta}}}}}
	c := &store.Commit{
		Rules: store.AnyRules, Adds: []store.ShardDelta{store.NewShardDelta(counter, 0, delta)}, Growths: []store.Growth{{Counter: counter, Shards: 1}},
		Records: []store.JournalRecord{{Key: store.NewJournalKey(at, 1), ExpireAt: at.Add(30 * day), Data: r.Encode(nil)}},
	}
	if _, err := s.Fold(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return at
}

// After a kill right after an opening balance, and with the clock set back, records come after it all the same: they are not missed.
func TestRecountAfterAKillAndAnEarlierClock(t *testing.T) {
	t.Parallel()
	files := vfs.NewCrashableMem()
	s := open(t, Config{Dir: "d", FS: files})
	if _, err := s.ChangeRules(t.Context(), store.RuleChange{Kind: store.KindJournal, Pattern: "a", Keep: store.Retention{Entries: 30 * day}}); err != nil {
		t.Fatal(err)
	}
	s.commits.mu.Lock()
	s.commits.at = time.Now().Add(time.Hour) // Check writes no later moment to the file
	s.commits.mu.Unlock()
	before := foldRecorded(t, s, "a", 7)
	if _, err := recount.New(s, recount.Config{}).Recount(t.Context(), recount.Query{Prefix: "a", Open: true}); err != nil {
		t.Fatal(err)
	}
	var clock wrong
	clock.set(-10 * time.Minute)
	again := open(t, Config{Dir: "d", FS: files.CrashClone(vfs.CrashCloneCfg{}), clock: clock.now})
	if at := foldRecorded(t, again, "a", 1); !at.After(before) {
		t.Errorf("a record of %s follows one of %s", at, before)
	}
	got, err := recount.New(again, recount.Config{}).Recount(t.Context(), recount.Query{Prefix: "a", Repair: true})
	if err != nil || got.Counters != 1 || len(got.Findings) > 0 || total(t, again, "a") != 8 {
		t.Errorf("got %+v, %v, and a total of %d; want nothing found, and 8", got, err, total(t, again, "a"))
	}
}
