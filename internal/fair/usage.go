package fair

// Usage is how much of a bounded thing each caller uses. It forgets callers that use nothing. Its methods need its
// owner's lock. The zero value is empty.
type Usage struct {
	used int
	by   map[string]int // never 0
}

// Used is the use of all callers together.
func (u *Usage) Used() int { return u.used }

// Of is the use of a caller.
func (u *Usage) Of(caller string) int { return u.by[caller] }

// Take adds n to the caller's share, unless the share would exceed most.
func (u *Usage) Take(caller string, n, most int) bool {
	if u.by[caller]+n > most {
		return false
	}
	if u.by == nil {
		u.by = make(map[string]int)
	}
	u.used += n
	u.by[caller] += n
	return true
}

// Give takes n off the caller's share.
func (u *Usage) Give(caller string, n int) {
	u.used -= n
	if u.by[caller] -= n; u.by[caller] == 0 {
		delete(u.by, caller)
	}
}
