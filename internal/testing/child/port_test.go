package child

import (
	"errors"
	"fmt"
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
// refused. Other programs may ask for a port by its number, so there are three attempts.
func TestServersTakeIt(t *testing.T) {
	t.Parallel()
	var err error
	for range 3 {
		k := kept(t)
		if err = errors.Join(serve(k), serve(k)); err == nil {
			return
		}
	}
	t.Error(err)
}

// serve listens on the port for a moment.
func serve(k *Port) error {
	if c, err := net.Dial("tcp", k.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("nobody listens, and a call gets %v, %w", c, err)
	}
	l, err := net.Listen("tcp", k.Addr())
	if err != nil {
		return err
	}
	if got := l.Addr().(*net.TCPAddr).Port; got != k.Number() {
		err = fmt.Errorf("got port %d, want %d", got, k.Number())
	}
	return errors.Join(err, l.Close())
}
