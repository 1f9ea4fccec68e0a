package client

import (
	"context"
	"net/http"
	"time"
)

// Indexes are the indexes that the token may see.
type Indexes struct {
	// Rises by 1 with each change of the settings.
	Version int64 `json:"version"`
	// In the order of their names; at most 100.
	Indexes []Index `json:"indexes"`
}

// An Index puts counters into groups. A group is a counter whose name begins with =. Its total is the sum of its counters.
type Index struct {
	Name  string `json:"name" schema:"IndexName"`
	Match string `json:"match"`
	Group string `json:"group"`
	State string `json:"state" schema:"=building|serving|deleting"`
	// The ranges of the work; 0 before it begins. A range that takes long is split. Like the next three, it is null for a token
	// that may not read all counters of the index.
	Ranges     *int `json:"ranges" schema:"0.."`
	RangesDone *int `json:"ranges_done" schema:"0.."`
	// Shards of the ranges that are done.
	ShardsRead *int64 `json:"shards_read" schema:"0.."`
	// Groups that a later reading has corrected. Anything but 0 is a fault.
	Corrected *int64 `json:"corrected" schema:"0.."`
	// From here on no increment is counted without the index.
	Since     time.Time  `json:"since"`
	ServingAt *time.Time `json:"serving_at" schema:"date-time"`
	// When the range was read that was read longest ago; null before the index serves.
	CheckedAt *time.Time `json:"checked_at" schema:"date-time"`
	// When the deletion began.
	EndedAt *time.Time `json:"ended_at" schema:"date-time"`
}

// Indexes returns the indexes.
func (c *Client) Indexes(ctx context.Context) (Indexes, error) {
	return read[Indexes](ctx, c, "/v1/indexes", nil)
}

// CreateIndex creates an index. It may be repeated.
func (c *Client) CreateIndex(ctx context.Context, name, match, group string) (Indexes, error) {
	return change[Indexes](ctx, c, http.MethodPost, "/v1/indexes", nil, map[string]string{"name": name, "match": match, "group": group})
}

// DeleteIndex begins to delete an index and its groups. It may be repeated until the index is gone.
func (c *Client) DeleteIndex(ctx context.Context, name string) (Indexes, error) {
	return change[Indexes](ctx, c, http.MethodDelete, "/v1/indexes", params("name", name), nil)
}
