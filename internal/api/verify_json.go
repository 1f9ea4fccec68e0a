package api

import (
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/store"
)

// counterShards is the shards of a counter as clients see them.
type counterShards struct {
	Counter string  `json:"counter"`
	AsOf    string  `json:"as_of"`
	Exists  bool    `json:"exists"`
	Shards  int     `json:"shards"` // that the record names
	Counts  []count `json:"counts"` // of the shards that were written
}

type count struct {
	Shard   int    `json:"shard"`
	Count   *int64 `json:"count"` // null if it does not fit 64 bits
	Updated string `json:"updated,omitempty"`
	Problem string `json:"problem,omitempty"`
}

func shardsOf(counter string, page store.ShardPage) counterShards {
	out := counterShards{Counter: counter, AsOf: httpserver.FormatTime(page.At), Counts: make([]count, len(page.Shards))}
	out.Shards, out.Exists = page.Records[counter], page.Records[counter] > 0
	for i := range page.Shards {
		s := &page.Shards[i]
		out.Counts[i] = count{Shard: s.Number, Updated: optional(s.Updated)}
		if n, fits := s.Count.Int64(); fits && s.Bad == "" {
			out.Counts[i].Count = &n
		}
		if problem, wrong := admin.ShardProblem(&page, s); wrong {
			out.Counts[i].Problem = problem.Kind
		}
	}
	return out
}

type verified struct {
	AsOf          string    `json:"as_of,omitempty"`
	Problems      []problem `json:"problems"`
	Shards        int       `json:"shards"`
	Cached        int       `json:"cached"`
	Unchecked     int       `json:"unchecked"`
	Groups        int       `json:"groups"`
	NextPageToken string    `json:"next_page_token,omitempty"`
}

type problem struct {
	Kind    string `json:"kind"`
	Counter string `json:"counter"`
	Shard   *int   `json:"shard,omitempty"`
	Detail  string `json:"detail"`
	Fixed   bool   `json:"fixed,omitempty"`
}

func verifiedOf(r admin.VerifyResult) verified {
	out := verified{
		AsOf: optional(r.At), Problems: make([]problem, len(r.Problems)),
		Shards: r.Shards, Cached: r.Cached, Unchecked: r.Unchecked, Groups: r.Groups, NextPageToken: httpserver.PageToken(r.Next),
	}
	for i, p := range r.Problems {
		out.Problems[i] = problem{Kind: p.Kind, Counter: p.Counter, Detail: p.Detail, Fixed: p.Fixed}
		if p.Shard >= 0 {
			out.Problems[i].Shard = &p.Shard
		}
	}
	return out
}
