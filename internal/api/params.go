package api

import (
	"fmt"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/httpserver"
)

const (
	// maxQuery and maxBodyCounters are the most counters in a query and in a body.
	maxQuery        = 100
	maxBodyCounters = 1000

	defaultLimit = 100
)

// staleness is the reader's maxStaleness: below 0, its default, if the request has none.
func staleness(query httpserver.Params) (time.Duration, error) {
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

// sinceParam is the oldest moment that a total may be of; zero if the request names none.
func sinceParam(query httpserver.Params) (time.Time, error) { return timeParam(query, "min_as_of") }

// timeParam is the parameter of that name; zero if the request has none.
func timeParam(query httpserver.Params, name string) (time.Time, error) {
	if !query.Has(name) {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, query.Get(name))
	if err != nil {
		return t, &countmill.FieldError{Field: name, Problem: "is not a time", Limit: "RFC 3339, as in 2006-01-02T15:04:05.000000Z; write + as %2B"}
	}
	return t, nil
}

// freshness is the two bounds that a read may have.
func freshness(query httpserver.Params) (maxStaleness time.Duration, minAsOf time.Time, err error) {
	if maxStaleness, err = staleness(query); err == nil {
		minAsOf, err = sinceParam(query)
	}
	return maxStaleness, minAsOf, err
}

// checkCount is about the number of counters; the reader checks their names.
func checkCount(field string, n, most int) error {
	switch {
	case n == 0:
		return &countmill.FieldError{Field: field, Problem: "is missing", Limit: fmt.Sprintf("1 to %d", most)}
	case n > most:
		return &countmill.FieldError{Field: field, Problem: fmt.Sprintf("is given %d times", n), Limit: fmt.Sprintf("1 to %d", most)}
	}
	return nil
}
