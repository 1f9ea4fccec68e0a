package api

import (
	"net/http"
	"strconv"

	"github.com/countmill/countmill/internal/httpserver"
	"github.com/countmill/countmill/wire"
)

// trace serves a request. If its route leads to a fold, the request is the first span of that way.
func (a *API) trace(to *route, c call) (v any, err error) {
	if a.cfg.Tracer == nil || !to.traced {
		return a.serve(to, c)
	}
	span := a.cfg.Tracer.Start(wire.Step{Kind: wire.RequestStep, Name: to.method + " " + to.path, Parent: traceIn(c.r.Header)})
	c.ctx = wire.WithTrace(c.ctx, span.Trace())
	c.r = c.r.WithContext(c.ctx)
	v, err = a.serve(to, c)
	status := http.StatusAccepted // of both routes
	if err != nil {
		status = httpserver.AsProblem(err).Status
	}
	failure := ""
	if status >= http.StatusInternalServerError {
		failure = strconv.Itoa(status)
	}
	span.End(failure, wire.Figure{Name: "http.response.status_code", Value: int64(status)})
	return v, err
}

// traceIn is the caller's span. A header that is malformed, or comes twice, names none.
func traceIn(h http.Header) wire.Trace {
	if values := h[http.CanonicalHeaderKey(wire.MetaTrace)]; len(values) == 1 {
		return wire.ParseTrace(values[0])
	}
	return wire.Trace{}
}
