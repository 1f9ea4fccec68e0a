package aggregator

import (
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

// traceOf is the span that a message carries; nil if it is not sampled, or nobody records spans. Memory of held
// messages is bounded, and most have none.
func (a *Aggregator) traceOf(m *message.Message) *wire.Trace {
	if a.cfg.Tracer == nil {
		return nil
	}
	t := wire.ParseTrace(m.Metadata.Get(wire.MetaTrace))
	if !t.Sampled {
		return nil
	}
	return &t
}

// trace begins the span of a commit. Its causes are the messages that brought the parts. Messages of further copies are left
// out: the loop may add one at any time.
func (a *Aggregator) trace(parts []*part) wire.Recording {
	var causes wire.Traces
	if a.cfg.Tracer != nil {
		var last *held
		for _, p := range parts {
			if p.holder != last && p.holder.trace != nil { // the parts of a message are mostly neighbours
				last = p.holder
				causes.Add(*last.trace)
			}
		}
	}
	return causes.Start(a.cfg.Tracer, wire.FoldStep, "fold")
}

// endTrace ends the span of a commit. It has no text of the error, which may hold the names of counters.
func endTrace(span wire.Recording, c *store.Commit, parts int, err error) {
	span.End(failureOf(err),
		wire.Figure{Name: "countmill.parts", Value: int64(parts)},
		wire.Figure{Name: "countmill.entities", Value: int64(c.Entities())})
}

// failureOf names the outcome of a commit; empty if it was applied.
func failureOf(err error) string {
	if err == nil {
		return ""
	}
	for _, of := range []struct {
		matches error
		name    string
	}{
		{store.ErrMarkerExists, "marker_exists"}, {store.ErrRefused, "refused"}, {store.ErrDeployment, "deployment"},
		{store.ErrNotCounted, "not_counted"}, {store.ErrNotApplied, "not_applied"}, {store.ErrContended, "contended"},
	} {
		if errors.Is(err, of.matches) {
			return of.name
		}
	}
	return "unknown_outcome"
}
