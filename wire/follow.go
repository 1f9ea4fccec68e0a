package wire

import (
	"errors"
	"fmt"
)

// A request checks the parts of one request with a key in a batch.
type request struct {
	key         *Key // nil before the first head
	fingerprint Fingerprint
	rests       int32 // number of rests
}

// take refuses a follower without its head, and a numbered part that its head does not count.
func (r *request) take(p *Part) error {
	switch {
	case p.Kind == Head:
		*r = request{p.Key, p.Request, p.Number}
	case !p.Kind.Follows():
	case r.key == nil || r.fingerprint != p.Request:
		return errors.New("no head of its request comes before it")
	case p.Kind == Rest && p.Number > r.rests:
		return fmt.Errorf("rest %d is beyond the head's number of rests, %d", p.Number, r.rests)
	}
	return nil
}
