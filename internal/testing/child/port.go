package child

import "net/netip"

// A Port is reserved: no program that asks for any port gets it, while a server is built, while it
// starts, or between two of its lives. A program that asks for it by its number can listen on it. Until
// then connections are refused.
type Port struct {
	addr netip.AddrPort
	free func() error
}

// KeepPort finds a free port of 127.0.0.1 and reserves it until Free, or the end of this process.
func KeepPort() (*Port, error) { return keepPort() }

// Addr is HOST:PORT.
func (k *Port) Addr() string { return k.addr.String() }

// Number is the port's number.
func (k *Port) Number() int { return int(k.addr.Port()) }

// Free gives the port back. A server that listens on it continues.
func (k *Port) Free() error { return k.free() }
