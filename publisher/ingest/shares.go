package ingest

// shares is how much of a bounded thing each caller uses. It forgets callers that use nothing.
// Its methods need its owner's lock.
type shares struct {
	used int
	by   map[string]int // never 0
}

// take adds n to the caller's share, unless the share would exceed most.
func (s *shares) take(caller string, n, most int) bool {
	if s.by[caller]+n > most {
		return false
	}
	if s.by == nil {
		s.by = make(map[string]int)
	}
	s.used += n
	s.by[caller] += n
	return true
}

// give takes n off the caller's share.
func (s *shares) give(caller string, n int) {
	s.used -= n
	if s.by[caller] -= n; s.by[caller] == 0 {
		delete(s.by, caller)
	}
}
