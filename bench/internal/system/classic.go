package system

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"cloud.google.com/go/datastore"
	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/countmill/countmill/bench/internal/load"
)

const (
	classicShards  = 20
	classicWorkers = 20
	classicKind    = "ClassicShard"
)

func classicSystems() []System {
	return []System{{
		Name: "classic", Ack: "committed; a repeat counts twice", Loads: distinct,
		How: fmt.Sprintf("the sharded counter of textbooks on Google's Firestore emulator: read one of %d shards at random, add 1, write, in a transaction; %d at once, repeated on conflict",
			classicShards, classicWorkers),
		Family: "classic", Against: "classic", Version: googleVersion,
		Open: func(ctx context.Context, at Place) (Instance, error) {
			c := &classic{}
			return opened(c, c.open(ctx, at))
		},
	}}
}

type classic struct {
	closers
	addr   string
	client *datastore.Client
	writes atomic.Int64
}

// classicShard is one of the entities of a counter.
type classicShard struct {
	Counter string
	Count   int64 `datastore:",noindex"`
}

func (c *classic) open(ctx context.Context, at Place) error {
	p, addr, err := startFirestore(ctx, at.Dir)
	if err != nil {
		return err
	}
	c.add(p.Stop)
	c.addr = addr
	c.client, err = datastore.NewClient(context.WithoutCancel(ctx), project, option.WithEndpoint(addr), option.WithoutAuthentication(),
		option.WithGRPCDialOption(grpc.WithTransportCredentials(insecure.NewCredentials())))
	if err != nil {
		return err
	}
	c.add(func() { _ = c.client.Close() })
	return nil
}

// Count runs a transaction for each increment.
func (c *classic) Count(ctx context.Context, r *load.Run) error {
	err := r.Walk(ctx, classicWorkers, 1, func(ctx context.Context, _, _ int, order []uint32) error {
		return c.increment(ctx, r.Names[order[0]])
	})
	r.Stop()
	n, _ := r.Done()
	r.Note("entities_per_million", float64(c.writes.Load())*1e6/float64(max(n, 1)))
	return err
}

func (c *classic) increment(ctx context.Context, name string) error {
	for {
		key := datastore.NameKey(classicKind, fmt.Sprintf("%s:%d", name, rand.IntN(classicShards)), nil)
		_, err := c.client.RunInTransaction(ctx, func(tx *datastore.Transaction) error {
			shard := classicShard{Counter: name}
			if err := tx.Get(key, &shard); err != nil && !errors.Is(err, datastore.ErrNoSuchEntity) {
				return err
			}
			shard.Count++
			_, err := tx.Put(key, &shard)
			return err
		})
		if err == nil {
			c.writes.Add(1)
			return nil
		}
		if !conflict(err) {
			return err
		}
	}
}

// conflict reports whether a transaction lost against another one. It wrote nothing then.
func conflict(err error) bool {
	return errors.Is(err, datastore.ErrConcurrentTransaction) || status.Code(err) == codes.Aborted
}

// Check sums the shards.
func (c *classic) Check(ctx context.Context, r *load.Run) error {
	totals, err := sums(ctx, c.addr, classicKind, "Counter", "Count")
	if err != nil {
		return err
	}
	return checkSums(ctx, r, totals)
}

// checkSums compares all totals of a store with the run.
func checkSums(ctx context.Context, r *load.Run, totals map[string]int64) error {
	return r.Check(ctx, func(_ context.Context, names []string) ([]int64, error) { return inOrder(names, totals), nil })
}

// sums adds up all entities of a kind by their counter. It is a single query, because each query of the
// emulator reads the whole kind.
func sums(ctx context.Context, addr, kind, counter, count string) (map[string]int64, error) {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	query := &pb.Query{Kind: []*pb.KindExpression{{Name: kind}}}
	totals := make(map[string]int64)
	for {
		resp, err := pb.NewDatastoreClient(conn).RunQuery(ctx, &pb.RunQueryRequest{ProjectId: project, QueryType: &pb.RunQueryRequest_Query{Query: query}})
		if err != nil {
			return nil, fmt.Errorf("read all of %s: %w", kind, err)
		}
		for _, e := range resp.GetBatch().GetEntityResults() {
			p := e.GetEntity().GetProperties()
			totals[p[counter].GetStringValue()] += p[count].GetIntegerValue()
		}
		if resp.GetBatch().GetMoreResults() != pb.QueryResultBatch_NOT_FINISHED {
			return totals, nil
		}
		query.StartCursor = resp.GetBatch().GetEndCursor()
	}
}
