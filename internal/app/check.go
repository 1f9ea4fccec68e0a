package app

import (
	"errors"
	"net"
	"slices"
	"strconv"

	"github.com/countmill/countmill/backend"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/internal/units"
)

// Check reports all that is wrong with the configuration without opening anything. The
// error matches ErrUsage.
func (c Config) Check() error {
	c = c.withDefaults()
	_, err := chooseBackends(c)
	return errors.Join(checkOpeners(c), err, checkAddr("listen", c.Listen), checkPprof(c.Pprof), checkAccess(c), checkStaleness(c), checkMinFree(c), checkBackups(c))
}

// checkMinFree refuses a limit for a disk that is not there.
func checkMinFree(c Config) error {
	if alone, _ := c.oneProcess(); c.MinFree > 0 && !alone {
		return Usagef("--min-free: bounds the disk of a pebble: store, and --store is %s: leave it out", backend.Shown(c.Store))
	}
	return nil
}

// checkStaleness refuses a budget that nothing would come of, and one for which callers of
// POST /v1/increments would be refused because they wait too long.
func checkStaleness(c Config) error {
	_, inProcess := c.oneProcess()
	switch {
	case c.CountWithin == 0:
		return nil
	case inProcess:
		return Usagef("--count-within: with --bus inproc: an increment is in the total before its caller is answered, " +
			"and nothing waits: leave it out")
	case c.Roles.Has(Publisher) && c.CountWithin > c.RequestTimeout/4:
		return Usagef("--count-within: requests for increments wait for most of it: must be at most a quarter of --request-timeout, "+
			"which is %s, got %s", units.FormatDuration(c.RequestTimeout/4), units.FormatDuration(c.CountWithin))
	}
	return nil
}

// checkPprof refuses an address that strangers could reach: profiles need no token.
func checkPprof(addr string) error {
	if addr == "" {
		return nil
	}
	if err := checkAddr("pprof", addr); err != nil {
		return err
	}
	if host, _, _ := net.SplitHostPort(addr); host != "localhost" && !net.ParseIP(host).IsLoopback() {
		return errNotHere(addr)
	}
	return nil
}

func checkAddr(flag, addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err == nil {
		return nil
	}
	if _, err := strconv.ParseUint(addr, 10, 16); err == nil {
		return Usagef("--%s: must be HOST:PORT, got %q: write 127.0.0.1:%s", flag, addr, addr)
	}
	return Usagef("--%s: must be HOST:PORT with a port from 0 to 65535, got %q", flag, addr)
}

// checkAccess refuses to let anybody on the network in unless somebody said so.
func checkAccess(c Config) error {
	if c.Tokens != "" && c.Insecure {
		return Usagef("--tokens names who may call, and --insecure lets anybody: give one of them")
	}
	if slices.Contains(c.CORSOrigins, httpserver.AnyOrigin) && c.Tokens == "" && !c.Insecure {
		return Usagef("--cors-origin *: any web page that somebody here opens could count, read and delete: " +
			"give --tokens FILE (see countmill help token), or --insecure if that is meant")
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil || c.Tokens != "" || c.Insecure || host == "localhost" || net.ParseIP(host).IsLoopback() {
		return nil
	}
	return errNotLoopback(c.Listen)
}

func errNotLoopback(addr string) error {
	return Usagef("--listen %s: other machines could reach it, and whoever does could count, read and delete: "+
		"give --tokens FILE (see countmill help token), or --insecure if it is kept from strangers by other means", addr)
}
