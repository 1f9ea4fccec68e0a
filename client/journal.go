package client

import (
	"context"
	"net/http"
	"time"
)

// A JournalEntry is the delta of one counter in one part: an increment, or several of one sender that were sent together.
type JournalEntry struct {
	Key string `json:"key" schema:"JournalKey"`
	// The store's time just before the commit.
	Time    time.Time `json:"time"`
	Counter string    `json:"counter" schema:"CounterName"`
	Delta   int64     `json:"delta" schema:"Number"`
	// The id of the part that it came in, 32 digits of 0-9 and a-f. For an increment with an id it is a hash of counter and id.
	Part string `json:"part"`
	// The name of the token that sent it; absent if it is not known.
	Sender string `json:"sender,omitzero"`
}

// A JournalPage is some entries of one counter, in ascending order of keys.
type JournalPage struct {
	Entries []JournalEntry `json:"entries"`
	// The `after` of the next page; absent at the end.
	Next string `json:"next,omitzero" schema:"JournalKey"`
	// Only with `before`: the `before` of the page before this one; absent at the beginning.
	Previous string `json:"previous,omitzero" schema:"JournalKey"`
	// Up to this time the journal is complete. Later entries are not shown yet.
	SettledUntil time.Time `json:"settled_until"`
}

// A JournalQuery asks for a page. Its zero value, with Counter, asks for the oldest 50 entries.
type JournalQuery struct {
	Counter string
	ID      string // only the increment with this id
	After   string // the entries just after this key
	Before  string // the entries just before this key; not beside After
	Limit   int    // 1 to 1,000; default 50
}

// Journal returns a page of the increments of a counter under a rule for the journal. Pages of
// what existed at the first call never repeat and never skip an entry. It needs the scope admin.
func (c *Client) Journal(ctx context.Context, q JournalQuery) (JournalPage, error) {
	query := params("id", q.ID, "after", q.After, "before", q.Before, "limit", number(q.Limit))
	query.Set("counter", q.Counter)
	return read[JournalPage](ctx, c, "/v1/journal", query)
}

// EraseJournal removes the counter's name and deltas from some 2,000 records of the journal. Repeat it with the Next of the answer as
// after, until that is empty. It may be repeated. It needs the scope admin, and no prefixes.
func (c *Client) EraseJournal(ctx context.Context, counter, after string) (Erased, error) {
	request := map[string]string{"counter": counter}
	if after != "" {
		request["after"] = after
	}
	return change[Erased](ctx, c, http.MethodPost, "/v1/journal/erase", nil, request)
}

// JournalRecords returns a page of the records from one time on, or after a key, and before another time; each may be zero. limit is 1 to
// 1,000, and 1,000 if it is 0. It needs the scope admin, and no prefixes.
func (c *Client) JournalRecords(ctx context.Context, from, to time.Time, after string, limit int) (JournalRecords, error) {
	query := params("after", after, "limit", number(limit))
	for name, at := range map[string]time.Time{"from": from, "to": to} {
		if !at.IsZero() {
			query.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	return read[JournalRecords](ctx, c, "/v1/journal/records", query)
}

// Erased counts the entries that an erasure removed from the journal.
type Erased struct {
	// Entries, as `GET /v1/journal` shows them.
	Erased int `json:"erased"`
	// Opening balances and corrections of the counter. Absent if 0.
	Others int `json:"others,omitzero"`
	// The `after` of the next call; absent at the end.
	Next string `json:"next,omitzero" schema:"JournalKey"`
	// Up to this time entries were erased.
	SettledUntil time.Time `json:"settled_until"`
}

// JournalRecords are records as the store has them, in ascending order of keys.
type JournalRecords struct {
	Records []JournalRecord `json:"records"`
	// The `after` of the next page; absent at the end.
	Next string `json:"next,omitzero" schema:"JournalKey"`
	// Up to this time the journal is complete.
	SettledUntil time.Time `json:"settled_until"`
}

// A JournalRecord is one record.
type JournalRecord struct {
	Key string `json:"key" schema:"JournalKey"`
	// When the store may remove it.
	ExpireAt time.Time `json:"expire_at"`
	// In the format of package journal.
	Data []byte `json:"data"`
}
