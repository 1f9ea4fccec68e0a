package wire

import (
	"errors"
	"fmt"
)

// A request checks the parts of one request with a key in a batch.
type request struct {
	head        PartID // zero before the first head
	fingerprint Fingerprint
	followers   int32 // number of followers
}

// take refuses a follower without its head, and a numbered part that its head does not count.
func (r *request) take(p *Part) error {
	switch {
	case p.Kind == Head:
		*r = request{KeyID(p.Key.Principal, p.Key.Key, 0), p.Request, p.Number}
	case !p.Kind.Follows():
	case r.head == PartID{} || r.fingerprint != p.Request:
		return errors.New("no head of its request comes before it")
	case p.Kind == Follower && p.Number > r.followers:
		return fmt.Errorf("follower %d is beyond the head's number of followers, %d", p.Number, r.followers)
	}
	return nil
}
