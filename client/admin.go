package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/countmill/countmill"
)

var errShort = errors.New("the answer has another number of totals than was asked for")

// Removed is the effect of a reset or a delete.
type Removed struct {
	Counter string `json:"counter" schema:"CounterName"`
	// Null if it does not fit 64 bits.
	Removed int64 `json:"removed" schema:"Number null"`
	// All digits, if they do not fit 64 bits.
	Exact string `json:"removed_exact,omitzero" schema:"pattern ^-?[1-9][0-9]*$"`
	// Whether `removed` does not fit 64 bits. Absent if it does.
	Overflow bool `json:"overflow,omitzero"`
	// Every increment folded by then is removed, by this reset or an earlier one.
	AsOf time.Time `json:"as_of"`
	// Whether the counter existed at the time of this call. False for a name that nobody has incremented, or not since it was
	// deleted: it may be mistyped.
	Exists bool `json:"exists"`
}

// Grown is a counter with its number of shards.
type Grown struct {
	Counter string `json:"counter" schema:"CounterName"`
	Shards  int    `json:"shards" schema:"1..999"`
}

// Grow gives the counter that many shards, 1 to 999. It never takes shards away. It may be
// repeated.
func (c *Client) Grow(ctx context.Context, counter string, shards int) error {
	grown, err := change[Grown](ctx, c, http.MethodPatch, CounterPath(counter), nil, map[string]int{"shards": shards})
	return about(grown.Counter, counter, err)
}

// about is an error if the answer to a change is about another counter, or none: another program gave it.
func about(got, counter string, err error) error {
	if err == nil && got != counter {
		err = fmt.Errorf("%w: the answer is about counter %q and not %q; is that a countmill?", countmill.ErrOutcomeUnknown, got, counter)
	}
	return err
}

// Reset sets the counter's total back to 0. With an id, 1 to 128 bytes, a repeat is the same reset
// and gets the same answer. Without one, Reset draws one for its own repeats; the *CallError has it.
func (c *Client) Reset(ctx context.Context, counter, id string) (r Removed, err error) {
	id = cmp.Or(id, rand.Text())
	r, err = change[Removed](ctx, c, http.MethodPost, "/v1/reset", nil, map[string]string{"counter": counter, "id": id})
	return r, keyed(id, about(r.Counter, counter, err))
}

// Delete sets the counter's total back to 0 and hides the counter until it is incremented again. It
// is not repeated after an unknown outcome, because Removed would then be that of the repeat.
func (c *Client) Delete(ctx context.Context, counter string) (r Removed, err error) {
	err = c.call(ctx, Request{Method: http.MethodDelete, Path: CounterPath(counter)}, &r)
	return r, about(r.Counter, counter, err)
}
