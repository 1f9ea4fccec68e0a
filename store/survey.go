package store

import (
	"context"
	"time"

	"github.com/countmill/countmill/store/int128"
)

// A Shard is a shard as it is stored.
type Shard struct {
	Counter string
	Number  int
	Count   int128.Int
	// Updated is when the shard was last written; zero if the store does not know.
	Updated time.Time
	// Bad is the reason why readers cannot find the shard or use its count; empty for a good
	// shard.
	Bad string
}

// A ShardPage is shards and the records of their counters, all read at one moment.
type ShardPage struct {
	At     time.Time
	Shards []Shard
	// Records is the number of shards in the record of each counter. A counter without a
	// record has no entry.
	Records map[string]int
	// Next is the start of the next page, in the store's own format; empty at the end.
	Next string
}

// Survey lists shards as they are stored. Concurrent calls are allowed.
type Survey interface {
	// ShardsOf returns all shards of a counter by number, also shards beyond the number in
	// its record.
	ShardsOf(ctx context.Context, counter string) (ShardPage, error)

	// ShardPage returns at most limit shards of counters whose names begin with prefix. A
	// page before the last one may be empty. A shard that exists during all pages is on one
	// of them. from is empty, or the Next of a page of the same prefix.
	ShardPage(ctx context.Context, prefix, from string, limit int) (ShardPage, error)
}

// MaxSurveyPage is the most shards of one page.
const MaxSurveyPage = 1000
