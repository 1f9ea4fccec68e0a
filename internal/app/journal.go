package app

import (
	"time"

	"github.com/countmill/countmill/store"
)

// journalTimeout bounds each read of the journal: one may have some megabytes.
const journalTimeout = 10 * time.Second

// journal reports whether a counter has a journal, by the rules of the database. Until they are known any counter may have one.
func (s *aggregating) journal(counter string) bool {
	set := s.Settings()
	return set.Version == 0 || set.Rules.JournalOf(counter) != nil
}

// patternsOf is aggregating.journal for a publisher without a database: --journal-prefixes says which
// counters have a journal. It is nil if none has.
func patternsOf(cfg Config) func(counter string) bool {
	if len(cfg.JournalPrefixes) == 0 {
		return nil
	}
	rules := new(store.Rules)
	for _, pattern := range cfg.JournalPrefixes {
		rules.Journal = append(rules.Journal, store.Rule{Pattern: pattern})
	}
	return func(counter string) bool { return rules.JournalOf(counter) != nil }
}
