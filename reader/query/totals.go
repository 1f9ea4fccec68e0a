package query

import (
	"context"
	"net/http"

	"github.com/countmill/countmill/internal/access"
	"github.com/countmill/countmill/internal/api"
)

func (h *Handler) totals(ctx context.Context, _ http.ResponseWriter, r *http.Request) (any, error) {
	query, err := api.Query(r, []string{"max_staleness", "format"}, []string{"counter"})
	if err != nil {
		return nil, err
	}
	counters := query.All("counter")
	if err := checkCount("counter", len(counters), MaxQuery); err != nil {
		return nil, err
	}
	return h.read(ctx, counters, query)
}

func (h *Handler) manyTotals(ctx context.Context, w http.ResponseWriter, r *http.Request) (any, error) {
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
	return h.read(ctx, counters, query)
}

func (h *Handler) counter(ctx context.Context, _ http.ResponseWriter, r *http.Request) (any, error) {
	query, err := api.Query(r, []string{"max_staleness", "format"}, nil)
	if err != nil {
		return nil, err
	}
	answer, err := h.read(ctx, []string{r.PathValue("name")}, query)
	if err != nil {
		return nil, err
	}
	return (*counter)(answer), nil
}

func (h *Handler) read(ctx context.Context, counters []string, query api.Params) (*totals, error) {
	maxStaleness, err := staleness(query)
	if err != nil {
		return nil, err
	}
	quoted, err := asString(query)
	if err != nil {
		return nil, err
	}
	if err := access.From(ctx).CheckAll(counters); err != nil {
		return nil, err
	}
	ts, err := h.reader.Totals(ctx, counters, maxStaleness)
	if err != nil {
		return nil, err
	}
	return &totals{ts, quoted, lagOf(h.reader.Pipeline(ctx))}, nil
}
