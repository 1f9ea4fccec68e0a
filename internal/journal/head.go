package journal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"strings"
	"time"

	"github.com/countmill/countmill/store"
)

// A Head says which records an hour of the journal had: kept outside the store, it shows later whether one
// is missing, was added or was sealed again. Erased entries leave it as it is.
type Head struct {
	Hour    time.Time `json:"hour"` // its beginning
	Records int       `json:"records"`
	Digest  string    `json:"digest"` // SHA-256 over keys and seals, in hex
	// Until is the earliest time at which the store may remove one of the records; zero if there are none.
	Until time.Time `json:"until,omitzero"`
}

// HeadMessage is the message of a Head in a log, whose attributes have the names of its fields in JSON.
const HeadMessage = "journal head"

// HourOf returns the range of an hour's records.
func HourOf(hour time.Time) store.JournalQuery {
	return store.JournalQuery{From: store.JournalAt(hour), To: store.JournalAt(hour.Add(time.Hour))}
}

// A Heading makes a Head of the records of an hour, in their order.
type Heading struct {
	head Head
	sum  hash.Hash
}

// NewHeading begins a Head of the hour.
func NewHeading(hour time.Time) *Heading {
	return &Heading{Head{Hour: hour.UTC()}, sha256.New()}
}

// Add adds the next record.
func (h *Heading) Add(key store.JournalKey, expireAt time.Time, r *Record) {
	h.head.Records++
	if h.head.Until.IsZero() || expireAt.Before(h.head.Until) {
		h.head.Until = expireAt.UTC()
	}
	_, _ = h.sum.Write(key[:])
	_, _ = h.sum.Write(r.Seal[:])
}

// Head returns the Head of all records that were added.
func (h *Heading) Head() Head {
	h.head.Digest = hex.EncodeToString(h.sum.Sum(nil))
	return h.head
}

// LastHour is the newest hour that gets no record any more, if the journal is settled until then.
func LastHour(settledUntil time.Time) time.Time {
	return settledUntil.Truncate(time.Hour).Add(-time.Hour)
}

// ReadHead reads the records of an hour, and returns their Head. records is the method JournalRecords of a store.
func ReadHead(ctx context.Context, hour time.Time, records func(context.Context, store.JournalQuery) (store.JournalPage, error)) (Head, error) {
	made, q := NewHeading(hour), HourOf(hour)
	for q.Limit = 1000; ; {
		page, err := records(ctx, q)
		if err != nil {
			return Head{}, err
		}
		for i := range page.Records {
			r := &page.Records[i]
			content, err := Decode(r.Data)
			if err != nil {
				return Head{}, fmt.Errorf("record %s: %w", r.Place(), err)
			}
			made.Add(r.Key, r.ExpireAt, &content)
		}
		if !page.More || len(page.Records) == 0 {
			return made.Head(), nil
		}
		q.From = page.Records[len(page.Records)-1].Place().Next()
	}
}

// ParseHead reads a line of a log, in the text or the JSON of package log/slog. It reports false for a line
// that has no head.
func ParseHead(line string) (h Head, ok bool, err error) {
	if !strings.Contains(line, HeadMessage) {
		return h, false, nil
	}
	if at := strings.Index(line, "{"); at >= 0 {
		err = json.Unmarshal([]byte(line[at:]), &h)
	} else {
		err = h.parseText(line)
	}
	if err == nil && (h.Hour.IsZero() || len(h.Digest) != 2*sha256.Size) {
		err = fmt.Errorf("%q has no hour or no digest", line)
	}
	return h, err == nil, err
}

func (h *Head) parseText(line string) (err error) {
	for word := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "hour":
			h.Hour, err = time.Parse(time.RFC3339, value)
		case "until":
			h.Until, err = time.Parse(time.RFC3339, value)
		case "records":
			_, err = fmt.Sscan(value, &h.Records)
		case "digest":
			h.Digest = value
		}
		if err != nil {
			return err
		}
	}
	return nil
}
