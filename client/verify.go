package client

import (
	"context"
	"net/http"
	"time"
)

// Shards are the shards of a counter.
type Shards struct {
	Counter string    `json:"counter" schema:"CounterName"`
	AsOf    time.Time `json:"as_of"`
	// Whether the counter has a record. A deleted one has its for a day, where totals say false.
	Exists bool `json:"exists"`
	// How many the record names.
	Shards int `json:"shards" schema:"0.."`
	// The shards that were written, by number.
	Counts []ShardCount `json:"counts"`
}

// A ShardCount is one of them.
type ShardCount struct {
	Shard int `json:"shard" schema:"0.."`
	// It may exceed 2^53. Null if it does not fit 64 bits, or cannot be read.
	Count *int64 `json:"count" schema:"int64"`
	// When it was last written. Absent with `pebble:`, which does not know.
	Updated time.Time `json:"updated,omitzero"`
	// Why it is in no total. Absent otherwise.
	Problem string `json:"problem,omitzero" schema:"=orphan|beyond|unreadable"`
}

// Verified is the result of a check of one page.
type Verified struct {
	// The moment of the shards or groups. Absent where there are no more groups.
	AsOf     time.Time       `json:"as_of,omitzero"`
	Problems []Inconsistency `json:"problems"`
	// Shards of this page.
	Shards int `json:"shards" schema:"0.."`
	// Groups of this page: all groups of one index, compared with their counters at one moment.
	Groups int `json:"groups" schema:"0.."`
	// Opaque. Absent at the end.
	Next string `json:"next_page_token,omitzero" schema:"len 1.."`
}

// An Inconsistency is something wrong in the stored data.
type Inconsistency struct {
	// `group`: the total of a group is not the sum of its counters. `orphan`: a shard of a counter without a record. `beyond`: a
	// shard whose number the record does not cover. `unreadable`: a shard that no reader can read.
	Kind    string `json:"kind" schema:"=orphan|beyond|unreadable|group"`
	Counter string `json:"counter"`
	// Absent for groups.
	Shard  *int   `json:"shard,omitzero" schema:"0.."`
	Detail string `json:"detail"`
	// Absent otherwise.
	Fixed bool `json:"fixed,omitzero"`
}

// Shards returns the shards of a counter.
func (c *Client) Shards(ctx context.Context, counter string) (Shards, error) {
	return read[Shards](ctx, c, "/v1/shards", params("counter", counter))
}

// Verify checks a page of the stored data of the counters that begin with prefix. token is the Next of the page before, and empty for the
// first one. A page may take longer than the default time-out. It needs the scope admin, and no prefixes.
func (c *Client) Verify(ctx context.Context, prefix, token string) (Verified, error) {
	return read[Verified](ctx, c, "/v1/verify", params("prefix", prefix, "page_token", token))
}

// Fix is Verify, and corrects the differences that no person has to judge. It may be repeated.
func (c *Client) Fix(ctx context.Context, prefix, token string) (Verified, error) {
	return change[Verified](ctx, c, http.MethodPost, "/v1/verify", nil, map[string]string{"prefix": prefix, "page_token": token})
}
