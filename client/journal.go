package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// A JournalEntry is the delta of one counter in one part: an increment, or several of one sender that were
// sent together.
type JournalEntry struct {
	// Key is the place of the entry. Keys compare as strings in the order of entries.
	Key     string    `json:"key"`
	Time    time.Time `json:"time"`
	Counter string    `json:"counter"`
	Delta   int64     `json:"delta"`
	Part    string    `json:"part"`
	Sender  string    `json:"sender"` // the name of a token; empty if it is not known
}

// A JournalPage is some entries of one counter, in ascending order of keys.
type JournalPage struct {
	Entries []JournalEntry `json:"entries"`
	// Next is the After of the next page; empty at the end. A page may be short although there is a next
	// one.
	Next string `json:"next"`
	// Previous is the Before of the page before this one, in an answer to a query with Before.
	Previous string `json:"previous"`
	// SettledUntil is the time up to which the journal is complete. Later entries are not shown yet.
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
func (c *Client) Journal(ctx context.Context, q JournalQuery) (page JournalPage, err error) {
	query := url.Values{"counter": {q.Counter}}
	for name, text := range map[string]string{"id": q.ID, "after": q.After, "before": q.Before} {
		if text != "" {
			query.Set(name, text)
		}
	}
	if q.Limit != 0 {
		query.Set("limit", strconv.Itoa(q.Limit))
	}
	return page, c.call(ctx, Request{Method: http.MethodGet, Path: "/v1/journal", Query: query, Safe: true, read: true}, &page)
}
