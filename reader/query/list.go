package query

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/access"
	"github.com/countmill/countmill/internal/api"
	"github.com/countmill/countmill/reader"
)

// A page of counters as clients see it.
type page struct {
	Totals json.RawMessage `json:"totals"`
	// Overflowed are counters of the page that have no total, as it fits no 64 bits.
	Overflowed    []string `json:"overflowed,omitempty"`
	NextPageToken string   `json:"next_page_token,omitempty"`
	Lag           *float64 `json:"lag"`
}

func (h *Handler) list(ctx context.Context, _ http.ResponseWriter, r *http.Request) (any, error) {
	query, err := api.Query(r, []string{"prefix", "limit", "page_token", "format"}, nil)
	if err != nil {
		return nil, err
	}
	limit, err := query.Limit(defaultLimit, reader.MaxPage)
	if err != nil {
		return nil, err
	}
	after, err := query.After(countmill.CheckCounter)
	if err != nil {
		return nil, err
	}
	quoted, err := asString(query)
	if err != nil {
		return nil, err
	}
	ranges, err := access.From(ctx).Ranges("prefix", query.Get("prefix"))
	if err != nil {
		return nil, err
	}
	p, err := h.listRanges(ctx, ranges, after, limit)
	if err != nil {
		return nil, err
	}
	return page{
		Totals: appendTotals(nil, p.Totals, quoted), Overflowed: p.Overflowed,
		NextPageToken: api.PageToken(p.Next), Lag: lagOf(h.reader.Pipeline(ctx)),
	}, nil
}

// listRanges is a page of the first of several prefixes that has any counter after
// after. The prefixes are in byte order and do not overlap. A page never holds counters
// of two, as all its totals are of one moment.
func (h *Handler) listRanges(ctx context.Context, prefixes []string, after string, limit int) (reader.Page, error) {
	for i, prefix := range prefixes {
		if after > prefix && !strings.HasPrefix(after, prefix) {
			continue // after comes behind all of it
		}
		p, err := h.reader.List(ctx, prefix, after, limit)
		if err != nil || p.Next != "" {
			return p, err
		}
		last := lastOf(p)
		if last == "" && i+1 < len(prefixes) {
			continue
		}
		if i+1 < len(prefixes) {
			p.Next = last // the next page begins with what may be the end of this prefix
		}
		return p, nil
	}
	return reader.Page{}, nil
}

// lastOf is the last counter of a page, empty if it holds none.
func lastOf(p reader.Page) string {
	last := ""
	if n := len(p.Totals); n > 0 {
		last = p.Totals[n-1].Counter
	}
	if n := len(p.Overflowed); n > 0 {
		last = max(last, p.Overflowed[n-1])
	}
	return last
}
