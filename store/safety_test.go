package store

import (
	"testing"
	"time"
)

// A change of the settings waits for the last process that goes by the settings before. The change's transaction reads
// at its moment and commits as late as it can. Right before that a process reads the settings, and it uses them for
// as long as it may.
func TestAChangeWaitsForOldSettings(t *testing.T) {
	t.Parallel()
	moment := start.Add(30 * time.Second)
	begun := moment.Add(MaxTransaction + SettingsMaxAge)
	applied := begun.Add(MaxTransaction)
	s, err := NewSettings(days, start).ChangeRules(RuleChange{Pattern: "a", Keep: month}, moment, RulesSettle)
	if err != nil {
		t.Fatal(err)
	}
	if since := s.Rules.SeriesOf("a").Since; since.Before(begun.Add(SeriesAhead)) {
		t.Errorf("a series is complete since %s, but an increment of %s can be folded without it", since, begun.Add(SeriesAhead))
	}
	if s, err = s.ChangeRules(journalRule("a", "30d"), moment, RulesSettle); err != nil {
		t.Fatal(err)
	}
	if since := s.Rules.JournalOf("a").Since; since.Before(applied) {
		t.Errorf("a journal is complete since %s, but a commit of %s can lack its records", since, applied)
	}
	for _, step := range []IndexStep{CreateIndex, DeleteIndex} {
		x := Index{Name: "sites", Match: "page:{site}:*", Group: "sites:{site}"}
		if s, err = s.ChangeRules(RuleChange{Index: &IndexChange{Step: step, Index: x}}, moment, RulesSettle); err != nil {
			t.Fatal(err)
		}
		if since := s.Rules.Index("sites").Since; since.Before(applied) {
			t.Errorf("an index settles at %s after step %d, but a commit of %s can be by older rules", since, step, applied)
		}
	}
	if last := begun.Add(MaxAhead + frozen); moment.Add(ChangeSlack).Before(last) {
		t.Errorf("markers by an older window end with parts of %s, but a part of %s can have one", moment.Add(ChangeSlack), last)
	}
}

// The moment of a record's key comes after its process has read the settings.
func TestTheJournalWaitsForItsCommits(t *testing.T) {
	t.Parallel()
	if last := SettingsMaxAge + MaxTransaction; JournalSettle < last {
		t.Errorf("a page ends %s ago, but a commit can come %s after its moment", JournalSettle, last)
	}
}
