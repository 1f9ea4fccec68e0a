package client

import (
	"context"
	"net/http"
	"net/url"
)

// AddJournal makes the increments of the counters of a pattern stay as evidence for as long as keep says:
// 400d, or 400d,paged for fast pages. It may be repeated.
func (c *Client) AddJournal(ctx context.Context, pattern, keep string) (r Rules, err error) {
	body, err := encode(map[string]string{"pattern": pattern, "keep": keep})
	if err != nil {
		return r, err
	}
	return r, c.call(ctx, Request{Method: http.MethodPost, Path: "/v1/rules/journal", Body: body, Safe: true}, &r)
}

// RemoveJournal ends the rule with the pattern. What was kept under it stays for the promised time. It may
// be repeated.
func (c *Client) RemoveJournal(ctx context.Context, pattern string) (r Rules, err error) {
	query := url.Values{"pattern": {pattern}}
	return r, c.call(ctx, Request{Method: http.MethodDelete, Path: "/v1/rules/journal", Query: query, Safe: true}, &r)
}
