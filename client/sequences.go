package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/countmill/countmill"
)

// Next returns the next values of a sequence. It may be repeated after any error if r has an ID: the
// repeat gets the same values. Without one, Next draws an ID for its own repeats; the *CallError has it.
// Errors match those of package countmill: ErrConflict if the ID came with another Count, ErrIDExpired if the Time is before the
// deduplication window, and ErrExhausted.
func (c *Client) Next(ctx context.Context, r countmill.NextRequest) (v countmill.Values, err error) {
	if err := r.Check(); err != nil {
		return v, err
	}
	sent := struct {
		Sequence string `json:"sequence"`
		ID       string `json:"id"`
		Count    int    `json:"count"`
		Time     string `json:"time,omitempty"`
	}{r.Sequence, r.ID, max(r.Count, 1), ""}
	if r.ID == "" {
		sent.ID = rand.Text()
	}
	if !r.Time.IsZero() {
		sent.Time = r.Time.UTC().Format(time.RFC3339Nano)
	}
	body, err := encode(sent)
	if err != nil {
		return v, err
	}
	var got struct{ First, Last int64 }
	err = c.call(ctx, Request{Method: http.MethodPost, Path: "/v1/sequences/next", Body: body, Safe: true}, &got)
	if err == nil && (got.First < 1 || got.Last-got.First != int64(sent.Count)-1) {
		err = fmt.Errorf("%w: the answer has the values %d to %d for a count of %d; is that a countmill?", countmill.ErrOutcomeUnknown, got.First, got.Last, sent.Count)
	}
	if err != nil {
		return v, keyed(sent.ID, err)
	}
	return countmill.Values(got), nil
}

// A SequenceState is the state of a sequence.
type SequenceState struct {
	Sequence string `json:"sequence"`
	// Last is the last value; 0 if there was none.
	Last int64 `json:"last"`
	// Exists is false if nobody has used the sequence since its delete, or ever.
	Exists bool `json:"exists"`
}

// Sequence returns the last value of a sequence.
func (c *Client) Sequence(ctx context.Context, sequence string) (s SequenceState, err error) {
	query := url.Values{"sequence": {sequence}}
	return s, c.call(ctx, Request{Path: "/v1/sequences", Query: query}.complete(), &s)
}

// DeleteSequence marks a sequence as deleted, and returns its state before. Its last value stays, so no
// value is given again. It is repeated after an unknown outcome; the state is then that after the delete.
func (c *Client) DeleteSequence(ctx context.Context, sequence string) (s SequenceState, err error) {
	query := url.Values{"sequence": {sequence}}
	return s, c.call(ctx, Request{Method: http.MethodDelete, Path: "/v1/sequences", Query: query, Safe: true}, &s)
}
