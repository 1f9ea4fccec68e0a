package protocol

import (
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/store/engine"
)

// journalChanges yields the records and rows of a commit. It reports false if yield wants no more.
func (s *Store) journalChanges(c *store.Commit, yield func(*engine.Change) bool) bool { return true }
