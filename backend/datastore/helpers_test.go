package datastore

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"
	"time"

	"github.com/countmill/countmill/store"

	pb "cloud.google.com/go/datastore/apiv1/datastorepb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/countmill/countmill/internal/testing/emulator"
	"github.com/countmill/countmill/wire"
)

// A tap sees every call before the server does, and may answer instead of it.
type tap struct {
	mu     sync.Mutex
	calls  []string
	answer func(method string, req, reply any) (done bool, err error)
}

func (p *tap) option() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		p.mu.Lock()
		p.calls = append(p.calls, method[len("/google.datastore.v1.Datastore/"):])
		answer := p.answer
		p.mu.Unlock()
		if answer != nil {
			if done, err := answer(method, req, reply); done {
				return err
			}
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	})
}

// take returns the calls since the last take.
func (p *tap) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := p.calls
	p.calls = nil
	return calls
}

func (p *tap) set(answer func(method string, req, reply any) (bool, error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

// An offClock simulates a server whose clock is ahead of the machine's: requests and answers have times of that clock.
type offClock time.Duration

func (c offClock) read(o *pb.ReadOptions) *pb.ReadOptions {
	if o.GetReadTime() == nil {
		return o
	}
	return at(timestamppb.New(o.GetReadTime().AsTime().Add(-time.Duration(c))))
}

func (c offClock) option() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		switch r := req.(type) {
		case *pb.LookupRequest:
			r.ReadOptions = c.read(r.ReadOptions)
		case *pb.RunQueryRequest:
			r.ReadOptions = c.read(r.ReadOptions)
		}
		if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
			return err
		}
		moved := func(t *timestamppb.Timestamp) *timestamppb.Timestamp {
			if t == nil {
				return nil
			}
			return timestamppb.New(t.AsTime().Add(time.Duration(c)))
		}
		switch r := reply.(type) {
		case *pb.LookupResponse:
			r.ReadTime = moved(r.ReadTime)
		case *pb.RunQueryResponse:
			r.Batch.ReadTime = moved(r.Batch.GetReadTime())
			for _, e := range r.GetBatch().GetEntityResults() {
				e.UpdateTime = moved(e.UpdateTime)
			}
		case *pb.CommitResponse:
			r.CommitTime = moved(r.CommitTime)
		}
		return nil
	})
}

// fresh returns a database of the test's own on the Firestore emulator.
func fresh(t testing.TB) Config {
	t.Helper()
	return Config{Project: emulator.Project(), Emulator: emulator.Firestore(t)}
}

func newMarker() store.Marker {
	return store.Marker{ID: wire.RandomID(rand.Reader, wire.AnonymousClass), Fingerprint: 7, Fold: 8, At: now(), ExpireAt: now()}
}

func add(counter string, shard int, delta int64) store.ShardDelta {
	return store.NewShardDelta(counter, shard, delta)
}

func mustFold(t testing.TB, s *Store, c *store.Commit) {
	t.Helper()
	if _, err := s.Fold(t.Context(), c); err != nil {
		t.Fatalf("Fold: %v", err)
	}
}

func value(t testing.TB, s *Store, counter string, shard int) store.Value {
	t.Helper()
	v := s.View()
	defer v.Close()
	values, err := v.Lookup(t.Context(), []store.Key{{Counter: counter, Shard: shard}})
	if err != nil {
		t.Fatalf("Lookup: %v", err)
	}
	return values[0]
}

// now is the local clock in the service's granularity.
func now() time.Time { return time.Now().Truncate(time.Microsecond) }
