package command

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/countmill/countmill/internal/client"
)

var watchCommand = command{
	path:  "watch",
	group: "count",
	args:  "NAME...",
	short: "print totals as they change, until Ctrl-C",
	long: `Prints a line whenever the total of one of the counters changes: the total, a tab and the
name. At most 100 names. A total that cannot be read for a while is a line on standard
error. --json prints each of the server's events as one line. Ctrl-C ends it with 0. It ends
with 1 if the server ends or sends nothing for --silence, and does not reconnect.
`,
	run: runWatch,
}

const (
	// maxWatched is the most counters of one GET /v1/watch.
	maxWatched = 100

	// maxEvent is the longest line of an event that is read.
	maxEvent = 1 << 20
)

func runWatch(ctx context.Context, c call) error {
	names := c.args
	if err := checkNames(names, maxWatched); err != nil {
		return err
	}
	cl, err := c.client()
	if err != nil {
		return err
	}
	w := &watcher{call: c, client: cl, names: names, last: make(map[string]string)}
	err = w.follow(ctx)
	if ctx.Err() != nil {
		return nil // Ctrl-C is how it ends
	}
	return err
}

// A watcher prints the events of one stream.
type watcher struct {
	call
	client *client.Client
	names  []string
	last   map[string]string // the totals printed last
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
	query := w.readQuery()
	query["counter"] = w.names
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.client.Base()+"/v1/watch?"+query.Encode(), nil)
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
	var got struct {
		Totals []total `json:"totals"`
	}
	if err := json.Unmarshal([]byte(e.data), &got); err != nil {
		return fmt.Errorf("%s sent an event that is no JSON: %w", w.client.Base(), err)
	}
	for _, t := range got.Totals {
		if w.last[t.Counter] == t.Total.String() {
			continue
		}
		w.last[t.Counter] = t.Total.String()
		if _, err := fmt.Fprintf(w.stdout, "%s\t%s\n", t.Total, t.Counter); err != nil {
			return err
		}
	}
	return nil
}
