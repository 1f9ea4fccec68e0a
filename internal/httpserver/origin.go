package httpserver

import (
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
)

// PagesConfig says which web pages may call.
type PagesConfig struct {
	// Origins are the origins whose scripts may call; AnyOrigin matches all.
	Origins []string
	// OnlyLocal refuses requests for a host of another name. Set it if neither tokens nor the
	// operator decide about callers.
	OnlyLocal bool
	// Log gets the details that clients do not see. Nil discards.
	Log *slog.Logger
}

// GuardPages keeps out the scripts of web pages whose origins are not named. Browsers run them
// on machines that can reach this process when strangers cannot. The error is about an origin.
func GuardPages(h http.Handler, cfg PagesConfig) (http.Handler, error) {
	cfg.Log = orDiscard(cfg.Log)
	if !slices.Contains(cfg.Origins, AnyOrigin) {
		// A browser sends some requests of a page without asking this server first. If such a
		// request changes something, it is refused because of its origin.
		cross := http.NewCrossOriginProtection()
		for _, origin := range cfg.Origins {
			if err := cross.AddTrustedOrigin(origin); err != nil {
				return nil, err
			}
		}
		cross.SetDenyHandler(refuse(cfg.Log, "a web page of another origin sent this, which --cors-origin does not name"))
		h = cross.Handler(h)
	}
	if cfg.OnlyLocal {
		h = onlyLocal(h, cfg.Log)
	}
	return h, nil
}

func refuse(log *slog.Logger, why string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		WriteError(w, r, log, NewProblem(http.StatusForbidden, "forbidden", "forbidden", why+": nothing was done"))
	})
}

// onlyLocal refuses requests for a host of another name. Listening on loopback does not keep
// web pages out: the name of their host may suddenly lead here (DNS rebinding), and browsers
// then take this process for the page's own server. An address cannot lead elsewhere.
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

// OnlyThisMachine refuses requests whose connections come from other machines. It is for a handler
// behind somebody else's listener.
func OnlyThisMachine(h http.Handler, log *slog.Logger) http.Handler {
	other := refuse(orDiscard(log), "without tokens this handler answers only to its own machine")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err == nil && !net.ParseIP(host).IsLoopback() { // a socket of the file system has no port
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
