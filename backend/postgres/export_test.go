package postgres

import "time"

// SetClock sets this machine's clock.
func (s *Store) SetClock(now func() time.Time) { s.now = now }
