package fair

// Usage is how much of a bounded thing each caller uses. It forgets callers that use nothing. Its methods need its
// owner's lock. The zero value is empty.
type Usage struct {
	used int
	by   map[string]int // never 0
}

// Used is what all use together.
func (s *Usage) Used() int { return s.used }

// Of is what a caller uses.
func (s *Usage) Of(caller string) int { return s.by[caller] }

// Take adds n to the caller's share, unless the share would exceed most.
func (s *Usage) Take(caller string, n, most int) bool {
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

// Give takes n off the caller's share.
func (s *Usage) Give(caller string, n int) {
	s.used -= n
	if s.by[caller] -= n; s.by[caller] == 0 {
		delete(s.by, caller)
	}
}
