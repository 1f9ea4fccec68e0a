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
	Counter string `json:"counter"`
	// Removed was subtracted from the total. Overflow means that it does not fit 64 bits: Removed is then 0, and Exact has
	// the decimal digits.
	Removed  int64  `json:"removed"`
	Overflow bool   `json:"overflow"`
	Exact    string `json:"removed_exact"`
	// AsOf is the moment: every commit until then was subtracted, by this reset or an earlier
	// one.
	AsOf time.Time `json:"as_of"`
	// Exists is false for a counter that nobody had incremented. Its name may be mistyped.
	Exists bool `json:"exists"`
}

// Grow gives the counter that many shards, 1 to 999. It never takes shards away. It may be
// repeated.
func (c *Client) Grow(ctx context.Context, counter string, shards int) error {
	body, err := encode(map[string]int{"shards": shards})
	if err != nil {
		return err
	}
	var grown struct{ Counter string }
	err = c.call(ctx, Request{Method: http.MethodPatch, Path: CounterPath(counter), Body: body, Safe: true}, &grown)
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
	body, err := encode(map[string]string{"counter": counter, "id": id})
	if err != nil {
		return r, err
	}
	err = c.call(ctx, Request{Method: http.MethodPost, Path: "/v1/reset", Body: body, Safe: true}, &r)
	return r, keyed(id, about(r.Counter, counter, err))
}

// Delete sets the counter's total back to 0 and hides the counter until it is incremented again. It
// is not repeated after an unknown outcome, because Removed would then be that of the repeat.
func (c *Client) Delete(ctx context.Context, counter string) (r Removed, err error) {
	err = c.call(ctx, Request{Method: http.MethodDelete, Path: CounterPath(counter)}, &r)
	return r, about(r.Counter, counter, err)
}

// Ready returns nil if the server is able to work, and its reason if it is not. It asks once.
func (c *Client) Ready(ctx context.Context) error {
	r := Request{Path: "/readyz"}.complete()
	if err := c.bounded(ctx, c.timeout, r, nil); err != nil {
		return conclude(r, err, false)
	}
	return nil
}
