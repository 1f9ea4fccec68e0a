package memcached

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/countmill/countmill/backend"
)

// examTimeout bounds the answer of one server.
const examTimeout = 5 * time.Second

// checkMemcached is the check of an examination.
const checkMemcached = "memcached"

// Examine asks each server for its version, and its name for more servers than one. It neither reads nor writes totals.
func Examine(ctx context.Context, servers []string, r *backend.Report) {
	ctx, cancel := context.WithTimeout(ctx, examTimeout)
	defer cancel()
	for _, name := range servers {
		if addrs := addresses(ctx, name); len(addrs) > 1 {
			r.Find(backend.Finding{
				Check: checkMemcached, What: fmt.Sprintf("memcached %s has the addresses %s.", name, strings.Join(addrs, ", ")),
				Why: "Each connection goes to any of them, so a total that one server has is missing on the others.", Do: "Name each server in --cache, as a StatefulSet's pods.",
				Page: "runbook.md#countmillcacheerrors",
			})
		}
		client := memcache.NewFromSelector(selector{addr(name)})
		client.Timeout = examTimeout
		if err := client.Ping(); err != nil {
			r.Find(backend.Finding{
				Check: checkMemcached, What: fmt.Sprintf("memcached %s does not answer: %v.", name, err),
				Why: "Readers read the store instead, which costs reads and time.", Do: "Start it, or fix the address in --cache.", Page: "runbook.md#countmillcacheerrors",
			})
		} else {
			r.Done(checkMemcached, name)
		}
		_ = client.Close() // it was only asked
	}
}

// addresses returns the addresses of a server; none if its name is not known.
func addresses(ctx context.Context, server string) []string {
	host, _, _ := net.SplitHostPort(server)               // the configuration was validated
	addrs, _ := net.DefaultResolver.LookupHost(ctx, host) // such a server does not answer, which is found too
	return oneFamily(addrs)
}

// oneFamily leaves out the addresses of IPv6 if there are others: localhost is one server.
func oneFamily(addrs []string) []string {
	isV4 := func(a string) bool { return !strings.Contains(a, ":") }
	if !slices.ContainsFunc(addrs, isV4) {
		return addrs
	}
	return slices.DeleteFunc(addrs, func(a string) bool { return !isV4(a) })
}
