package app

import (
	"github.com/countmill/countmill/aggregator"
	"github.com/countmill/countmill/internal/journal"
)

// setJournalKey reads the key of --journal-key, and names it in the heartbeat: all aggregators of a database should have the same.
func setJournalKey(c *aggregator.Config, cfg Config) (err error) {
	c.JournalKey, err = readJournalKey(cfg)
	c.Setup["journal-key"] = journal.KeyName(c.JournalKey)
	return err
}
