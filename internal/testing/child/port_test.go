package child

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

func kept(t *testing.T) *Port {
	t.Helper()
	k, err := KeepPort()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Free(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// A server that is started on the port can listen there, also a second time. In between connections are
// refused.
func TestServersTakeIt(t *testing.T) {
	t.Parallel()
	k := kept(t)
	for range 2 {
		if c, err := net.Dial("tcp", k.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("nobody listens, and a call gets %v, %v", c, err)
		}
		l, err := net.Listen("tcp", k.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Addr().(*net.TCPAddr).Port; got != k.Number() {
			t.Errorf("got port %d, want %d", got, k.Number())
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}
