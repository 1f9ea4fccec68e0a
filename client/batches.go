package client

import (
	"context"
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
	// id-reused: its id was counted with other increments. expired: its time is before the deduplication window.
	Reason string `json:"reason" schema:"=id-reused|expired"`
}

// SendBatch counts a batch of the wire format. The same bytes may be sent again until there is an answer: they count once within the
// deduplication window.
func (c *Client) SendBatch(ctx context.Context, batch []byte) (a AcceptedBatch, err error) {
	return a, c.call(ctx, Request{Method: http.MethodPost, Path: "/v1/batches", Body: batch, ContentType: "application/vnd.countmill.batch", Safe: true}, &a)
}
