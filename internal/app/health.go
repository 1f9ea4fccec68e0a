package app

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/access"
	"github.com/countmill/countmill/internal/api"
)

// errStopping is what clients get after the signal: nothing of theirs was done.
var errStopping = fmt.Errorf("%w: this process is stopping", countmill.ErrClosed)

// readyTimeout bounds what /readyz may ask the outside. Supervisors wait a second or
// more.
const readyTimeout = 900 * time.Millisecond

// A status is the answer of /healthz and /readyz.
type status struct {
	Status string `json:"status"`
	Reason string `json:"reason,omitempty"`
}

// healthz says that the process answers; it looks at nothing outside, so that an outage
// elsewhere restarts nothing here.
func (a *App) healthz(w http.ResponseWriter, _ *http.Request) {
	api.WriteJSON(w, http.StatusOK, status{Status: "ok"})
}

// readyz says whether the roles can do their work.
func (a *App) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	degraded, err := a.ready(ctx)
	switch {
	case err != nil:
		api.WriteError(w, r, a.log, api.NewProblem(http.StatusServiceUnavailable, "not-ready", "not ready", a.reasonFor(r, err.Error())))
	case degraded != "":
		api.WriteJSON(w, http.StatusOK, status{Status: "degraded", Reason: a.reasonFor(r, degraded)})
	default:
		api.WriteJSON(w, http.StatusOK, status{Status: "ready"})
	}
}

// reasonFor is the whole reason for callers that are known. Others are told the part that
// is at fault: the rest names addresses, projects and files.
func (a *App) reasonFor(r *http.Request, reason string) string {
	if a.tokens == nil || access.From(r.Context()).Name != "" {
		return reason
	}
	part, _, _ := strings.Cut(reason, ":")
	return part + ": ask with a token for the reason"
}

// ready returns why the process cannot do its work, or what it does without.
func (a *App) ready(ctx context.Context) (degraded string, err error) {
	if a.stopping.Load() {
		return "", errStopping
	}
	if a.publisher != nil {
		if err := a.publisher.Ready(); err != nil {
			return "", fmt.Errorf("publisher: %w", err)
		}
	}
	if a.aggregator != nil {
		if err := a.aggregator.Ready(); err != nil {
			return "", fmt.Errorf("aggregator: %w", err)
		}
	}
	if a.backends.busReady != nil {
		if err := a.backends.busReady(); err != nil {
			return "", fmt.Errorf("bus: %w", err)
		}
	}
	if a.reader != nil {
		if degraded, err = a.reader.Ready(ctx); err != nil {
			return "", fmt.Errorf("reader: %w", err)
		}
	}
	if a.aggregator != nil {
		degraded = alsoDegraded(degraded, "aggregator", a.aggregator.Degraded())
	}
	degraded = alsoDegraded(degraded, "store", a.space.degraded())
	return alsoDegraded(degraded, "tokens", a.tokensDegraded()), nil
}

// alsoDegraded adds a reason to the text, unless it is empty.
func alsoDegraded(degraded, part, without string) string {
	if without == "" {
		return degraded
	}
	return strings.TrimPrefix(degraded+"; "+part+": "+without, "; ")
}

func (a *App) tokensDegraded() string {
	switch {
	case a.tokens == nil:
		return ""
	case a.tokens.Err() != nil:
		return fmt.Sprintf("those of before are in force: %v", a.tokens.Err())
	case a.tokens.Len() == 0:
		return "the file holds none, so every call is refused"
	}
	return ""
}
