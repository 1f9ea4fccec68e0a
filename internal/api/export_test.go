package api

import (
	"fmt"
	"strings"

	"github.com/countmill/countmill/internal/fair"
)

const (
	MaxBodyCounters = maxBodyCounters
	MaxMetrics      = maxMetrics
)

// Watchers is how many there are.
func (a *API) Watchers() int { return a.pools[streams].Used() }

// A Resource is a row of the table of what callers share.
type Resource struct {
	Name, Tested string
	Most         int
	Row          string // of the page of limits
}

// Shared is that table, by the defaults.
func Shared() (rows []Resource) {
	c := Config{}.withDefaults()
	for _, r := range shared {
		most, share := r.most(&c), r.share
		text := func(n int) string { return thousands(int64(n)) }
		if strings.HasPrefix(r.name, "bytes") {
			text = func(n int) string { return fmt.Sprintf("%d MiB", n>>20) }
		}
		if share == "" {
			share = text(fair.NewPool(most, r.keen).Own())
		}
		rows = append(rows, Resource{r.name, r.tested, most, fmt.Sprintf("| %s | %s | %s |", r.name, text(most), share)})
	}
	return rows
}

// TakeAll takes all that a caller gets of the nth resource, and returns how much that is.
func (a *API) TakeAll(n int, caller string) (got int) {
	pool := a.pools[n]
	for size := pool.Most(); size > 0; size /= 2 {
		for pool.Take(caller, size) {
			got += size
		}
	}
	return got
}
