package child

import (
	"errors"
	"syscall"
	"testing"
)

// localPortRange is IP_LOCAL_PORT_RANGE, which Linux has since 6.3: the range from which a socket gets
// any port.
const localPortRange = 51

// A socket that asks for any port does not get the reserved one, even if its range allows no other.
func TestNobodyIsGivenIt(t *testing.T) {
	t.Parallel()
	k, other := kept(t), kept(t)
	local := [4]byte{127, 0, 0, 1}
	for name, ask := range map[string]func(fd int) error{
		"a listener": func(fd int) error { return syscall.Bind(fd, &syscall.SockaddrInet4{Addr: local}) },
		"a connection": func(fd int) error {
			return syscall.Connect(fd, &syscall.SockaddrInet4{Addr: local, Port: other.Number()})
		},
	} {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(fd)
		if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_IP, localPortRange, k.Number()<<16|k.Number()); err != nil {
			t.Skipf("this Linux does not let a socket choose among few ports: %v", err)
		}
		if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
			t.Fatal(err)
		}
		if err := ask(fd); !errors.Is(err, syscall.EADDRINUSE) && !errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Errorf("%s that asks for any port: got %v, want an error", name, err)
		}
	}
}
