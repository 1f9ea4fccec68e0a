package api

// pooled is the capacity that buffers have in the pool. Bounds on bodies do not count it.
const pooled = 4 << 10

// A hold is the bytes that one request holds of bodies, until it is answered.
type hold struct {
	resource int
	caller   string
	bytes    int
}

// fits refuses a body that reserve would refuse after a part of it. It reserves nothing: only
// bytes that have arrived are reserved, and a client may announce more than it sends.
func (p *pools) fits(h *hold, n int) error {
	if !p[h.resource].Fits(h.caller, n) {
		return p.overfull(h.resource)
	}
	return nil
}

// reserve counts n bytes more of a request as held.
func (p *pools) reserve(h *hold, n int) error {
	_, err := p.take(h.resource, h.caller, n)
	if err == nil {
		h.bytes += n
	}
	return err
}

// release ends what reserve began.
func (p *pools) release(h *hold) { p[h.resource].Give(h.caller, h.bytes) }
