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

// take refuses a follower without its head. It also refuses a request that was cut at another
// size: only the last numbered part may have less than MaxEntries.
func (r *request) take(p *Part) error {
	if p.Kind == Head {
		*r = request{p.Key, p.Request, p.Number}
		// A dead letter may have a copy of a head without its entries, only for its marker.
		if n := len(p.Entries); p.Number > 0 && 0 < n && n < MaxEntries {
			return fmt.Errorf("head has %d entries before %d rests, want %d", n, p.Number, MaxEntries)
		}
		return nil
	}
	if !p.Kind.Follows() {
		return nil
	}
	if r.key == nil || r.fingerprint != p.Request {
		return errors.New("no head of its request comes before it")
	}
	if p.Kind != Rest {
		return nil
	}
	switch n := len(p.Entries); {
	case p.Number > r.rests:
		return fmt.Errorf("rest %d is beyond the head's number of rests, %d", p.Number, r.rests)
	case p.Number < r.rests && n < MaxEntries:
		return fmt.Errorf("rest %d of %d has %d entries, want %d", p.Number, r.rests, n, MaxEntries)
	}
	return nil
}
