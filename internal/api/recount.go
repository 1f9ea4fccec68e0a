package api

import (
	"context"
	"errors"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/internal/recount"
	"github.com/countmill/countmill/store"
)

// recounting bounds one range of a recount, which waits for its turn and reads the journal from the opening balances on.
const recounting = time.Hour

// onRecounter is the processes that recount.
var onRecounter = &role{roles: "reader or aggregator", here: func(s *Services) bool { return s.Recounter != nil }}

// A Recounter recounts counters from the journal. *recount.Recounter is one; its method has the promises.
type Recounter interface {
	Recount(ctx context.Context, q recount.Query) (recount.Result, error)
}

var recountBody = takes[recountRequest]("RecountRequest", `{"prefix": "billing:", "range": "...", "repair": false, "opening": false}, each only if wanted`, nil)

// A recountRequest names a range of a recount.
type recountRequest struct {
	// The first characters of the names; not of groups.
	Prefix text `json:"prefix,omitzero" schema:"len ..500"`
	// The `next` of the answer before, with the same prefix. Two calls work at the same time, and further ones wait.
	Range text `json:"range,omitzero"`
	// Correct the differences.
	Repair flag `json:"repair,omitzero"`
	// Write opening balances, from which later recounts begin.
	Opening flag `json:"opening,omitzero"`
}

func (a *API) recount(c call) (any, error) {
	request := c.body.(*recountRequest)
	q := recount.Query{Prefix: request.Prefix.value, Range: request.Range.value, Repair: bool(request.Repair), Open: bool(request.Opening)}
	if len(q.Prefix) > countmill.MaxCounterName || !utf8.ValidString(q.Prefix) {
		return nil, &countmill.FieldError{Field: "prefix", Problem: "is no beginning of a name", Limit: "0 to 500 bytes of valid UTF-8"}
	}
	result, err := a.services.Recounter.Recount(c.ctx, q)
	switch {
	case err == nil:
		return recountedOf(&result), nil
	case errors.Is(err, store.ErrDeployment):
		return nil, err
	case errors.Is(err, countmill.ErrOutcomeUnknown):
		return nil, httpserver.NewProblem(http.StatusGatewayTimeout, "outcome-unknown", "outcome unknown",
			err.Error()+": repeat the call, which corrects nothing twice")
	case errors.Is(err, countmill.ErrUnavailable):
		// The token has all rights, so it may see which record or shard cannot be read.
		return nil, httpserver.NewProblem(http.StatusServiceUnavailable, "unavailable", "unavailable",
			err.Error()+": nothing of this call was done, repeat it later").RetryAfter(refusedPause)
	}
	return nil, err
}

func recountedOf(r *recount.Result) client.Recounted {
	out := client.Recounted{
		AsOf: r.At, Findings: make([]client.RecountFinding, len(r.Findings)), Counters: r.Counters, Buckets: r.Buckets,
		Entries: r.Entries, Opened: r.Opened, NotCovered: r.Reasons, NotCoveredNames: make([]client.NotCovered, len(r.Unjudged)), Done: int64(r.Done), Next: r.Next,
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		out.Findings[i] = client.RecountFinding{Kind: f.Kind, Counter: f.Name, Quarter: f.Quarter, Stored: client.Sum(f.Stored.String()), Counted: client.Sum(f.Counted.String()), Fixed: f.Fixed, Detail: f.Detail}
		if f.Minute != 0 {
			out.Findings[i].Time = f.Minute.Time()
		}
	}
	if out.NotCovered == nil {
		out.NotCovered = map[string]int{}
	}
	for i, u := range r.Unjudged {
		out.NotCoveredNames[i] = client.NotCovered{Counter: u.Name, Reason: u.Reason}
	}
	return out
}
