package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// A DeadLetter is something that could not be counted.
type DeadLetter struct {
	Key string `json:"key" schema:"DeadKey"`
	// The id of the part in hex, or the broker's of the message.
	Source string `json:"source"`
	// The time that the deduplication window counts from. Absent if it is not known.
	Time time.Time `json:"time,omitzero"`
	// When it became a dead letter.
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
	// Whether it may have been counted before it became a dead letter.
	Applied string `json:"applied" schema:"=no|unknown"`
	Bytes   int    `json:"bytes" schema:"0.."`
	// A replay is under way. Absent otherwise.
	ReplayAsked bool `json:"replay_asked,omitzero"`
}

// A DeadPage is a page of dead letters.
type DeadPage struct {
	DeadLetters []DeadLetter `json:"dead_letters"`
	// Opaque. Absent at the end.
	Next string `json:"next_page_token,omitzero" schema:"len 1.."`
}

// A DeadLetterShown is a dead letter with its content: `batch` for a message of countmill's own format, else `json` or
// `base64`, the message as it arrived.
type DeadLetterShown struct {
	Key string `json:"key" schema:"DeadKey"`
	// The id of the part in hex, or the broker's of the message.
	Source string `json:"source"`
	// The time that the deduplication window counts from. Absent if it is not known.
	Time time.Time `json:"time,omitzero"`
	// When it became a dead letter.
	At     time.Time `json:"at"`
	Reason string    `json:"reason"`
	// Whether it may have been counted before it became a dead letter.
	Applied string `json:"applied" schema:"=no|unknown"`
	Bytes   int    `json:"bytes" schema:"0.."`
	// A replay is under way. Absent otherwise.
	ReplayAsked bool `json:"replay_asked,omitzero"`
	// How it can be counted: under its own ids and times, only as new, or not by a replay.
	Replay string `json:"replay" schema:"=ids|as_new|never"`
	// Why it cannot be counted under its own ids.
	Why   string     `json:"why,omitzero"`
	Batch *DeadBatch `json:"batch,omitzero"`
	// A JSON message, as it arrived.
	JSON json.RawMessage `json:"json,omitzero"`
	// Any other message, at most its first MiB.
	Base64 []byte `json:"base64,omitzero"`
	// `base64` is not all of it. Absent otherwise.
	Truncated bool `json:"truncated,omitzero"`
}

// A DeadBatch is a message of countmill.
type DeadBatch struct {
	Time  time.Time  `json:"time"`
	Parts []DeadPart `json:"parts"`
}

// A DeadPart is a part of it.
type DeadPart struct {
	ID      string      `json:"id" schema:"pattern ^[0-9a-f]{32}$"`
	Kind    string      `json:"kind" schema:"=anonymous|identified|head|follower|identified+follower|foreign|renewed"`
	Time    time.Time   `json:"time,omitzero"`
	Entries []DeadEntry `json:"entries"`
}

// A DeadEntry is the delta of one counter.
type DeadEntry struct {
	Counter string `json:"counter" schema:"CounterName"`
	Delta   int64  `json:"delta" schema:"Integer"`
}

// DeadOutcomes are the outcomes of dead letters, in the order of the request.
type DeadOutcomes struct {
	DeadLetters []DeadOutcome `json:"dead_letters"`
}

// A DeadOutcome is the outcome of one dead letter.
type DeadOutcome struct {
	Key string `json:"key" schema:"DeadKey"`
	// `gone`: there is no such dead letter; it was counted or discarded, or never existed. `discarded`: it is never counted.
	// `removed`: an aggregator had begun to count it; it was counted, or may still be.
	Result string `json:"result" schema:"=asked|refused|gone|discarded|removed"`
	// Why it is refused, or only removed.
	Why string `json:"why,omitzero"`
	// It counts as new. Absent otherwise.
	AsNew bool `json:"as_new,omitzero"`
	// It may have been counted before, and the store has forgotten that: it then counts twice. Absent otherwise.
	MaybeCountedBefore bool `json:"maybe_counted_before,omitzero"`
}

// DeadLetters returns a page of the dead letters. token is the Next of the page before, and empty for the first one. limit is 1 to 1,000,
// and 100 if it is 0. It needs the scope admin, and no prefixes, as all calls about dead letters do.
func (c *Client) DeadLetters(ctx context.Context, token string, limit int) (DeadPage, error) {
	return read[DeadPage](ctx, c, "/v1/dead-letters", params("page_token", token, "limit", number(limit)))
}

// DeadLetter returns a dead letter with its content.
func (c *Client) DeadLetter(ctx context.Context, key string) (DeadLetterShown, error) {
	return read[DeadLetterShown](ctx, c, "/v1/dead-letters/"+url.PathEscape(key), nil)
}

// ReplayDeadLetters asks aggregators to count up to 100 dead letters. A dead letter keeps its ids and its time. asNew counts it as new if its
// ids are forgotten, lost or taken. It may be repeated.
func (c *Client) ReplayDeadLetters(ctx context.Context, asNew bool, keys ...string) (DeadOutcomes, error) {
	request := map[string]any{"keys": keys}
	if asNew {
		request["as_new"] = true
	}
	return change[DeadOutcomes](ctx, c, http.MethodPost, "/v1/dead-letters/replay", nil, request)
}

// DiscardDeadLetters removes up to 100 dead letters uncounted. It may be repeated.
func (c *Client) DiscardDeadLetters(ctx context.Context, keys ...string) (DeadOutcomes, error) {
	return change[DeadOutcomes](ctx, c, http.MethodPost, "/v1/dead-letters/discard", nil, map[string]any{"keys": keys})
}
