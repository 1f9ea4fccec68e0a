package httpapi

// A Resource is a row of the table of what callers share.
type Resource struct {
	Name, Share, Tested string
	Most                int
}

// Shared is that table, by the defaults.
func Shared() (rows []Resource) {
	c := Config{}.withDefaults()
	for _, r := range shared {
		rows = append(rows, Resource{r.name, r.share, r.tested, r.most(&c)})
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
