package app

import (
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/countmill/countmill/backend/memcached"
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
	"bus": {
		{name: "inproc", usage: "inproc:", local: true},
		{name: "pubsub", usage: "pubsub://PROJECT/TOPIC?subscription=NAME", params: []string{"subscription", "dead_letter"}},
	},
	"store": {
		{name: "pebble", usage: "pebble:DIR", params: []string{"namespace"}, local: true},
		{name: "datastore", usage: "datastore://PROJECT[/DATABASE][?namespace=NS]", params: []string{"namespace"}},
	},
	"cache": {
		{name: "memory", usage: "memory:", params: []string{"totals"}},
		{name: "memcached", usage: "memcached://HOST:PORT[,HOST:PORT...]"},
	},
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

// PebbleURL is the URL of a store in the directory dir of this machine.
func PebbleURL(dir string) string {
	if strings.HasPrefix(dir, "//") { // which a URL takes for the name of a host
		dir = "//" + dir
	}
	return "pebble:" + escapeDir(dir)
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
	return u, u.check(roles)
}

// servers is what the URL names: memcached://HOST:PORT[,HOST:PORT...].
func (u backendURL) servers() ([]string, error) {
	list, ok := strings.CutPrefix(u.rest, "//")
	if !ok || list == "" {
		return nil, Usagef("--%s: %s: names no server; write memcached://HOST:PORT[,HOST:PORT...]", u.flag, u.scheme)
	}
	servers := strings.Split(list, ",")
	seen := make(map[string]bool)
	for _, server := range servers {
		if err := memcached.CheckServer(server); err != nil {
			return nil, Usagef("--%s: %s; write memcached://HOST:PORT[,HOST:PORT...]", u.flag, err)
		}
		if seen[server] {
			return nil, Usagef("--%s: server %q stands twice", u.flag, server)
		}
		seen[server] = true
	}
	return servers, nil
}

// path is what stands between // and the parameters, cut at its slashes: from least to
// most pieces, none of them empty.
func (u backendURL) path(least, most int, usage string) ([]string, error) {
	after, ok := strings.CutPrefix(u.rest, "//")
	pieces := strings.Split(after, "/")
	if !ok || len(pieces) < least || len(pieces) > most || slices.Contains(pieces, "") {
		return nil, Usagef("--%s: %q is not of the form %s", u.flag, u.scheme+":"+u.rest, usage)
	}
	return pieces, nil
}

// pubsub is PROJECT, TOPIC and the subscription, which only an aggregator needs.
func (u backendURL) pubsub(roles Roles) (project, topic, subscription string, err error) {
	pieces, err := u.path(2, 2, "pubsub://PROJECT/TOPIC?subscription=NAME")
	if err != nil {
		return "", "", "", err
	}
	subscription = u.params.Get("subscription")
	if subscription == "" && (roles.Has(Aggregator) || u.params.Has("subscription")) {
		return "", "", "", Usagef("--%s: names no subscription to take batches from; write pubsub://%s/%s?subscription=NAME", u.flag, pieces[0], pieces[1])
	}
	if dead := u.params.Get("dead_letter"); u.params.Has("dead_letter") && (dead == "" || dead == subscription || dead == pieces[1]) {
		return "", "", "", Usagef("--%s: parameter dead_letter must name the subscription that keeps what Pub/Sub gives up, another than the one batches come from; got %q", u.flag, dead)
	}
	return pieces[0], pieces[1], subscription, nil
}

// datastore is PROJECT and the database, empty for the project's default one.
func (u backendURL) datastore() (project, database string, err error) {
	pieces, err := u.path(1, 2, "datastore://PROJECT[/DATABASE]")
	if err != nil {
		return "", "", err
	}
	return pieces[0], strings.Join(pieces[1:], ""), nil
}

// check refuses what only this kind of backend cannot have.
func (u backendURL) check(roles Roles) error {
	switch u.scheme {
	case "pubsub":
		_, _, _, err := u.pubsub(roles)
		return err
	case "datastore":
		_, _, err := u.datastore()
		return err
	case "pebble":
		_, err := u.dir()
		return err
	case "memcached":
		_, err := u.servers()
		return err
	}
	_, err := u.count("totals")
	return errors.Join(u.bare(), err)
}
