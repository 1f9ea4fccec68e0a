package datastore

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// The server may defer keys of a look-up in a transaction. The entities that it would have found exist.
func TestDeferredInATransaction(t *testing.T) {
	t.Parallel()
	var defers atomic.Bool
	cfg := fresh(t)
	cfg.Create = true
	cfg.DialOptions = append(cfg.DialOptions, grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		r, ok := reply.(*pb.LookupResponse)
		q, _ := req.(*pb.LookupRequest)
		if ok && err == nil && len(q.GetReadOptions().GetTransaction()) > 0 && len(r.Found) > 0 && defers.CompareAndSwap(true, false) {
			r.Deferred = append(r.Deferred, r.Found[0].GetEntity().GetKey())
			r.Found = r.Found[1:]
		}
		return err
	}))
	s := openStore(t, cfg)
	next := func(id string) store.Given {
		t.Helper()
		now := time.Now()
		given, err := s.NextValues(t.Context(), "s", []store.Take{{ID: wire.SequenceID("s", id), Count: 1, At: now, ExpireAt: now.Add(time.Hour)}})
		if err != nil {
			t.Fatal(err)
		}
		return given[0]
	}
	if got := next("a"); got.First != 1 {
		t.Fatalf("the first value is %d, want 1", got.First)
	}
	defers.Store(true)
	if got := next("b"); got.First != 2 {
		t.Errorf("after a deferred look-up the value is %d, want 2: it was given before", got.First)
	}
	if defers.Load() {
		t.Error("nothing was deferred")
	}
}
