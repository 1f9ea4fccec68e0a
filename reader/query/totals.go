package query

import (
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/reader"
)

// timeForm is RFC 3339 in UTC with microseconds, always six digits.
const timeForm = "2006-01-02T15:04:05.000000Z"

// A total as clients see it.
type total struct {
	Counter string          `json:"counter"`
	Total   json.RawMessage `json:"total"` // an integer, or a string of one
	AsOf    string          `json:"as_of"`
	Source  string          `json:"source"`
	Shards  int             `json:"shards"`
	Exists  bool            `json:"exists"`
}

type totals struct {
	Totals []total  `json:"totals"`
	Lag    *float64 `json:"lag"` // seconds; null where no aggregator is fresh
}

// A counter is a total with lag.
type counter struct {
	total
	Lag *float64 `json:"lag"`
}

func totalsOf(ts []reader.Total, asString bool) []total {
	out := make([]total, len(ts))
	for i, t := range ts {
		out[i] = totalOf(t, asString)
	}
	return out
}

func totalOf(t reader.Total, asString bool) total {
	number := strconv.AppendInt(make([]byte, 0, 22), t.Total, 10)
	if asString {
		number = strconv.AppendQuote(nil, string(number))
	}
	return total{Counter: t.Counter, Total: number, AsOf: t.AsOf.UTC().Format(timeForm),
		Source: t.Source, Shards: t.Shards, Exists: t.Exists}
}

// lagOf is the lag in seconds, to the microsecond.
func lagOf(p reader.Pipeline) *float64 {
	if p.Workers == 0 {
		return nil
	}
	s := math.Round(float64(p.Lag)/float64(time.Microsecond)) / 1e6
	return &s
}

func (h *Handler) totals(_ http.ResponseWriter, r *http.Request) (any, error) {
	query, err := api.Query(r, []string{"max_staleness", "format"}, []string{"counter"})
	if err != nil {
		return nil, err
	}
	if err := checkCount("counter", len(query["counter"]), MaxQuery); err != nil {
		return nil, err
	}
	return h.read(r, query["counter"], query)
}

func (h *Handler) manyTotals(w http.ResponseWriter, r *http.Request) (any, error) {
	query, err := api.Query(r, []string{"max_staleness", "format"}, nil)
	if err != nil {
		return nil, err
	}
	if _, err := api.ContentType(r, "application/json"); err != nil {
		return nil, err
	}
	counters, err := h.readBody(w, r)
	if err != nil {
		return nil, err
	}
	if err := checkCount("counters", len(counters), MaxBodyCounters); err != nil {
		return nil, err
	}
	return h.read(r, counters, query)
}

func (h *Handler) counter(_ http.ResponseWriter, r *http.Request) (any, error) {
	query, err := api.Query(r, []string{"max_staleness", "format"}, nil)
	if err != nil {
		return nil, err
	}
	answer, err := h.read(r, []string{r.PathValue("name")}, query)
	if err != nil {
		return nil, err
	}
	return counter{total: answer.Totals[0], Lag: answer.Lag}, nil
}

func (h *Handler) read(r *http.Request, counters []string, query url.Values) (totals, error) {
	maxStaleness, err := staleness(query)
	if err != nil {
		return totals{}, err
	}
	strings, err := asString(query)
	if err != nil {
		return totals{}, err
	}
	ts, err := h.reader.Totals(r.Context(), counters, maxStaleness)
	if err != nil {
		return totals{}, err
	}
	return totals{totalsOf(ts, strings), lagOf(h.reader.Pipeline(r.Context()))}, nil
}
