package api

import (
	"context"
	"errors"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/publisher"
	"github.com/countmill/countmill/wire"
)

// typeBatch is the type of a body that is one batch of the wire format.
const typeBatch = "application/vnd.countmill.batch"

// A BatchReceiver puts batches on the bus that other processes have flushed. *publisher.BatchReceiver is one; it has the
// promises.
type BatchReceiver interface {
	Send(ctx context.Context, in *publisher.Delivery, received time.Time) (publisher.Outcome, error)
}

// batches answers POST /v1/batches.
func (a *API) batches(c call) (any, error) {
	out, err := a.takeBatch(c)
	if err != nil {
		return nil, err
	}
	return a.batchAnswerOf(out), nil
}

func (a *API) batchAnswerOf(out publisher.Outcome) client.AcceptedBatch {
	read := a.acceptedOf(out.Parts, out.Sent)
	answer := client.AcceptedBatch{Parts: out.Parts, Receipt: read.receipt, CountedAsOf: read.countedAt}
	for _, part := range out.Reused {
		answer.Conflicts = append(answer.Conflicts, client.PartConflict{Part: part, Reason: "id-reused"})
	}
	for _, part := range out.Expired {
		answer.Conflicts = append(answer.Conflicts, client.PartConflict{Part: part, Reason: "expired"})
	}
	return answer
}

func (a *API) takeBatch(c call) (out publisher.Outcome, err error) {
	received := time.Now()
	q, _, err := a.begin(c, typeBatch)
	if err != nil {
		return out, err
	}
	// The buffer is not used again: the bus may hold the batch for longer than this request.
	body := httpserver.BodyReader{Max: wire.MaxBatch, Timeout: a.cfg.Increments.BodyTimeout, Grow: func(n int) error { return a.pools.reserve(q.hold, n) }}
	payload, err := body.Read(c.w, c.r, nil)
	if err != nil {
		return out, err
	}
	in, err := a.openBatch(q, payload, received)
	if err != nil {
		return out, err
	}
	err = a.send(c.ctx, q, func(ctx context.Context) error {
		out, err = a.services.BatchReceiver.Send(ctx, in, received)
		return err
	})
	return out, err
}

// openBatch checks all of a batch before anything is done.
func (a *API) openBatch(q *incoming, payload []byte, received time.Time) (*publisher.Delivery, error) {
	if len(payload) > smallBody {
		a.decoding <- struct{}{}
		defer func() { <-a.decoding }()
	}
	from := publisher.Sender{Name: q.caller.Name, Limited: q.caller.Limited(), Past: q.caller.Has(auth.Admin), Journal: a.cfg.Increments.Journal}
	in, batch, err := publisher.OpenBatch(payload, from, received, a.cfg.Increments.DedupWindowFunc())
	if err != nil {
		return nil, err
	}
	q.entries, q.bytes = batch.Entries(), len(payload)
	if err := checkParts(q.caller, batch); err != nil {
		return nil, err
	}
	if q.caller.Metered() {
		q.incs = named(batch, q.entries)
	}
	return in, nil
}

// checkParts refuses a batch with a counter that is not the caller's, and says which part has it.
func checkParts(caller auth.Caller, batch *wire.Batch) error {
	if !caller.Limited() {
		return nil
	}
	for i := range batch.Parts {
		for _, e := range batch.Parts[i].Entries {
			err := caller.Check(e.Counter)
			if outside, ok := errors.AsType[*auth.OutsideError](err); ok {
				outside.Index = &i
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// named has an increment for each entry of the batch, with the name alone.
func named(batch *wire.Batch, entries int) []countmill.Increment {
	incs := make([]countmill.Increment, 0, entries)
	for i := range batch.Parts {
		for _, e := range batch.Parts[i].Entries {
			incs = append(incs, countmill.Increment{Counter: e.Counter})
		}
	}
	return incs
}
