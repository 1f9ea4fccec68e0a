package gcppubsub_test

import (
	"net"
	"strings"
	"sync"
	"testing"

	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"google.golang.org/grpc"
)

// A fake is Google's fake server in this process. A test chooses the calls that it refuses.
type fake struct {
	*pstest.Server
	host string

	mu      sync.Mutex
	refused error // the answer to StreamingPull; nil lets it through
}

func newFake(t *testing.T) *fake {
	t.Helper()
	f := &fake{Server: pstest.NewServer()}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.StreamInterceptor(f.intercept))
	pubsubpb.RegisterPublisherServer(s, &f.GServer)
	pubsubpb.RegisterSubscriberServer(s, &f.GServer)
	f.host = l.Addr().String()
	var served sync.WaitGroup
	served.Go(func() { _ = s.Serve(l) })
	t.Cleanup(func() {
		s.Stop()
		served.Wait()
		_ = f.Close()
	})
	return f
}

func (f *fake) refuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = err
}

func (f *fake) intercept(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	f.mu.Lock()
	err := f.refused
	f.mu.Unlock()
	if err != nil && strings.HasSuffix(info.FullMethod, "/StreamingPull") {
		return err
	}
	return handler(srv, stream)
}
