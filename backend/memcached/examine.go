package memcached

import (
	"context"
	"fmt"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/countmill/countmill/backend"
)

// examTimeout bounds the answer of one server.
const examTimeout = 5 * time.Second

// checkMemcached is the check of an examination.
const checkMemcached = "memcached"

// Examine asks each server for its version. It neither reads nor writes totals.
func Examine(_ context.Context, servers []string, r *backend.Report) {
	for _, name := range servers {
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
