package verify

import (
	"context"
	"time"
)

// A Shard is one as it is stored.
type Shard struct {
	Counter string
	Number  int
	Count   int64
	// Overflow means that the count left int64 or stands at either end of it.
	Overflow bool
	// Updated is when it was last written; zero where the store does not know.
	Updated time.Time
	// Bad says why no reader finds it, or can take its count; empty where that is not so.
	Bad string
}

// A Page is shards and the records of their counters, all of one moment.
type Page struct {
	At     time.Time
	Shards []Shard
	// Records is how many shards the record of each counter names. No record, no entry.
	Records map[string]int
	// Next is where the next page begins, in the store's own words; empty at the end.
	Next string
}

// A Store shows shards. Concurrent calls are allowed.
type Store interface {
	// ShardsOf returns all shards of a counter by number, those that its record does not
	// name too.
	ShardsOf(ctx context.Context, counter string) (Page, error)

	// ShardPage returns some shards of counters whose names begin with prefix, at most
	// limit, and maybe none before the last page. A shard that is there during all pages
	// is on one of them. from is empty, or the Next of a page of the same prefix.
	ShardPage(ctx context.Context, prefix, from string, limit int) (Page, error)
}

// MaxShards is the most shards of one page.
const MaxShards = 1000
