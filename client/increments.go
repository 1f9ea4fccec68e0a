package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/countmill/countmill"
)

const (
	// chunkEntries and chunkBytes bound one request of IncrementMany. The server takes 8 MiB.
	chunkEntries = 10_000
	chunkBytes   = 4 << 20
)

// An increment as it is in JSON.
type increment struct {
	Counter string `json:"counter"`
	Delta   int64  `json:"delta"`
	ID      string `json:"id,omitempty"`
	Time    string `json:"time,omitempty"`
}

func (inc *increment) from(i countmill.Increment) {
	*inc = increment{Counter: i.Counter, Delta: i.Delta, ID: i.ID}
	if !i.Time.IsZero() {
		inc.Time = i.Time.UTC().Format(time.RFC3339Nano)
	}
}

// Increment counts one increment. After nil it is durable. It is sent with a key of its own unless
// it has an ID, so the client repeats it safely after a broken connection. After ErrOutcomeUnknown
// call it again with the same ID, or WithKey(the Key of the *CallError): any other call may count twice.
//
// WithAccepted gives the receipt to read it back, and WithKey replaces the key.
func (c *Client) Increment(ctx context.Context, inc countmill.Increment, options ...SendOption) error {
	var m many
	for _, o := range options {
		o(&m)
	}
	var one increment
	one.from(inc)
	body, err := encode(one)
	if err != nil {
		return fmt.Errorf("%w: %w", countmill.ErrInvalid, err)
	}
	if inc.ID == "" && m.key == "" {
		m.key = rand.Text()
	}
	return keyed(m.key, m.send(ctx, c, Request{Method: http.MethodPost, Path: "/v1/increments", Body: body, Key: m.key, Safe: true}, 1))
}

// Accepted is the answer to increments that are durable.
type Accepted struct {
	// How many increments the request had.
	Accepted int `json:"accepted" schema:"1.."`
	// Only with `return=totals`. Null if the totals could not be read: the increments are counted all the same.
	Totals  *[]Total `json:"totals,omitzero" schema:"null"`
	Receipt string   `json:"receipt,omitzero" schema:"Receipt"`
	// With the bus inproc: and the store pebble: every increment of the request is in totals of this moment or a later one. Pass it
	// as `min_as_of`.
	CountedAsOf time.Time `json:"counted_as_of,omitzero" schema:"date-time"`
}

// WithAccepted calls f with the answer to each request whose increments are durable.
func WithAccepted(f func(Accepted)) SendOption { return func(m *many) { m.accepted = f } }

// send sends a request, and hands the answer over. Any other number than want means that something else
// answered.
func (m *many) send(ctx context.Context, c *Client, r Request, want int) error {
	answer := accepted{want: want}
	err := c.call(ctx, r, &answer)
	if err == nil && m.accepted != nil {
		m.accepted(answer.Accepted)
	}
	return err
}

// accepted is the answer to increments.
type accepted struct {
	Accepted
	want int
}

func (a *accepted) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &a.Accepted); err != nil {
		return err
	}
	if got := a.Accepted.Accepted; got != a.want {
		return fmt.Errorf("%d increments accepted of %d", got, a.want)
	}
	return nil
}

// A ManyError says how far IncrementMany came. It wraps the error of the request that failed.
type ManyError struct {
	// Counted increments, from the first on, are durable, without those in Conflicts.
	Counted int
	// Size is how many increments the failed request had. They follow the counted ones. The
	// wrapped error says whether they were counted.
	Size int
	// Key is the Idempotency-Key of the failed request. Continue with
	// IncrementMany(ctx, incs[Counted:], WithKey(Key)) to repeat it safely.
	Key string
	// Conflicts are increments that were not counted because their IDs had been counted with
	// other deltas. Position is that in the call's increments.
	Conflicts []countmill.Conflict
	err       error
}

// Error is one line.
func (e *ManyError) Error() string {
	if e.err == nil {
		return (&countmill.ConflictsError{Conflicts: e.Conflicts}).Error()
	}
	return fmt.Sprintf("the first %d increments are counted; of the next %d: %v", e.Counted, e.Size, e.err)
}

// Unwrap returns the error of the failed request, nil if only Conflicts were left out.
func (e *ManyError) Unwrap() error { return e.err }

// Is makes errors.Is(err, countmill.ErrIDsReused) true if there are Conflicts.
func (e *ManyError) Is(target error) bool {
	return target == countmill.ErrIDsReused && len(e.Conflicts) > 0
}

// A SendOption changes one call of Increment or IncrementMany.
type SendOption func(*many)

// WithKey uses key, 1 to 128 bytes, for the first request instead of a random one.
func WithKey(key string) SendOption { return func(m *many) { m.key = key } }

// many is a call of IncrementMany, or of Increment.
type many struct {
	key       string
	accepted  func(Accepted) // nil if nobody asks
	done      int
	conflicts []countmill.Conflict
}

// IncrementMany counts increments in requests of at most 10,000 of them and 4 MiB, one after the
// other. Each request has an Idempotency-Key, drawn once, so its repeats count once. After nil all
// increments are durable. Any other outcome is a *ManyError, which says how far it came.
func (c *Client) IncrementMany(ctx context.Context, incs []countmill.Increment, options ...SendOption) error {
	var m many
	for _, o := range options {
		o(&m)
	}
	for m.done < len(incs) {
		body, n, err := chunk(incs[m.done:])
		if m.key == "" {
			m.key = rand.Text()
		}
		if err == nil {
			err = m.settle(m.send(ctx, c, Request{
				Method: http.MethodPost, Path: "/v1/increments", Body: body, ContentType: "application/x-ndjson", Key: m.key, Safe: true,
			}, n))
		}
		if err != nil {
			return &ManyError{Counted: m.done, Size: n, Key: m.key, Conflicts: m.conflicts, err: err}
		}
		m.done, m.key = m.done+n, ""
	}
	if len(m.conflicts) > 0 {
		return &ManyError{Counted: m.done, Conflicts: m.conflicts}
	}
	return nil
}

// settle takes the increments that were left out of a request that was counted.
func (m *many) settle(err error) error {
	var left *countmill.ConflictsError
	if !errors.As(err, &left) {
		return err
	}
	for _, conflict := range left.Conflicts {
		conflict.Position += m.done
		m.conflicts = append(m.conflicts, conflict)
	}
	return nil
}

// chunk is the first increments as lines of JSON, and how many they are.
func chunk(incs []countmill.Increment) (body []byte, n int, err error) {
	for n < min(len(incs), chunkEntries) && len(body) < chunkBytes {
		var one increment
		one.from(incs[n])
		line, err := json.Marshal(one)
		if err != nil {
			return nil, n + 1, fmt.Errorf("%w: increment %d: %w", countmill.ErrInvalid, n, err)
		}
		body = append(append(body, line...), '\n')
		n++
	}
	return body, n, nil
}
