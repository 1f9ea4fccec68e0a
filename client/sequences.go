package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
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
		Count    int    `json:"count,omitempty"`
		Time     string `json:"time,omitempty"`
	}{r.Sequence, r.ID, r.Count, ""}
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
	var got Values
	err = c.call(ctx, Request{Method: http.MethodPost, Path: "/v1/sequences/next", Body: body, Safe: true}, &got)
	if got.Value != 0 {
		got.First, got.Last = got.Value, got.Value
	}
	if err == nil && (got.First < 1 || got.Last-got.First != int64(max(sent.Count, 1))-1) {
		err = fmt.Errorf("%w: the answer has the values %d to %d for a count of %d; is that a countmill?", countmill.ErrOutcomeUnknown, got.First, got.Last, max(sent.Count, 1))
	}
	if err != nil {
		return v, keyed(sent.ID, err)
	}
	return countmill.Values{First: got.First, Last: got.Last}, nil
}

// Values are `value` for a request without `count`, else `first` and `last`.
type Values struct {
	Value int64 `json:"value,omitzero" schema:"int64"`
	First int64 `json:"first,omitzero" schema:"int64"`
	Last  int64 `json:"last,omitzero" schema:"int64"`
}

// A SequenceState is the state of a sequence.
type SequenceState struct {
	Sequence string `json:"sequence"`
	// The last value; 0 if there was none.
	Last int64 `json:"last" schema:"int64"`
	// False if nobody has used the sequence since its delete, or ever.
	Exists bool `json:"exists"`
}

// Sequence returns the last value of a sequence.
func (c *Client) Sequence(ctx context.Context, sequence string) (SequenceState, error) {
	return read[SequenceState](ctx, c, "/v1/sequences", params("sequence", sequence))
}

// DeleteSequence marks a sequence as deleted, and returns its state before. Its last value stays, so no
// value is given again. It is repeated after an unknown outcome; the state is then that after the delete.
func (c *Client) DeleteSequence(ctx context.Context, sequence string) (SequenceState, error) {
	return change[SequenceState](ctx, c, http.MethodDelete, "/v1/sequences", params("sequence", sequence), nil)
}
