package api

import (
	"unicode/utf8"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/admin"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/store"
)

func (a *API) shards(c call) (any, error) {
	counter := c.params.Get("counter")
	if err := countmill.CheckName(counter); err != nil {
		return nil, err
	}
	if err := c.caller().Check(counter); err != nil {
		return nil, err
	}
	page, err := a.services.Verifier.ShardsOf(c.ctx, counter)
	return shardsOf(counter, page), err
}

func (a *API) verify(c call) (any, error) {
	from, err := c.params.After(anyToken)
	if err != nil {
		return nil, err
	}
	return a.verifyPage(c, c.params.Get("prefix"), from, c.number("limit"), false)
}

// A verifyRequest names a page.
type verifyRequest struct {
	Prefix    text    `json:"prefix,omitzero" schema:"len ..500"`
	Limit     integer `json:"limit,omitzero" schema:"1..1000 default 1000"`
	PageToken text    `json:"page_token,omitzero"`
}

func (a *API) repair(c call) (_ any, err error) {
	request := c.body.(*verifyRequest)
	limit := store.MaxSurveyPage
	if request.Limit.given {
		if limit = request.Limit.value; limit < 1 || limit > store.MaxSurveyPage {
			return nil, verifyBody.wrong("limit", "is not a number in range")
		}
	}
	from := ""
	if request.PageToken.value != "" { // as the first page's answer has none
		if from, err = httpserver.ParsePageToken(request.PageToken.value, anyToken); err != nil {
			return nil, err
		}
	}
	return a.verifyPage(c, request.Prefix.value, from, limit, true)
}

// anyToken leaves the check to the verifier, whose own format a page token is.
func anyToken(string) error { return nil }

func (a *API) verifyPage(c call, prefix, from string, limit int, repair bool) (any, error) {
	if len(prefix) > countmill.MaxCounterName || !utf8.ValidString(prefix) {
		return nil, &countmill.FieldError{Field: "prefix", Problem: "is no beginning of a name", Limit: "0 to 500 bytes of valid UTF-8"}
	}
	result, err := a.services.Verifier.Page(c.ctx, prefix, from, limit, repair)
	return verifiedOf(result), err
}

func shardsOf(counter string, page store.ShardPage) client.Shards {
	out := client.Shards{Counter: counter, AsOf: page.At, Counts: make([]client.ShardCount, len(page.Shards))}
	out.Shards, out.Exists = page.Records[counter], page.Records[counter] > 0
	for i := range page.Shards {
		s := &page.Shards[i]
		out.Counts[i] = client.ShardCount{Shard: s.Number, Updated: s.Updated}
		if n, fits := s.Count.Int64(); fits && s.Bad == "" {
			out.Counts[i].Count = &n
		}
		if problem, wrong := admin.ShardProblem(&page, s); wrong {
			out.Counts[i].Problem = problem.Kind
		}
	}
	return out
}

func verifiedOf(r admin.VerifyResult) client.Verified {
	out := client.Verified{
		AsOf: r.At, Problems: make([]client.Inconsistency, len(r.Problems)),
		Shards: r.Shards, Groups: r.Groups, Next: httpserver.PageToken(r.Next),
	}
	for i, p := range r.Problems {
		out.Problems[i] = client.Inconsistency{Kind: p.Kind, Counter: p.Counter, Detail: p.Detail, Fixed: p.Fixed}
		if p.Shard >= 0 {
			out.Problems[i].Shard = &p.Shard
		}
	}
	return out
}
