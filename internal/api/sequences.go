package api

import (
	"context"
	"fmt"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/store"
)

// Sequences gives out values. *sequence.Issuer is one; its methods have the promises.
type Sequences interface {
	Next(ctx context.Context, r countmill.NextRequest) (countmill.Values, error)
	State(ctx context.Context, sequence string) (store.SequenceState, error)
	Delete(ctx context.Context, sequence string) (store.SequenceState, error)
}

var nextBody = takes[nextRequest]("NextRequest", `{"sequence": "...", "id": "...", "count": N, "time": "..."}, only the sequence is required`, map[string]string{
	"sequence": "1 to 500 bytes", "id": "1 to 128 bytes", "count": "1 to 1000", "time": "RFC 3339, as in 2006-01-02T15:04:05.000000Z",
})

// A nextRequest asks for values of a sequence.
type nextRequest struct {
	Sequence text `json:"sequence" schema:"CounterName"`
	// At most 128 bytes. Identifies the request for repeats.
	ID text `json:"id,omitzero" schema:"len 1..128"`
	// How many values.
	Count integer `json:"count,omitzero" schema:"1..1000"`
	// When the request with this id was first made; needs an id. At most a day ahead.
	Time text `json:"time,omitzero" schema:"date-time"`
}

// decoded returns the request as the role takes it.
func (r *nextRequest) decoded() (next countmill.NextRequest, err error) {
	next = countmill.NextRequest{Sequence: r.Sequence.value, ID: r.ID.value, Count: r.Count.value}
	switch {
	case r.ID.given && r.ID.value == "":
		return next, nextBody.wrong("id", "is empty")
	case r.Count.given && r.Count.value == 0:
		return next, nextBody.wrong("count", "is out of range")
	case r.Time.given:
		if next.Time, err = time.Parse(time.RFC3339Nano, r.Time.value); err != nil || next.Time.IsZero() { // zero is none
			return next, nextBody.wrong("time", "is not a time")
		}
	}
	return next, nil
}

// nextValues gives values. A nearly full disk refuses them, as it refuses increments.
func (a *API) nextValues(c call) (any, error) {
	request := c.body.(*nextRequest)
	next, err := request.decoded()
	if err != nil {
		return nil, err
	}
	if err := mayUse(c.caller(), next); err != nil {
		return nil, err
	}
	if err := a.cfg.Increments.Admit(); err != nil {
		return nil, err
	}
	given, err := a.give(c, next)
	switch {
	case err != nil:
		return nil, err
	case request.Count.given:
		return client.Values{First: given.First, Last: given.Last}, nil
	}
	return client.Values{Value: given.First}, nil
}

// maxAsking is how many calls of one caller for values of one sequence may wait: half of an Issuer's.
const maxAsking = 500

// give charges the caller, and gives values. A call counts towards the limits of a token as an increment does, and a sequence as a
// counter does: each call with an id and each sequence is a record.
func (a *API) give(c call, next countmill.NextRequest) (none countmill.Values, err error) {
	share := sharesAs(c) + "\n" + next.Sequence
	a.asking.Lock()
	taken := a.asking.Take(share, 1, maxAsking)
	a.asking.Unlock()
	if !taken {
		return none, fmt.Errorf("%w: this caller has its share of the calls for values of sequence %q (limit: %d)", countmill.ErrOverloaded, next.Sequence, maxAsking)
	}
	defer func() {
		a.asking.Lock()
		defer a.asking.Unlock()
		a.asking.Give(share, 1)
	}()
	// No counter has such a name: a sequence is new, even if a counter has its name.
	named := countmill.Increment{Counter: "\xff" + next.Sequence}
	if err := c.caller().Charge([]countmill.Increment{named}, 1, c.size); err != nil {
		return none, err
	}
	return a.services.Sequences.Next(c.ctx, next)
}

// mayUse checks the request, and then whether the caller's prefixes allow its sequence.
func mayUse(caller auth.Caller, r countmill.NextRequest) error {
	if err := r.Check(); err != nil {
		return err
	}
	return checkField(caller, "sequence", r.Sequence)
}

func (a *API) sequence(c call) (any, error) { return a.ofSequence(c, a.services.Sequences.State) }

func (a *API) deleteSequence(c call) (any, error) {
	return a.ofSequence(c, a.services.Sequences.Delete)
}

func (a *API) ofSequence(c call, do func(context.Context, string) (store.SequenceState, error)) (any, error) {
	name := c.params.Get("sequence")
	if err := mayUse(c.caller(), countmill.NextRequest{Sequence: name}); err != nil {
		return nil, err
	}
	state, err := do(c.ctx, name)
	return client.SequenceState{Sequence: name, Last: state.Last, Exists: state.Exists()}, err
}
