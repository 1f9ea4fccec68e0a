package publisher

import "github.com/countmill/countmill/wire"

// sampled is nil for a span that is not recorded: a request holds a pointer, because most have no span.
func sampled(t wire.Trace) *wire.Trace {
	if !t.Sampled {
		return nil
	}
	return &t
}

// trace notes the sampled requests of each message.
func (s *flush) trace(messages []*busMessage) {
	for _, r := range s.requests {
		if r.trace == nil {
			continue
		}
		first, end := s.messagesOf(r)
		for _, m := range messages[first:end] {
			m.traces.Add(*r.trace)
		}
	}
}

// end ends the span of a message. It has no text of the error, which may hold the names of counters.
func (m *busMessage) end(span wire.Recording, err error, try int) {
	failure := ""
	if err != nil {
		failure = "unknown_outcome"
	}
	span.End(failure,
		wire.Figure{Name: "messaging.message.body.size", Value: int64(len(m.payload))},
		wire.Figure{Name: "countmill.tries", Value: int64(try) + 1})
}
