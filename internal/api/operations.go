package api

import (
	"net/http"
	"strings"
	"time"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/httpserver"
)

// readyTimeout bounds what /readyz may ask the outside. Supervisors wait a second or
// more.
const readyTimeout = 900 * time.Millisecond

// healthz says that the process answers; it looks at nothing outside, so that an outage
// elsewhere restarts nothing here.
func (a *API) healthz(call) (any, error) { return client.Status{Status: "ok"}, nil }

// readyz says whether the roles can do their work.
func (a *API) readyz(c call) (any, error) {
	if a.services.Ready == nil {
		return client.Status{Status: "ready"}, nil
	}
	degraded, err := a.services.Ready(c.ctx)
	switch {
	case err != nil:
		return nil, httpserver.NewProblem(http.StatusServiceUnavailable, "not-ready", "not ready", a.reasonFor(c, err.Error()))
	case degraded != "":
		return client.Status{Status: "degraded", Reason: a.reasonFor(c, degraded)}, nil
	}
	return client.Status{Status: "ready"}, nil
}

// reasonFor returns the whole reason for a known caller. Another caller learns only the part
// that is at fault: the rest names addresses, projects and files.
func (a *API) reasonFor(c call, reason string) string {
	if !a.cfg.KnownCallers || c.caller().Name != "" {
		return reason
	}
	part, _, _ := strings.Cut(reason, ":")
	return part + ": ask with a token for the reason"
}

var openAPI = httpserver.OpenAPI()

func (a *API) openAPI(c call) error {
	openAPI.ServeHTTP(c.w, c.r)
	return nil
}

func (a *API) metrics(c call) error {
	a.services.Metrics.ServeHTTP(c.w, c.r)
	return nil
}
