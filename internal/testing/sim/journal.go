package sim

import "time"

// JournalMoment is a call that does not reach the store.
func (s *simStore) JournalMoment(now time.Time) (at time.Time, done func()) {
	return s.fake.JournalMoment(now)
}
