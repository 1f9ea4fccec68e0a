package fakestore

import "time"

// A history is the versions of one entity, oldest first.
type history[T any] []version[T]

type version[T any] struct {
	at    time.Time
	value T
}

func (h history[T]) newest() (value T, ok bool) {
	if len(h) == 0 {
		return value, false
	}
	return h[len(h)-1].value, true
}

// at returns the value at that moment.
func (h history[T]) at(moment time.Time) (value T, ok bool) {
	for i := len(h) - 1; i >= 0; i-- {
		if !h[i].at.After(moment) {
			return h[i].value, true
		}
	}
	return value, false
}

// set adds a version, and drops versions that no reader at keep or later can see.
func (h history[T]) set(at time.Time, value T, keep time.Time) history[T] {
	h = append(h, version[T]{at, value})
	first := 0
	for i := range h {
		if !h[i].at.After(keep) {
			first = i
		}
	}
	return append(h[:0], h[first:]...)
}

// oldestLocked is the earliest moment at which a view may still read.
func (s *Store) oldestLocked() time.Time {
	if s.opts.History {
		return time.Time{}
	}
	oldest := s.last
	for v := range s.views {
		if v.at.Before(oldest) {
			oldest = v.at
		}
	}
	return oldest
}
