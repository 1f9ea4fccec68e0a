package command

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/app"
)

var deadFamily = command{
	path:  "dead",
	group: "look",
	args:  "VERB [KEY...]",
	short: "list, show, replay or discard dead letters",
	long: `A part or message that can never be counted as it is becomes a dead letter: it is out of
the totals, and kept until it is replayed or discarded.
`,
}

var deadListCommand = command{
	path:  "dead list",
	short: "list dead letters, and why they could not be counted",
	run:   func(ctx context.Context, c call) error { return runDead(ctx, c, (*dead).list) },
}

var deadShowCommand = command{
	path:  "dead show",
	args:  "KEY",
	short: "show the contents of a dead letter",
	run: func(ctx context.Context, c call) error {
		if len(c.args) != 1 {
			return app.Usagef("name one KEY, got %s", quoted(c.args))
		}
		return runDead(ctx, c, (*dead).show)
	},
}

var deadReplayCommand = command{
	path:  "dead replay",
	args:  "KEY...",
	short: "count dead letters after all",
	long: `An aggregator counts a replayed dead letter within about half a minute, and removes it. One
that cannot be counted stays. It keeps its ids and its time: replayed twice, or counted
before, it counts once.

--as-new is for dead letters that cannot count as they are any more: beyond the
deduplication window, with a time that is a day ahead, with an id that was used for something
else, or from another language by way of Pub/Sub's dead letters. All others count as without
it. A dead letter that is asked for in both ways, or again, counts once. If nothing remembers
whether it was counted before, the output says that it would count a second time.

Exit code 1: a dead letter could not be replayed, and the output says why.
`,
	run: func(ctx context.Context, c call) error { return runKeys(ctx, c, (*dead).replay) },
}

var deadDiscardCommand = command{
	path:  "dead discard",
	args:  "KEY...",
	short: "remove dead letters uncounted",
	long: `A discarded dead letter is never counted, even if a replay was asked for. "removed" says that
an aggregator had already taken it: it was counted, or may be within the next minute.
`,
	run: func(ctx context.Context, c call) error { return runKeys(ctx, c, (*dead).discard) },
}

// A deadLetter is a letter as GET /v1/dead-letters has it.
type deadLetter struct {
	Key     string `json:"key"`
	Source  string `json:"source"`
	Time    string `json:"time"`
	At      string `json:"at"`
	Reason  string `json:"reason"`
	Applied string `json:"applied"`
	Bytes   int    `json:"bytes"`
	Asked   bool   `json:"replay_asked"`
}

// dead is one call of a command on dead letters.
type dead struct {
	call
	client *client.Client
}

func runDead(ctx context.Context, c call, run func(*dead, context.Context, []string) error) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	return run(&dead{call: c, client: cl}, ctx, c.args)
}

// runKeys is runDead for keys or --all.
func runKeys(ctx context.Context, c call, run func(*dead, context.Context, []string) error) error {
	switch {
	case c.all && len(c.args) > 0:
		return app.Usagef("--all takes no KEY, got %q", c.args[0])
	case !c.all && len(c.args) == 0:
		return app.Usagef("KEY is missing; --all for every dead letter")
	}
	return runDead(ctx, c, run)
}

// pages calls visit with each page of letters, as it came too, until limit of them have
// been seen; 0 for all.
func (d *dead) pages(ctx context.Context, limit int, visit func(raw []byte, page []deadLetter) error) error {
	token := ""
	for seen := 0; ; {
		query := url.Values{"limit": {"100"}}
		if limit > 0 {
			query.Set("limit", strconv.Itoa(min(limit-seen, 100)))
		}
		if token != "" {
			query.Set("page_token", token)
		}
		raw, err := d.client.Do(ctx, client.Request{Path: "/v1/dead-letters", Query: query})
		if err != nil {
			return err
		}
		var page struct {
			DeadLetters []deadLetter `json:"dead_letters"`
			Next        string       `json:"next_page_token"`
		}
		if err := json.Unmarshal(raw, &page); err != nil || page.DeadLetters == nil {
			return fmt.Errorf("the server answered with something else than dead letters; is that a countmill?")
		}
		if err := visit(raw, page.DeadLetters); err != nil {
			return err
		}
		seen += len(page.DeadLetters)
		if token = page.Next; token == "" || limit > 0 && seen >= limit {
			return nil
		}
	}
}

func (d *dead) list(ctx context.Context, _ []string) error {
	n := 0
	const row = "%-32s  %-20s  %-7s  %8v  %s\n"
	err := d.pages(ctx, d.limit, func(raw []byte, page []deadLetter) error {
		if d.json {
			_, err := d.stdout.Write(raw)
			return err
		}
		if n == 0 && len(page) > 0 {
			fmt.Fprintf(d.stdout, row, "KEY", "SET ASIDE", "APPLIED", "BYTES", "REASON")
		}
		n += len(page)
		for _, l := range page {
			reason := l.Reason
			if l.Asked {
				reason = "(replay asked for) " + reason
			}
			_, err := fmt.Fprintf(d.stdout, row, plain(l.Key), shortTime(l.At), plain(l.Applied), l.Bytes, plain(reason))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && n == 0 && !d.json {
		_, err = fmt.Fprintln(d.stderr, errNoDeadLetters)
	}
	return err
}

// shortTime leaves fractions of a second out.
func shortTime(t string) string {
	whole, _, cut := strings.Cut(plain(t), ".")
	if cut {
		whole += "Z"
	}
	return whole
}

func (d *dead) show(ctx context.Context, keys []string) error {
	raw, err := d.client.Do(ctx, client.Request{Path: "/v1/dead-letters/" + url.PathEscape(keys[0])})
	if err != nil {
		return err
	}
	if d.json {
		_, err = d.stdout.Write(raw)
		return err
	}
	var got shownDeadLetter
	if err := json.Unmarshal(raw, &got); err != nil || got.Key == "" {
		return fmt.Errorf("the server answered with something else than a dead letter; is that a countmill?")
	}
	return got.print(d.call)
}

// A shownDeadLetter is the answer of GET /v1/dead-letters/KEY.
type shownDeadLetter struct {
	deadLetter
	Replay string `json:"replay"`
	Why    string `json:"why"`
	Batch  *struct {
		Parts []struct {
			ID      string
			Kind    string
			Entries []increment
		}
	} `json:"batch"`
	JSON      json.RawMessage `json:"json"`
	Base64    string          `json:"base64"`
	Truncated bool            `json:"truncated"`
}

func (l *shownDeadLetter) print(c call) error {
	replay := map[string]string{"ids": "yes, under its own ids", "as_new": "with --as-new", "never": "no"}[l.Replay]
	if l.Why != "" {
		replay += ": " + l.Why
	}
	if l.Asked {
		replay += " (asked for)"
	}
	table := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	for _, row := range [][2]string{
		{"key", l.Key}, {"source", l.Source}, {"time", l.Time}, {"set aside", l.At}, {"reason", l.Reason},
		{"applied", l.Applied}, {"bytes", strconv.Itoa(l.Bytes)}, {"can be replayed", replay},
	} {
		fmt.Fprintf(table, "%s\t%s\n", row[0], plain(row[1]))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	switch {
	case l.Batch != nil:
		for _, p := range l.Batch.Parts {
			fmt.Fprintf(c.stdout, "\npart %s, %s\n", plain(p.ID), plain(p.Kind))
			for _, e := range p.Entries {
				fmt.Fprintf(c.stdout, "%+d\t%s\n", e.Delta, plain(e.Counter))
			}
		}
	case l.JSON != nil:
		fmt.Fprintf(c.stdout, "\n%s\n", plain(string(l.JSON)))
	default:
		fmt.Fprintf(c.stdout, "\nbase64 %s\n", plain(l.Base64))
	}
	return nil
}
