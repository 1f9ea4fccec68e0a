package api

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/httpserver"
)

// maxShown is the most bytes of a message that are shown as they are.
const maxShown = 1 << 20

func deadLetterOf(d *admin.DeadLetter, bytes int) client.DeadLetter {
	l := client.DeadLetter{Key: d.Key, Source: d.Source, Time: d.Time, At: d.At, Reason: d.Reason, Applied: "no", Bytes: bytes, ReplayAsked: d.Asked}
	if d.Maybe {
		l.Applied = "unknown"
	}
	return l
}

func deadPageOf(p admin.DeadLetterPage) client.DeadPage {
	out := client.DeadPage{DeadLetters: make([]client.DeadLetter, len(p.DeadLetters)), Next: httpserver.PageToken(p.Next)}
	for i := range p.DeadLetters {
		out.DeadLetters[i] = deadLetterOf(&p.DeadLetters[i], p.Bytes[i])
	}
	return out
}

func shownOf(d *admin.DeadLetter, c admin.Contents) client.DeadLetterShown {
	l := deadLetterOf(d, len(d.Payload))
	s := client.DeadLetterShown{
		Key: l.Key, Source: l.Source, Time: l.Time, At: l.At, Reason: l.Reason, Applied: l.Applied, Bytes: l.Bytes, ReplayAsked: l.ReplayAsked,
		Replay: c.Replay, Why: c.Why,
	}
	switch {
	case c.Batch != nil && !c.JSON:
		s.Batch = batchOf(c)
	case len(d.Payload) <= maxShown && utf8.Valid(d.Payload) && json.Valid(d.Payload):
		s.JSON = d.Payload
	default:
		s.Truncated = len(d.Payload) > maxShown
		s.Base64 = d.Payload[:min(len(d.Payload), maxShown)]
	}
	return s
}

func batchOf(c admin.Contents) *client.DeadBatch {
	b := &client.DeadBatch{Time: c.Batch.Time, Parts: make([]client.DeadPart, len(c.Batch.Parts))}
	for i := range c.Batch.Parts {
		p := &c.Batch.Parts[i]
		b.Parts[i] = client.DeadPart{ID: p.ID.String(), Kind: p.Kind.String(), Time: p.Time, Entries: make([]client.DeadEntry, len(p.Entries))}
		for j, e := range p.Entries {
			b.Parts[i].Entries[j] = client.DeadEntry(e)
		}
	}
	return b
}

func outcomesOf(done []admin.DeadLetterOutcome) client.DeadOutcomes {
	out := client.DeadOutcomes{DeadLetters: make([]client.DeadOutcome, len(done))}
	for i, o := range done {
		out.DeadLetters[i] = client.DeadOutcome{Key: o.Key, Result: o.Result, Why: o.Why, AsNew: o.New, MaybeCountedBefore: o.Twice}
	}
	return out
}
