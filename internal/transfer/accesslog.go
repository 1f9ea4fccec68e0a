package transfer

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/countmill/countmill"
)

// logLine is a line of the common log format, with backslashes before quotes in its fields. The combined format adds
// two fields, and some servers add more.
var logLine = regexp.MustCompile(`^(\S+) \S+ .+? \[([^\]]+)\] "((?:[^"\\]|\\.)*)" ([0-9]{3}) (?:[0-9]+|-)(?: .*)?$`)

const logTime = "02/Jan/2006:15:04:05 -0700"

// An accessLog makes an increment of 1 of each line.
type accessLog struct {
	counter *Template
	times   bool // each line counts at its time, and not at that of the import
}

func (a *accessLog) increment(line string) (inc countmill.Increment, err error) {
	parts := logLine.FindStringSubmatch(line)
	if parts == nil {
		return inc, errors.New("is not a line of an access log in the common or combined format")
	}
	value := map[string]string{"host": parts[1], "status": parts[4]}
	value["method"], value["path"] = request(parts[3])
	for _, v := range a.counter.vars {
		if value[v] == "" {
			return inc, fmt.Errorf("its request %q has no %s", shorten(parts[3]), v)
		}
	}
	inc = countmill.Increment{Counter: a.counter.name(value), Delta: 1}
	if a.times {
		if inc.Time, err = time.Parse(logTime, parts[2]); err != nil {
			return inc, badTime(parts[2], "is not a time of an access log")
		}
	}
	return inc, nil
}

// request returns the method and the path of a request, without its query. They are empty if the client sent something
// else than HTTP, such as TLS.
func request(text string) (method, path string) {
	words := strings.Split(text, " ")
	if len(words) != 3 || !strings.HasPrefix(words[2], "HTTP/") {
		return "", ""
	}
	path = words[1]
	if u, err := url.Parse(path); err == nil && u.Host != "" { // a proxy's request
		path = u.EscapedPath()
	}
	if path, _, _ = strings.Cut(path, "?"); !strings.HasPrefix(path, "/") {
		path = ""
	}
	return words[0], path
}
