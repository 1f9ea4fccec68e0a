package query

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/reader"
)

const (
	// MaxQuery and MaxBodyCounters are the most counters in a query and in a body.
	MaxQuery        = 100
	MaxBodyCounters = 1000

	defaultLimit = 100
)

// staleness is the reader's maxStaleness: below 0, its default, where none is asked.
func staleness(query url.Values) (time.Duration, error) {
	if !query.Has("max_staleness") {
		return -1, nil
	}
	const limit = "a duration such as 2s or 500ms, not negative"
	d, err := time.ParseDuration(query.Get("max_staleness"))
	if err != nil {
		return 0, &countmill.FieldError{Field: "max_staleness", Problem: "is not a duration", Limit: limit}
	}
	if d < 0 {
		return 0, &countmill.FieldError{Field: "max_staleness", Problem: "is negative", Limit: limit}
	}
	return d, nil
}

// asString reports whether totals are to be strings.
func asString(query url.Values) (bool, error) {
	switch format := query.Get("format"); {
	case !query.Has("format") || format == "number":
		return false, nil
	case format == "string":
		return true, nil
	}
	return false, &countmill.FieldError{Field: "format", Problem: "is not known", Limit: "number, string"}
}

// checkCount is about the number of counters; the reader checks their names.
func checkCount(field string, n, most int) error {
	switch {
	case n == 0:
		return &countmill.FieldError{Field: field, Problem: "is missing", Limit: fmt.Sprintf("1 to %d", most)}
	case n > most:
		return &countmill.FieldError{Field: field, Problem: fmt.Sprintf("stands %d times", n), Limit: fmt.Sprintf("1 to %d", most)}
	}
	return nil
}

// pageLimit is the most counters of a page.
func pageLimit(query url.Values) (int, error) {
	if !query.Has("limit") {
		return defaultLimit, nil
	}
	n, err := strconv.Atoi(query.Get("limit"))
	if err != nil || n < 1 || n > reader.MaxPage {
		return 0, &countmill.FieldError{Field: "limit", Problem: "is not a number in range", Limit: "1 to " + strconv.Itoa(reader.MaxPage)}
	}
	return n, nil
}

// tokenVersion begins what a page token stands for, so that its meaning can change.
const tokenVersion = "1"

// pageToken stands for the page that begins after a counter; there is none at the end.
func pageToken(after string) string {
	if after == "" {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(tokenVersion + after))
}

func parseToken(query url.Values) (after string, err error) {
	if !query.Has("page_token") {
		return "", nil
	}
	bad := &countmill.FieldError{Field: "page_token", Problem: "is not one that this call gave", Limit: "the next_page_token of the page before"}
	token, err := base64.RawURLEncoding.Strict().DecodeString(query.Get("page_token"))
	if err != nil || len(token) == 0 || string(token[:1]) != tokenVersion {
		return "", bad
	}
	if after = string(token[1:]); countmill.CheckCounter(after) != nil {
		return "", bad
	}
	return after, nil
}

// sayWhichCounter puts the position of a bad name into words: the reader's error counts
// increments.
func sayWhichCounter(err error) error {
	field, ok := errors.AsType[*countmill.FieldError](err)
	if !ok || field.Index == nil {
		return err
	}
	plain := *field
	plain.Index = nil
	p := api.AsProblem(&plain)
	p.Detail = fmt.Sprintf("counter %d (from 0): %s", *field.Index, plain.Error())
	p.Index = field.Index
	return p
}
