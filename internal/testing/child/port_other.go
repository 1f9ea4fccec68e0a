//go:build !linux

package child

import "net"

// keep finds a port that is free now and reserves nothing: on other systems than Linux a bound socket
// would keep servers out too.
func keepPort() (*Port, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := l.Addr().(*net.TCPAddr).AddrPort()
	return &Port{addr, func() error { return nil }}, l.Close()
}
