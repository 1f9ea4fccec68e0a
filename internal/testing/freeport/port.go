// Package freeport keeps a port of this machine for a process that is started on it, and maybe
// again and again. A port that was only found free is given to the next who asks for any:
// while the process is built, starts, or is away between two lives.
package freeport

import "net/netip"

// A Kept port is given to nobody who asks for any port. Who asks for it by its number can
// listen on it, as nobody does; until then connections are refused.
type Kept struct {
	addr netip.AddrPort
	free func() error
}

// Keep finds a free port of 127.0.0.1 and keeps it until Free, or the end of this process.
func Keep() (*Kept, error) { return keep() }

// Addr is HOST:PORT.
func (k *Kept) Addr() string { return k.addr.String() }

// Port is the number.
func (k *Kept) Port() int { return int(k.addr.Port()) }

// Free gives the port back. Whoever listens on it goes on.
func (k *Kept) Free() error { return k.free() }
