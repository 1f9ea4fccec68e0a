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

// errExpired is about parts that came to the server too late to be recognised. An earlier try may have been counted.
var errExpired = fmt.Errorf("%w: its time is before the server's deduplication window", countmill.ErrOutcomeUnknown)

// addReply adds the reply of one message.
func (s *flush) addReply(r *wire.Reply) {
	s.reused, s.expired = joinUses(s.reused, r.Reused()), joinUses(s.expired, r.Expired())
}

func joinUses(all, more map[wire.Use]struct{}) map[wire.Use]struct{} {
	if all == nil {
		return more
	}
	maps.Copy(all, more)
	return all
}

// errMergedRefused is about increments that were merged: which of them are in the part, nobody
// knows any more.
var errMergedRefused = errors.New("a part of merged increments was not counted: its id was counted with others, or its time is too old")

// mergedErr is the outcome of the increments without ids or keys; nil if all were counted.
func (s *flush) mergedErr() error {
	if s.err != nil {
		return s.err
	}
	for _, uses := range []map[wire.Use]struct{}{s.reused, s.expired} {
		for use := range uses {
			if use.ID.Class() == wire.AnonymousClass {
				return fmt.Errorf("%w: %w", countmill.ErrOutcomeUnknown, errMergedRefused)
			}
		}
	}
	return nil
}

// conflicts returns the error that names the request's increments among the reused parts; nil if
// there are none. Requests share messages, and several may have one id with different deltas. The
// fingerprint decides which of them was not counted. If one is among the expired parts, the error is
// about that alone: to a caller conflicts mean that all others were counted.
func (r *request) conflicts(incs []countmill.Increment) error {
	if len(r.reused)+len(r.expired) == 0 {
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
		if _, ok := r.expired[wire.Use{ID: part.ID, Fingerprint: part.Fingerprint()}]; ok {
			return fmt.Errorf("%w: increment %d: counter %q, id %q", errExpired, i, inc.Counter, inc.ID)
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
