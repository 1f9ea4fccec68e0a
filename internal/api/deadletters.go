package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/httpserver"
)

// maxKey is far above the length of the keys of dead letters.
const maxKey = 200

func (a *API) listDeadLetters(c call) (any, error) {
	after, err := c.params.After(func(after string) error { return checkKey("page_token", after) })
	if err != nil {
		return nil, err
	}
	p, err := a.services.DeadLetters.List(c.ctx, after, c.number("limit"))
	return deadPageOf(p), err
}

func (a *API) showDeadLetter(c call) (any, error) {
	key := c.name()
	if err := checkKey("name", key); err != nil {
		return nil, err
	}
	d, contents, found, err := a.services.DeadLetters.Show(c.ctx, key)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, httpserver.NewProblem(http.StatusNotFound, "not-found", "not found", "there is no such dead letter: it was counted or discarded, or never there")
	}
	return shownOf(&d, contents), nil
}

// A replayRequest names dead letters.
type replayRequest struct {
	Keys texts `json:"keys" schema:"DeadKey #1..100"`
	// Count dead letters as new if they cannot count under their own ids and time: with the time of this request if their own is
	// beyond the deduplication window or a day ahead, and under other ids if their own are taken or lost. All others count as
	// without it.
	AsNew flag `json:"as_new,omitzero"`
}

func (a *API) replay(c call) (any, error) {
	request := c.body.(*replayRequest)
	if err := checkKeys(request.Keys, replayBody); err != nil {
		return nil, err
	}
	done, err := a.services.DeadLetters.Replay(c.ctx, request.Keys, bool(request.AsNew))
	return outcomesOf(done), err
}

// A discardRequest names dead letters.
type discardRequest struct {
	Keys texts `json:"keys" schema:"DeadKey #1..100"`
}

func (a *API) discard(c call) (any, error) {
	request := c.body.(*discardRequest)
	if err := checkKeys(request.Keys, discardBody); err != nil {
		return nil, err
	}
	done, err := a.services.DeadLetters.Discard(c.ctx, request.Keys)
	return outcomesOf(done), err
}

func checkKeys(keys []string, b *body) error {
	if len(keys) == 0 || len(keys) > admin.MaxDeadLetterKeys {
		return b.wrong("keys", fmt.Sprintf("holds %d keys", len(keys)))
	}
	for i, key := range keys {
		if err := checkKey("keys", key); err != nil {
			p := httpserver.AsProblem(err)
			p.Index = &i
			return p
		}
	}
	return nil
}

// checkKey refuses a text that cannot be the key of a dead letter. Such a key is one path
// segment, whatever version wrote it.
func checkKey(field, key string) error {
	plain := func(c rune) bool { return c > ' ' && c < 0x7f && c != '/' && c != '%' }
	if key == "" || len(key) > maxKey || strings.ContainsFunc(key, func(c rune) bool { return !plain(c) }) {
		return &countmill.FieldError{Field: field, Problem: "is no key of a dead letter", Limit: "as GET /v1/dead-letters has it"}
	}
	return nil
}

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
