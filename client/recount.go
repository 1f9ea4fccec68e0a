package client

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// A RecountRequest names a range of a recount. Its zero value compares all totals and series.
type RecountRequest struct {
	// Prefix is how the names of the counters begin.
	Prefix string `json:"prefix"`
	// Range is the Next of the answer before.
	Range string `json:"range,omitempty"`
	// Repair corrects the sums that differ from the journal.
	Repair bool `json:"repair,omitempty"`
	// Opening writes opening balances, from which later recounts begin.
	Opening bool `json:"opening,omitempty"`
}

// Recounted is the result of a recount of one range.
type Recounted struct {
	// The moment of all sums.
	AsOf     time.Time        `json:"as_of"`
	Findings []RecountFinding `json:"findings"`
	// Counters that were compared.
	Counters int `json:"counters"`
	// Buckets that were compared.
	Buckets int `json:"buckets"`
	// Entries of the journal that were read.
	Entries int64 `json:"entries" schema:"int64"`
	// Counters with a new opening balance.
	Opened int `json:"opened"`
	// How many counters were not compared, by reason.
	NotCovered map[string]int `json:"not_covered"`
	// The first 100 of them, and the first one of each reason.
	NotCoveredNames []NotCovered `json:"not_covered_names"`
	// The share of all hashes up to the end of the range, in thousandths.
	Done int64 `json:"done"`
	// The `range` of the next call; absent at the end.
	Next string `json:"next,omitzero"`
}

// NotCovered is a counter that was not compared.
type NotCovered struct {
	// Its name.
	Counter string `json:"counter"`
	// Why it was not compared.
	Reason string `json:"reason"`
}

// A RecountFinding is a sum that differs from the journal.
type RecountFinding struct {
	// `missing`: the counter has no record.
	Kind    string `json:"kind" schema:"=total|bucket|missing"`
	Counter string `json:"counter"`
	// Of a bucket.
	Time time.Time `json:"time,omitzero"`
	// The bucket is a quarter hour, not a minute.
	Quarter bool `json:"quarter,omitzero"`
	// The stored sum; a string if it does not fit 64 bits.
	Stored Sum `json:"stored"`
	// The sum of the journal; a string if it does not fit 64 bits.
	Counted Sum `json:"counted"`
	// It was corrected by this call.
	Fixed bool `json:"fixed,omitzero"`
	// Why it was not corrected.
	Detail string `json:"detail,omitzero"`
}

// A Sum has all digits of a number. In JSON it is an integer, or a string if it does not fit 64 bits.
type Sum string

// MarshalJSON returns an integer or a string.
func (s Sum) MarshalJSON() ([]byte, error) {
	if _, err := strconv.ParseInt(string(s), 10, 64); err != nil {
		return json.Marshal(string(s))
	}
	return []byte(s), nil
}

// UnmarshalJSON takes an integer or a string of one.
func (s *Sum) UnmarshalJSON(text []byte) error {
	var n json.Number
	err := json.Unmarshal(text, &n)
	*s = Sum(n)
	return err
}

// Recount compares the sums of a range of counters with the journal. Repeat it with the Next of the answer as Range, until that is empty.
// A range may take longer than the default time-out. It may be repeated. It needs the scope admin, and no prefixes.
func (c *Client) Recount(ctx context.Context, r RecountRequest) (Recounted, error) {
	return change[Recounted](ctx, c, http.MethodPost, "/v1/recount", nil, r)
}
