package api

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/auth"
	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/reader"
)

// A returning is the part of a request for increments that asks for totals of its counters.
type returning struct {
	totals   bool
	quoted   bool     // totals are strings
	counters []string // of the request, each once, in their order
}

// returning reads the parameters of POST /v1/increments. It refuses totals that this process or the
// caller may not read, before anything is counted.
func (a *API) returning(c call) (ret returning, err error) {
	if len(c.params.Values) == 0 {
		return ret, nil
	}
	ret.quoted, ret.totals = c.quoted(), c.params.Has("return")
	switch {
	case !ret.totals && !c.params.Has("format"):
	case !ret.totals:
		return ret, &countmill.FieldError{Field: "format", Problem: "is about totals", Limit: "with return=totals only"}
	case !a.services.Folded:
		return ret, &countmill.FieldError{Field: "return", Limit: "`countmill up` with --bus inproc:",
			Problem: "needs publisher, aggregator and reader in one process: this one answers before increments are in their totals; leave it out and read the totals later"}
	case !c.caller().Has(auth.Read):
		return ret, about(httpserver.NewProblem(http.StatusForbidden, "forbidden", "forbidden",
			"this token may not read totals: return=totals needs the scope "+string(auth.Read)+": nothing was done"), "return", "with the scope "+string(auth.Read))
	}
	return ret, nil
}

// note remembers the counters of increments that are about to be sent.
func (r *returning) note(incs []countmill.Increment) error {
	if !r.totals {
		return nil
	}
	seen := make(map[string]bool, min(len(incs), maxBodyCounters))
	for _, inc := range incs {
		if seen[inc.Counter] {
			continue
		}
		if len(r.counters) == maxBodyCounters {
			return &countmill.FieldError{Field: "return", Problem: "asks for the totals of too many counters", Limit: fmt.Sprintf("%d counters in the request", maxBodyCounters)}
		}
		seen[inc.Counter] = true
		r.counters = append(r.counters, inc.Counter)
	}
	return nil
}

// answer is the body of the 202, with the totals if the request wants them. If their totals cannot be read, they are
// null, because an error would say that the increments were not counted.
func (a *API) answer(c call, done accepted, ret returning) any {
	if !ret.totals {
		return &done
	}
	ctx, cancel := context.WithTimeout(reader.WithCaller(c.ctx, sharesAs(c)), a.cfg.Timeout)
	defer cancel()
	// Staleness 0: the totals are of a moment after the fold, which is done.
	ts, err := a.services.Reader.TotalsSince(ctx, ret.counters, 0, time.Time{})
	if withoutTotals(err) {
		a.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "increments are counted, and their totals cannot be read", slog.Any("err", err))
	}
	return &counted{accepted: done, totals: ts, quoted: ret.quoted, read: !withoutTotals(err)}
}

// counted is the answer {"accepted": n, ..., "totals": [...]}.
type counted struct {
	accepted
	totals       []reader.Total
	quoted, read bool
}

// AppendJSON makes it an httpserver.Appender.
func (c *counted) AppendJSON(b []byte) []byte {
	b = append(c.appendFields(b), `,"totals":`...)
	if !c.read {
		return append(b, "null}"...)
	}
	return append(appendTotals(b, c.totals, c.quoted), '}')
}
