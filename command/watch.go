package command

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	"github.com/countmill/countmill/client"
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

// maxWatched is the most counters of one GET /v1/watch.
const maxWatched = 100

func runWatch(ctx context.Context, c call) error {
	names := c.args
	if err := checkNames(names, maxWatched); err != nil {
		return err
	}
	cl, err := c.client(client.WithSilence(c.silence))
	if err != nil {
		return err
	}
	w := &watcher{call: c, last: make(map[string]string)}
	for e, err := range cl.Events(ctx, client.Request{Path: "/v1/watch", Query: url.Values{"counter": names}}) {
		if ctx.Err() != nil {
			return nil // Ctrl-C is how it ends
		}
		if err == nil {
			err = w.print(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// A watcher prints the events of one stream.
type watcher struct {
	call
	last map[string]string // the totals printed last
}

func (w *watcher) print(e client.Event) error {
	if w.json {
		_, err := fmt.Fprintf(w.stdout, "%s\n", e.Data)
		return err
	}
	if problem := e.Problem(); problem != nil {
		_, err := fmt.Fprintf(w.stderr, "countmill: %v; still watching\n", problem)
		return err
	}
	var got struct {
		Totals []total `json:"totals"`
	}
	if err := json.Unmarshal(e.Data, &got); err != nil {
		return fmt.Errorf("the server sent an event that is no JSON: %w; is that a countmill?", err)
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
