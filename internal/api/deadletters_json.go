package api

import (
	"encoding/base64"
	"encoding/json"
	"time"
	"unicode/utf8"

	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/internal/httpserver"
)

// maxShown is the most bytes of a message that are shown as they are.
const maxShown = 1 << 20

// A deadLetter as clients see it.
type deadLetter struct {
	Key     string `json:"key"`
	Source  string `json:"source"`
	Time    string `json:"time,omitempty"` // absent if it is not known
	At      string `json:"at"`
	Reason  string `json:"reason"`
	Applied string `json:"applied"` // no, unknown
	Bytes   int    `json:"bytes"`
	Asked   bool   `json:"replay_asked,omitempty"`
}

func deadLetterOf(d *admin.DeadLetter, bytes int) deadLetter {
	l := deadLetter{
		Key: d.Key, Source: d.Source, Time: optional(d.Time), At: httpserver.FormatTime(d.At), Reason: d.Reason,
		Applied: "no", Bytes: bytes, Asked: d.Asked,
	}
	if d.Maybe {
		l.Applied = "unknown"
	}
	return l
}

type deadPage struct {
	DeadLetters   []deadLetter `json:"dead_letters"`
	NextPageToken string       `json:"next_page_token,omitempty"`
}

func deadPageOf(p admin.DeadLetterPage) deadPage {
	out := deadPage{DeadLetters: make([]deadLetter, len(p.DeadLetters)), NextPageToken: httpserver.PageToken(p.Next)}
	for i := range p.DeadLetters {
		out.DeadLetters[i] = deadLetterOf(&p.DeadLetters[i], p.Bytes[i])
	}
	return out
}

// shown is a dead letter with its contents, in one of three forms.
type shown struct {
	deadLetter
	Replay    string          `json:"replay"` // ids, as_new, never
	Why       string          `json:"why,omitempty"`
	Batch     *batch          `json:"batch,omitempty"`
	JSON      json.RawMessage `json:"json,omitempty"`
	Base64    string          `json:"base64,omitempty"`
	Truncated bool            `json:"truncated,omitempty"`
}

type batch struct {
	Time  string `json:"time"`
	Parts []part `json:"parts"`
}

type part struct {
	ID      string  `json:"id"`
	Kind    string  `json:"kind"`
	Time    string  `json:"time,omitempty"`
	Entries []entry `json:"entries"`
}

type entry struct {
	Counter string `json:"counter"`
	Delta   int64  `json:"delta"`
}

func shownOf(d *admin.DeadLetter, c admin.Contents) shown {
	s := shown{deadLetter: deadLetterOf(d, len(d.Payload)), Replay: c.Replay, Why: c.Why}
	switch {
	case c.Batch != nil && !c.JSON:
		s.Batch = batchOf(c)
	case len(d.Payload) <= maxShown && utf8.Valid(d.Payload) && json.Valid(d.Payload):
		s.JSON = d.Payload
	default:
		s.Truncated = len(d.Payload) > maxShown
		s.Base64 = base64.StdEncoding.EncodeToString(d.Payload[:min(len(d.Payload), maxShown)])
	}
	return s
}

func batchOf(c admin.Contents) *batch {
	b := &batch{Time: httpserver.FormatTime(c.Batch.Time), Parts: make([]part, len(c.Batch.Parts))}
	for i := range c.Batch.Parts {
		p := &c.Batch.Parts[i]
		b.Parts[i] = part{ID: p.ID.String(), Kind: p.Kind.String(), Time: optional(p.Time), Entries: make([]entry, len(p.Entries))}
		for j, e := range p.Entries {
			b.Parts[i].Entries[j] = entry(e)
		}
	}
	return b
}

func optional(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return httpserver.FormatTime(t)
}

type outcomes struct {
	DeadLetters []outcome `json:"dead_letters"`
}

type outcome struct {
	Key    string `json:"key"`
	Result string `json:"result"`
	Why    string `json:"why,omitempty"`
	New    bool   `json:"as_new,omitempty"`
	Twice  bool   `json:"maybe_counted_before,omitempty"`
}

func outcomesOf(done []admin.DeadLetterOutcome) outcomes {
	out := outcomes{DeadLetters: make([]outcome, len(done))}
	for i, o := range done {
		out.DeadLetters[i] = outcome(o)
	}
	return out
}
