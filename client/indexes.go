package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// Indexes are the indexes that the token may see, in the order of their names.
type Indexes struct {
	// Version rises by 1 with each change of the settings.
	Version int64   `json:"version"`
	Indexes []Index `json:"indexes"`
}

// An Index puts counters into groups. A group is a counter whose name begins with =. Its total is the sum of
// its counters.
type Index struct {
	Name string `json:"name"`
	// Match names the counters: page:{site}:*. Group is the name of a counter's group without the =:
	// site:{site}.
	Match string `json:"match"`
	Group string `json:"group"`
	// State is building, serving or deleting. Groups have totals while it is serving.
	State string `json:"state"`
	// Ranges is the number of ranges of the work. RangesDone of them are done. Both are 0 before the work begins, and for a token
	// that may not read all counters of the index.
	Ranges     int `json:"ranges"`
	RangesDone int `json:"ranges_done"`
	// CheckedAt is when the index was last compared with the shards of its counters; nil before it serves.
	CheckedAt *time.Time `json:"checked_at"`
}

// Indexes returns the indexes.
func (c *Client) Indexes(ctx context.Context) (x Indexes, err error) {
	return x, c.call(ctx, Request{Method: http.MethodGet, Path: "/v1/indexes", Safe: true, read: true}, &x)
}

// CreateIndex creates an index. It may be repeated.
func (c *Client) CreateIndex(ctx context.Context, name, match, group string) (x Indexes, err error) {
	body, err := encode(map[string]string{"name": name, "match": match, "group": group})
	if err != nil {
		return x, err
	}
	return x, c.call(ctx, Request{Method: http.MethodPost, Path: "/v1/indexes", Body: body, Safe: true}, &x)
}

// DeleteIndex begins to delete an index and its groups. It may be repeated until the index is gone.
func (c *Client) DeleteIndex(ctx context.Context, name string) (x Indexes, err error) {
	query := url.Values{"name": {name}}
	return x, c.call(ctx, Request{Method: http.MethodDelete, Path: "/v1/indexes", Query: query, Safe: true}, &x)
}
