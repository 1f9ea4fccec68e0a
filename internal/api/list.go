package api

import (
	"context"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/reader"
)

// A page is an answer, which clients see as a client.Page.
type page struct {
	reader.Page
	quoted bool
	lag    *float64
}

// AppendJSON makes it an httpserver.Appender.
func (p *page) AppendJSON(b []byte) []byte {
	b = appendTotals(append(b, `{"totals":`...), p.Totals, p.quoted)
	if len(p.Overflowed) > 0 {
		b = append(appendNames(append(b, `,"overflowed":[`...), p.Overflowed), ']')
	}
	if token := httpserver.PageToken(p.Next); token != "" {
		b = append(append(append(b, `,"next_page_token":"`...), token...), '"')
	}
	return append(appendSeconds(append(b, `,"lag":`...), p.lag), '}')
}

func appendNames(b []byte, names []string) []byte {
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, name)
	}
	return b
}

func (a *API) list(c call) (any, error) {
	after, err := c.params.After(countmill.CheckName)
	if err != nil {
		return nil, err
	}
	ranges, err := c.caller().Ranges("prefix", c.params.Get("prefix"))
	if err != nil {
		return nil, err
	}
	minAsOf, err := sinceParam(c.params)
	if err != nil {
		return nil, err
	}
	p, err := a.listRanges(c.ctx, ranges, after, c.number("limit"), minAsOf)
	if err != nil {
		return nil, err
	}
	return &page{p, c.quoted(), lagOf(a.services.Reader.Pipeline(c.ctx))}, nil
}

// listRanges is a page of the first of several prefixes that has any counter after
// after. The prefixes are in byte order and do not overlap. A page never holds counters
// of two, as all its totals are of one moment.
func (a *API) listRanges(ctx context.Context, prefixes []string, after string, limit int, minAsOf time.Time) (reader.Page, error) {
	for i, prefix := range prefixes {
		if after > prefix && !strings.HasPrefix(after, prefix) {
			continue // after comes behind all of it
		}
		p, err := a.services.Reader.ListSince(ctx, prefix, after, limit, minAsOf)
		if err != nil || p.Next != "" {
			return p, err
		}
		last := lastOf(p)
		if last == "" && i+1 < len(prefixes) {
			continue
		}
		if i+1 < len(prefixes) {
			p.Next = last // the next page reads the rest of this prefix, if any, and goes on
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
