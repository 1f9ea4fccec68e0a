package publisher

import (
	"errors"
	"fmt"
	"maps"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/wire"
)

// errKeyUsed refuses a request with a key.
var errKeyUsed = fmt.Errorf("%w: the Idempotency-Key was used before with another body", countmill.ErrConflict)

// addReused adds the reply of one message.
func (s *flush) addReused(uses map[wire.Use]struct{}) {
	if len(uses) == 0 {
		return
	}
	if s.reused == nil {
		s.reused = make(map[wire.Use]struct{})
	}
	maps.Copy(s.reused, uses)
}

// errMergedRefused is about increments that were merged: which of them are in the part, nobody
// knows any more.
var errMergedRefused = errors.New("a part of merged increments was not counted: its id was counted with others")

// mergedErr is the outcome of the increments without ids or keys; nil if all were counted.
func (s *flush) mergedErr() error {
	if s.err != nil {
		return s.err
	}
	for use := range s.reused {
		if use.ID.Class() == wire.AnonymousClass {
			return fmt.Errorf("%w: %w", countmill.ErrOutcomeUnknown, errMergedRefused)
		}
	}
	return nil
}

// conflicts returns the error that names the request's increments among the reused parts; nil if
// there are none. Requests share messages, and several may have one id with different deltas. The
// fingerprint decides which of them was not counted.
func (r *request) conflicts(incs []countmill.Increment) error {
	if len(r.reused) == 0 {
		return nil
	}
	var found []countmill.Conflict
	for i, inc := range incs {
		if inc.ID == "" {
			continue
		}
		part := wire.CutIdentified(inc)
		// Another delta may have been counted under this id, or this one.
		if _, ok := r.reused[wire.Use{ID: part.ID, Fingerprint: part.Fingerprint()}]; ok {
			found = append(found, countmill.Conflict{Position: i, Counter: inc.Counter, ID: inc.ID, Delta: inc.Delta})
		}
	}
	if found == nil {
		return nil
	}
	return &countmill.ConflictsError{Conflicts: found}
}

// forgetKey returns the error of a request whose key the store has with another request.
func (p *Publisher) forgetKey(known *knownKey) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known.forget(known)
	return errKeyUsed
}
