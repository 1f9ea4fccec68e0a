package api

import (
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/store"
)

func shardsOf(counter string, page store.ShardPage) client.Shards {
	out := client.Shards{Counter: counter, AsOf: page.At, Counts: make([]client.ShardCount, len(page.Shards))}
	out.Shards, out.Exists = page.Records[counter], page.Records[counter] > 0
	for i := range page.Shards {
		s := &page.Shards[i]
		out.Counts[i] = client.ShardCount{Shard: s.Number, Updated: s.Updated}
		if n, fits := s.Count.Int64(); fits && s.Bad == "" {
			out.Counts[i].Count = &n
		}
		if problem, wrong := admin.ShardProblem(&page, s); wrong {
			out.Counts[i].Problem = problem.Kind
		}
	}
	return out
}

func verifiedOf(r admin.VerifyResult) client.Verified {
	out := client.Verified{
		AsOf: r.At, Problems: make([]client.Inconsistency, len(r.Problems)),
		Shards: r.Shards, Groups: r.Groups, Next: httpserver.PageToken(r.Next),
	}
	for i, p := range r.Problems {
		out.Problems[i] = client.Inconsistency{Kind: p.Kind, Counter: p.Counter, Detail: p.Detail, Fixed: p.Fixed}
		if p.Shard >= 0 {
			out.Problems[i].Shard = &p.Shard
		}
	}
	return out
}
