// Package freeport reserves a port of this machine for a server that a test starts, maybe several
// times. Without it, a port that was found free may go to another program that asks for any port: while
// the server is built, while it starts, or between two of its lives.
package freeport

import "net/netip"

// A Kept port is reserved: no program that asks for any port gets it. A program that asks for
// it by its number can listen on it. Until then connections are refused.
type Kept struct {
	addr netip.AddrPort
	free func() error
}

// Keep finds a free port of 127.0.0.1 and reserves it until Free, or the end of this process.
func Keep() (*Kept, error) { return keep() }

// Addr is HOST:PORT.
func (k *Kept) Addr() string { return k.addr.String() }

// Port is the number.
func (k *Kept) Port() int { return int(k.addr.Port()) }

// Free gives the port back. A server that listens on it continues.
func (k *Kept) Free() error { return k.free() }
