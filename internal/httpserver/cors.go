package httpserver

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// AnyOrigin matches all origins.
const AnyOrigin = "*"

// AllowOrigins lets scripts of web pages of these origins call and read the answers.
// Credentials that browsers add by themselves (cookies) are not part of it: callers send
// their tokens in the header.
func (rt *Router) AllowOrigins(origins ...string) { rt.origins = origins }

// CheckOrigin reports whether text is an origin as browsers send it, or AnyOrigin.
func CheckOrigin(text string) error {
	u, err := url.Parse(text)
	switch {
	case text == AnyOrigin:
		return nil
	case strings.Contains(text, "*"):
		return errors.New("must name one host; * stands for all origins, and only alone")
	case err != nil || u.Scheme == "" || u.Hostname() == "" || text != strings.ToLower(u.Scheme+"://"+u.Host):
		return errors.New("must be an origin such as https://example.com or http://localhost:3000, in lower case, without a path, or *")
	case u.Scheme == "https" && u.Port() == "443" || u.Scheme == "http" && u.Port() == "80":
		return errors.New("must leave the port out, as browsers do where it is the usual one")
	}
	return nil
}

// What scripts may send and see beyond what every page may.
const (
	corsHeaders  = "Authorization, Content-Type, Idempotency-Key"
	corsExposed  = "Retry-After, WWW-Authenticate, Countmill-Truncated, Countmill-As-Of, Countmill-Begin, Countmill-Without-Curve"
	corsRemember = "600" // seconds that a browser keeps the answer to a preflight; a guess
)

// allowOrigin says in the answer whether the page may read it, and reports it.
func (rt *Router) allowOrigin(w http.ResponseWriter, r *http.Request) bool {
	if rt.origins == nil {
		return false
	}
	header := w.Header()
	header.Add("Vary", "Origin") // also if there is none: caches must not mix them up
	origin := r.Header.Get("Origin")
	switch {
	case origin == "":
		return false
	case slices.Contains(rt.origins, AnyOrigin):
		origin = AnyOrigin
	case !slices.Contains(rt.origins, origin):
		return false
	}
	header.Set("Access-Control-Allow-Origin", origin)
	header.Set("Access-Control-Expose-Headers", corsExposed)
	return true
}

// preflight answers a browser that asks what its page may send, and reports whether r is
// such a question. It needs no token: browsers send none with it.
func preflight(routes methods, w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	header := w.Header()
	header.Add("Vary", "Access-Control-Request-Method, Access-Control-Request-Headers")
	header.Set("Access-Control-Allow-Methods", strings.Join(routes.allowed(), ", "))
	header.Set("Access-Control-Allow-Headers", corsHeaders)
	header.Set("Access-Control-Max-Age", corsRemember)
	w.WriteHeader(http.StatusNoContent)
	return true
}
