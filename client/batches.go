package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// An AcceptedBatch is the answer to a batch whose parts are durable, but for its conflicts.
type AcceptedBatch struct {
	// How many parts the batch had.
	Parts int `json:"parts" schema:"1.."`
	// The parts that were not counted; absent if all were. A refused head includes all parts that follow it. Do not send them
	// again: a repeat gets the same answer. With roles apart a part with a reused id becomes a dead letter instead.
	Conflicts []PartConflict `json:"conflicts,omitempty"`
	Receipt   string         `json:"receipt,omitzero" schema:"Receipt"`
	// With the bus inproc: and the store pebble: every part of the batch but the `conflicts` is in totals of this moment or a later
	// one. Pass it as `min_as_of`.
	CountedAsOf time.Time `json:"counted_as_of,omitzero" schema:"date-time"`
}

// A PartConflict is a part that was not counted.
type PartConflict struct {
	// Place of the part in the batch, from 0.
	Part int `json:"part" schema:"0.."`
	// id-reused: its id was counted with other increments. expired: its time is before the deduplication window; an earlier try
	// may have been counted.
	Reason string `json:"reason" schema:"=id-reused|expired"`
}

// SendBatch counts a batch of the wire format. The same bytes may be sent again until there is an answer: they count once within the
// deduplication window.
func (c *Client) SendBatch(ctx context.Context, batch []byte) (AcceptedBatch, error) {
	var a acceptedBatch
	err := c.call(ctx, Request{Method: http.MethodPost, Path: "/v1/batches", Body: batch, ContentType: "application/vnd.countmill.batch", Safe: true}, &a)
	return a.AcceptedBatch, err
}

// acceptedBatch is the answer to a batch. No batch has no parts.
type acceptedBatch struct{ AcceptedBatch }

func (a *acceptedBatch) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &a.AcceptedBatch); err != nil || a.Parts > 0 {
		return err
	}
	return errors.New("it has taken no parts")
}
