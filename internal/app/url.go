package app

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A backendURL names a backend: SCHEME:REST?PARAM=VALUE&...
type backendURL struct {
	flag   string // for errors
	scheme string
	rest   string // without escapes
	params url.Values
}

// A scheme is a kind of backend and the parameters that its URL takes.
type scheme struct {
	name   string
	usage  string // how it is written, for errors
	params []string
	// local backends live within one process: single roles could not share them.
	local bool
}

var schemes = map[string][]scheme{
	"bus":   {{name: "loopback", usage: "loopback:", local: true}},
	"store": {{name: "pebble", usage: "pebble:DIR", params: []string{"namespace"}, local: true}},
	"cache": {{name: "memory", usage: "memory:", params: []string{"totals"}}},
}

// parseURL refuses unknown schemes and parameters and names the valid ones.
func parseURL(flag, text string) (backendURL, error) {
	name, rest, ok := strings.Cut(text, ":")
	known := schemes[flag]
	i := slices.IndexFunc(known, func(s scheme) bool { return s.name == name })
	if !ok || i < 0 {
		return backendURL{}, Usagef("--%s: unknown scheme in %q (valid: %s)", flag, text, usages(known))
	}
	rest, query, _ := strings.Cut(rest, "?")
	u := backendURL{flag: flag, scheme: name}
	var err error
	if u.rest, err = url.PathUnescape(rest); err != nil {
		return u, Usagef("--%s: %s in %q (a %% is written %%25)", flag, err, text)
	}
	if u.params, err = url.ParseQuery(query); err != nil {
		return u, Usagef("--%s: %s in %q", flag, err, text)
	}
	return u, checkParams(u, known[i])
}

func checkParams(u backendURL, s scheme) error {
	for name, values := range u.params {
		if !slices.Contains(s.params, name) {
			valid := "none"
			if len(s.params) > 0 {
				valid = strings.Join(s.params, ", ")
			}
			return Usagef("--%s: unknown parameter %q of %s: (valid: %s)", u.flag, name, s.name, valid)
		}
		if len(values) > 1 {
			return Usagef("--%s: parameter %q stands %d times", u.flag, name, len(values))
		}
	}
	return nil
}

func usages(known []scheme) string {
	all := make([]string, len(known))
	for i, s := range known {
		all[i] = s.usage
	}
	return strings.Join(all, ", ")
}

// bare refuses anything between the colon and the parameters.
func (u backendURL) bare() error {
	if u.rest != "" {
		return Usagef("--%s: %s: takes nothing after the colon, got %q", u.flag, u.scheme, u.rest)
	}
	return nil
}

// dir is the directory that the URL names: pebble:DIR or pebble:///ABSOLUTE.
func (u backendURL) dir() (string, error) {
	dir := u.rest
	if after, ok := strings.CutPrefix(dir, "//"); ok {
		if !strings.HasPrefix(after, "/") {
			return "", Usagef("--%s: %q names a host; write %s:DIR or %s:///ABSOLUTE/DIR", u.flag, u.scheme+":"+u.rest, u.scheme, u.scheme)
		}
		dir = after
	}
	if dir == "" {
		return "", Usagef("--%s: %s: names no directory; write %s:DIR", u.flag, u.scheme, u.scheme)
	}
	return dir, nil
}

// count is an integer parameter, 0 where it is absent.
func (u backendURL) count(param string) (int, error) {
	text := u.params.Get(param)
	if !u.params.Has(param) {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, Usagef("--%s: parameter %s must be an integer from 1, got %q", u.flag, param, text)
	}
	return n, nil
}

// escapeDir is the directory as parseURL reads it.
func escapeDir(dir string) string {
	return strings.NewReplacer("%", "%25", "?", "%3F").Replace(dir)
}

// checkBackends parses the URLs of the backends that the roles need. A single role
// refuses a backend that lives within one process: nothing would ever reach it.
func checkBackends(cfg Config) (map[string]backendURL, error) {
	urls := make(map[string]backendURL)
	needs := map[string]struct {
		text  string
		roles Roles
	}{
		"bus":   {cfg.Bus, Publisher | Aggregator},
		"store": {cfg.Store, Aggregator | Reader},
		"cache": {cfg.Cache, Reader},
	}
	var errs []error
	for _, flag := range []string{"bus", "store", "cache"} {
		if need := needs[flag]; cfg.Roles.Has(need.roles) {
			u, err := checkBackend(cfg.Roles, flag, need.text)
			urls[flag], errs = u, append(errs, err)
		}
	}
	return urls, errors.Join(errs...)
}

func checkBackend(roles Roles, flag, text string) (backendURL, error) {
	u, err := parseURL(flag, text)
	if err != nil {
		return u, err
	}
	i := slices.IndexFunc(schemes[flag], func(s scheme) bool { return s.name == u.scheme })
	if roles != Up && schemes[flag][i].local {
		return u, Usagef("--%s: %s: lives within one process, which the %s role alone cannot share; use `countmill up`, which runs all roles in one",
			flag, u.scheme, roles)
	}
	return u, u.check()
}

// check refuses what only this kind of backend cannot have.
func (u backendURL) check() error {
	if u.scheme == "pebble" {
		_, err := u.dir()
		return err
	}
	_, err := u.count("totals")
	return errors.Join(u.bare(), err)
}
