package backend

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A URL names a backend: SCHEME:REST?PARAM=VALUE&...
type URL struct {
	Scheme string
	Rest   string // without escapes
	Params url.Values
	Text   string // the whole URL, with its password if it has one: see Shown
}

var secrets = []*regexp.Regexp{regexp.MustCompile(`^(\w+:[^:@]*:).*(@)`), regexp.MustCompile(`(password=)[^&]*()`)}

// Shown is a URL for messages, without a password.
func Shown(text string) string {
	for _, secret := range secrets {
		text = secret.ReplaceAllString(text, "${1}xxxxx${2}")
	}
	return text
}

// Parse parses a URL. It refuses a parameter that is not in params or is given twice.
func Parse(text string, params []string) (URL, error) {
	scheme, rest, ok := strings.Cut(text, ":")
	if !ok {
		return URL{}, fmt.Errorf("%q has no scheme", Shown(text))
	}
	rest, query, _ := strings.Cut(rest, "?")
	u := URL{Scheme: scheme, Text: text}
	var err error
	if !strings.Contains(strings.TrimPrefix(rest, "//"), "/") && strings.Contains(query, "@") {
		return u, fmt.Errorf("a ? is before the host in %q (write %%3F for ? in a password)", Shown(text))
	}
	// The errors of package url may show a piece of a password.
	if u.Rest, err = url.PathUnescape(rest); err != nil {
		return u, fmt.Errorf("invalid URL escape in %q (write %%25 for %%)", Shown(text))
	}
	if u.Params, err = url.ParseQuery(query); err != nil {
		return u, fmt.Errorf("invalid parameters in %q (write %%25 for %% and %%3B for ;)", Shown(text))
	}
	for name, values := range u.Params {
		if !slices.Contains(params, name) {
			valid := "none"
			if len(params) > 0 {
				valid = strings.Join(params, ", ")
			}
			return u, fmt.Errorf("unknown parameter %q of %s: (valid: %s)", name, scheme, valid)
		}
		if len(values) > 1 {
			return u, fmt.Errorf("parameter %q is given %d times", name, len(values))
		}
	}
	return u, nil
}

// Bare refuses anything between the colon and the parameters.
func (u URL) Bare() error {
	if u.Rest != "" {
		return fmt.Errorf("%s: takes nothing after the colon, got %q", u.Scheme, u.Rest)
	}
	return nil
}

// Dir returns the directory of SCHEME:DIR or SCHEME:///ABSOLUTE/DIR.
func (u URL) Dir() (string, error) {
	dir := u.Rest
	if after, ok := strings.CutPrefix(dir, "//"); ok {
		if !strings.HasPrefix(after, "/") {
			return "", fmt.Errorf("%q names a host; write %s:DIR or %s:///ABSOLUTE/DIR", u.Scheme+":"+u.Rest, u.Scheme, u.Scheme)
		}
		dir = after
	}
	if dir == "" {
		return "", fmt.Errorf("%s: names no directory; write %s:DIR", u.Scheme, u.Scheme)
	}
	return dir, nil
}

// Count returns an integer parameter from 1, or 0 if it is absent.
func (u URL) Count(param string) (int, error) {
	text := u.Params.Get(param)
	if !u.Params.Has(param) {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("parameter %s must be an integer from 1, got %q", param, text)
	}
	return n, nil
}

// Path returns the pieces between slashes of SCHEME://PIECE/PIECE. There must be least to most of
// them, none of them empty; usage is the form in the error.
func (u URL) Path(least, most int, usage string) ([]string, error) {
	after, ok := strings.CutPrefix(u.Rest, "//")
	pieces := strings.Split(after, "/")
	if !ok || len(pieces) < least || len(pieces) > most || slices.Contains(pieces, "") {
		return nil, fmt.Errorf("%q is not of the form %s", Shown(u.Scheme+":"+u.Rest), usage)
	}
	return pieces, nil
}

// Hosts returns the servers of SCHEME://HOST:PORT[,HOST:PORT...]. It refuses a server that is
// given twice or that check refuses.
func (u URL) Hosts(check func(server string) error) ([]string, error) {
	usage := u.Scheme + "://HOST:PORT[,HOST:PORT...]"
	list, ok := strings.CutPrefix(u.Rest, "//")
	if !ok || list == "" {
		return nil, errors.New(u.Scheme + ": names no server; write " + usage)
	}
	servers := strings.Split(list, ",")
	for i, server := range servers {
		if err := check(server); err != nil {
			return nil, fmt.Errorf("%w; write %s", err, usage)
		}
		if slices.Contains(servers[:i], server) {
			return nil, fmt.Errorf("server %q is given twice", server)
		}
	}
	return servers, nil
}
