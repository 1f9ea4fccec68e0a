package app

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/store"
)

// journalTimeout bounds each read of the journal: one may have some megabytes.
const journalTimeout = 10 * time.Second

// ParseJournal reads PATTERN=KEEP, the form of --journal and of "countmill rule add journal".
func ParseJournal(text string) (pattern string, keep store.JournalChange, err error) {
	at := strings.LastIndex(text, "=")
	if at < 0 {
		return "", keep, &countmill.FieldError{Field: "journal", Problem: "has no =", Limit: "PATTERN=KEEP, such as billing:*=400d"}
	}
	pattern = text[:at]
	if err := store.CheckPattern(pattern); err != nil {
		return "", keep, err
	}
	keep, err = store.ParseJournalKeep(text[at+1:])
	return pattern, keep, err
}

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
		rules.Journal = append(rules.Journal, store.JournalRule{Pattern: pattern})
	}
	return func(counter string) bool { return rules.JournalOf(counter) != nil }
}

// setJournalRules writes the rules of --journal.
func setJournalRules(ctx context.Context, cfg Config, s store.Store) error {
	for _, text := range cfg.Journal {
		pattern, keep, err := ParseJournal(text)
		if err != nil {
			return Usagef("--journal %q: %s", text, err)
		}
		if err := setRule(ctx, cfg.Logger, s, store.RuleChange{Pattern: pattern, Journal: &keep}); err != nil {
			return fmt.Errorf("--journal: %w", err)
		}
	}
	return nil
}
