package query

import (
	"net/http"

	"github.com/countmill/countmill/internal/api"
)

// A page of counters as clients see it.
type page struct {
	Totals []total `json:"totals"`
	// Overflowed are counters of the page that have no total, as it fits no 64 bits.
	Overflowed    []string `json:"overflowed,omitempty"`
	NextPageToken string   `json:"next_page_token,omitempty"`
	Lag           *float64 `json:"lag"`
}

func (h *Handler) list(_ http.ResponseWriter, r *http.Request) (any, error) {
	query, err := api.Query(r, []string{"prefix", "limit", "page_token", "format"}, nil)
	if err != nil {
		return nil, err
	}
	limit, err := pageLimit(query)
	if err != nil {
		return nil, err
	}
	after, err := parseToken(query)
	if err != nil {
		return nil, err
	}
	strings, err := asString(query)
	if err != nil {
		return nil, err
	}
	p, err := h.reader.List(r.Context(), query.Get("prefix"), after, limit)
	if err != nil {
		return nil, err
	}
	return page{
		Totals: totalsOf(p.Totals, strings), Overflowed: p.Overflowed,
		NextPageToken: pageToken(p.Next), Lag: lagOf(h.reader.Pipeline(r.Context())),
	}, nil
}
