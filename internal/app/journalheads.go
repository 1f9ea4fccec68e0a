package app

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/countmill/countmill/internal/journal"
	"github.com/countmill/countmill/store"
)

// readJournalKey returns the key of --journal-key; nil without it.
func readJournalKey(cfg Config) ([]byte, error) {
	if cfg.JournalKey == "" {
		return nil, nil
	}
	key, err := os.ReadFile(cfg.JournalKey)
	if err != nil {
		return nil, &FlagError{"journal-key", err}
	}
	if key = bytes.TrimSpace(key); len(key) < journal.MinKey {
		return nil, &FlagError{"journal-key", fmt.Errorf("the file has %d bytes (limit: at least %d random bytes)", len(key), journal.MinKey)}
	}
	return key, nil
}

// heads logs the contents of each hour of the journal, once no commit adds to it any more. Logs are outside the
// store, so "countmill journal check" finds records that were removed or added later.
type heads struct {
	store store.Journal
	log   *slog.Logger
	last  time.Time // the hour that was logged last
}

// mostHeads bounds the hours of one call, after which the next one goes on.
const mostHeads = 48

// write logs the hours that have become complete. The first call logs the last one: another process may have
// logged it too, in the same words.
func (h *heads) write(ctx context.Context) error {
	page, err := h.store.JournalRecords(ctx, store.JournalQuery{To: store.JournalPlace{Position: 1}, Limit: 1})
	if err != nil {
		return err
	}
	newest := journal.LastHour(page.SettledUntil)
	if h.last.IsZero() {
		h.last = newest.Add(-time.Hour)
	}
	for range mostHeads {
		hour := h.last.Add(time.Hour)
		if hour.After(newest) {
			return nil
		}
		head, err := journal.ReadHead(ctx, hour, h.store.JournalRecords)
		if err != nil {
			return err
		}
		h.log.LogAttrs(ctx, slog.LevelInfo, journal.HeadMessage, slog.Time("hour", head.Hour), slog.Int("records", head.Records),
			slog.String("digest", head.Digest), slog.Time("until", head.Until))
		h.last = hour
	}
	return nil
}
