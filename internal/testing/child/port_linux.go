package child

import (
	"errors"
	"net/netip"
	"os"
	"syscall"
)

// keep binds a socket that never listens. Linux then gives the port to no bind of port 0 and to no
// connect. Another socket can bind the port by its number if both set SO_REUSEADDR, as servers do.
func keepPort() (*Port, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	local := &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err == nil {
		err = syscall.Bind(fd, local)
	}
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("bind", err), syscall.Close(fd))
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		return nil, errors.Join(os.NewSyscallError("getsockname", err), syscall.Close(fd))
	}
	port := bound.(*syscall.SockaddrInet4).Port
	return &Port{netip.AddrPortFrom(netip.AddrFrom4(local.Addr), uint16(port)), func() error { return syscall.Close(fd) }}, nil
}
