package app

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/countmill/countmill/internal/api"
)

// guardPages keeps scripts of web pages out that nobody named in --cors-origin. Browsers
// run them on machines that can reach this process where strangers cannot.
func (a *App) guardPages(h http.Handler) (http.Handler, error) {
	if !slices.Contains(a.cfg.CORSOrigins, api.AnyOrigin) {
		// Some requests a page may send without being asked whether: one that changes
		// something is then refused for where it comes from.
		cross := http.NewCrossOriginProtection()
		for _, origin := range a.cfg.CORSOrigins {
			if err := cross.AddTrustedOrigin(origin); err != nil {
				return nil, fmt.Errorf("--cors-origin: %w", err)
			}
		}
		cross.SetDenyHandler(refuse(a.log, "a web page of another origin sent this, which --cors-origin does not name"))
		h = cross.Handler(h)
	}
	if a.tokens == nil && !a.cfg.Insecure {
		h = onlyLocal(h, a.log)
	}
	return h, nil
}

func refuse(log *slog.Logger, why string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api.WriteError(w, r, log, api.NewProblem(http.StatusForbidden, "forbidden", "forbidden", why+": nothing was done"))
	})
}

// onlyLocal refuses requests for a host of another name, where neither tokens nor
// --insecure decide who may call. Listening on loopback does not keep web pages out: the
// name of their host may suddenly lead here (DNS rebinding), and browsers then take this
// process for the page's own server. An address cannot lead elsewhere.
func onlyLocal(h http.Handler, log *slog.Logger) http.Handler {
	other := refuse(log, "without --tokens or --insecure this process answers only to localhost and to addresses, not to other names of a host")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLocalName(r.Host) {
			other.ServeHTTP(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// isLocalName takes a Host header. Clients of HTTP/1.0 send none.
func isLocalName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	name, _, _ := strings.Cut(host, "%") // a zone
	return host == "" || strings.EqualFold(host, "localhost") || net.ParseIP(name) != nil
}
