package command

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/client"
)

var watchCommand = command{
	path:  "watch",
	group: "count",
	args:  "[NAME...]",
	short: "print totals as they change, until Ctrl-C",
	long: `Prints a line for the total of each counter, and one whenever it changes: the total, a tab
and the name; with --rates also a tab and the change a second. Give at most 100 names, or
--prefix for the counters whose names begin so. A new counter is there within 10 s.

  countmill watch page:/home orders
  countmill watch --prefix page: --limit 500

Lines on standard error report totals that cannot be read for a while, counters that left
(deleted, or beyond --limit), and counters beyond --limit at the start. --json prints each of
the server's events as one line: the first has all totals, and others the changed ones.
Ctrl-C ends it with 0. It ends with 1 if the server ends or sends nothing for --silence, and
does not reconnect.
`,
	run: runWatch,
}

const (
	// maxWatched is the most counters of one GET /v1/watch.
	maxWatched = 100

	// maxWatchLimit is the most counters of one GET /v1/watch with a prefix.
	maxWatchLimit = 1000

	// maxEvent is the longest line of an event that is read.
	maxEvent = 4 << 20
)

func runWatch(ctx context.Context, c call) error {
	query, err := c.watchQuery()
	if err != nil {
		return err
	}
	cl, err := c.client()
	if err != nil {
		return err
	}
	w := &watcher{call: c, client: cl, query: query, last: make(map[string]string)}
	err = w.follow(ctx)
	if ctx.Err() != nil {
		return nil // Ctrl-C is how it ends
	}
	return err
}

// watchQuery is the query for the names, or for the prefix.
func (c call) watchQuery() (url.Values, error) {
	query := url.Values{}
	if c.rates {
		query.Set("rates", "true")
	}
	switch {
	case c.given("prefix") && len(c.args) > 0:
		return nil, app.Usagef("--prefix and NAME exclude each other")
	case c.given("prefix"):
		query.Set("prefix", c.watchPrefix)
		query.Set("limit", strconv.Itoa(c.limit))
		return query, nil
	case c.given("limit"):
		return nil, app.Usagef("--limit needs --prefix")
	case len(c.args) == 0:
		return nil, app.Usagef("NAME is missing, or --prefix")
	}
	query["counter"] = c.args
	return query, checkNames(c.args, maxWatched)
}

// A watcher prints the events of one stream.
type watcher struct {
	call
	client    *client.Client
	query     url.Values
	last      map[string]string // the lines printed last, by counter
	truncated bool              // a line has reported it
}

func (w *watcher) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// Until the server answers, the call is bounded as any other. After that the stream lives as long
	// as the server keeps sending.
	silence := time.AfterFunc(w.timeout, func() {
		cancel(fmt.Errorf("%s did not answer within --timeout %s", w.client.Base(), w.timeout))
	})
	defer silence.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.client.Base()+"/v1/watch?"+w.query.Encode(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	res, err := w.client.Do(req)
	if err != nil {
		return because(ctx, err)
	}
	defer res.Body.Close()
	silence.Stop()
	silence = time.AfterFunc(w.silence, func() {
		cancel(fmt.Errorf("%s sent nothing for %s (--silence)", w.client.Base(), w.silence))
	})
	defer silence.Stop()
	return because(ctx, w.read(res.Body, func() { silence.Reset(w.silence) }))
}

// because prefers the reason why the call was ended to its symptom.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

// An event is one of the stream's.
type event struct{ name, data string }

// read prints events until the stream ends. heard is called for each line.
func (w *watcher) read(stream io.Reader, heard func()) error {
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, maxEvent)
	var e event
	for lines.Scan() {
		heard()
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case field == "event":
			e.name = value
		case field == "data":
			e.data += value
		case lines.Text() == "" && e.data != "":
			if err := w.print(e); err != nil {
				return err
			}
			e = event{}
		}
	}
	if err := lines.Err(); err != nil {
		return w.client.Explain(err)
	}
	return fmt.Errorf("%s ended the stream", w.client.Base())
}

func (w *watcher) print(e event) error {
	if w.json {
		_, err := fmt.Fprintln(w.stdout, e.data)
		return err
	}
	if e.name == "problem" {
		problem := &client.Problem{}
		_ = json.Unmarshal([]byte(e.data), problem) // the line shows as much as there is
		_, err := fmt.Fprintf(w.stderr, "countmill: %v; still watching\n", problem)
		return err
	}
	var got watchEvent
	if err := json.Unmarshal([]byte(e.data), &got); err != nil {
		return fmt.Errorf("%s sent an event that is no JSON: %w", w.client.Base(), err)
	}
	return w.printTotals(&got)
}

// A watchEvent is the data of an event with totals.
type watchEvent struct {
	Totals []struct {
		total
		Rate *json.Number `json:"rate"`
	} `json:"totals"`
	Removed   []string `json:"removed"`
	Truncated bool     `json:"truncated"`
}

func (w *watcher) printTotals(e *watchEvent) error {
	for _, t := range e.Totals {
		line := t.Total.String() + "\t" + plain(t.Counter)
		if t.Rate != nil {
			line += "\t" + t.Rate.String() + "/s"
		}
		if w.last[t.Counter] == line { // its shards have changed
			continue
		}
		w.last[t.Counter] = line
		if _, err := fmt.Fprintln(w.stdout, line); err != nil {
			return err
		}
	}
	for _, name := range e.Removed {
		delete(w.last, name)
		fmt.Fprintf(w.stderr, "countmill: %s is watched no longer\n", plain(name))
	}
	if e.Truncated && !w.truncated {
		fmt.Fprintf(w.stderr, "countmill: more counters begin with the prefix (--limit %d)\n", w.limit)
	}
	w.truncated = e.Truncated
	return nil
}
