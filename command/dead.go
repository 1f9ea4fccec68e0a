package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
)

var deadFamily = cli.Command{
	Path:  "dead",
	Group: "look",
	Args:  "VERB [KEY...]",
	Short: "list, show, replay or discard dead letters",
	Long: `A part or message that can never be counted as it is becomes a dead letter: it is out of
the totals, and kept until it is replayed or discarded.
`,
}

var deadListCommand = cli.Command{
	Section: "dead",
	Path:    "dead list",
	Short:   "list dead letters, and why they could not be counted",
	New:     func() cli.Verb { return new(deadListVerb) },
}

var deadShowCommand = cli.Command{
	Path:  "dead show",
	Args:  "KEY",
	Short: "show the contents of a dead letter",
	New:   func() cli.Verb { return new(deadShowVerb) },
}

var deadReplayCommand = cli.Command{
	Section: "dead",
	Path:    "dead replay",
	Args:    "KEY...",
	Short:   "count dead letters after all",
	Long: `An aggregator counts a replayed dead letter within about half a minute, and removes it. One
that cannot be counted stays. It keeps its ids and its time: replayed twice, or counted
before, it counts once.

--as-new is for dead letters that cannot count as they are any more: beyond the
deduplication window, with a time that is a day ahead, with an id that was used for something
else, or from another language by way of Pub/Sub's dead letters. All others count as without
it. A dead letter that is asked for in both ways, or again, counts once. If nothing remembers
whether it was counted before, the output says that it would count a second time.

Exit code 1: a dead letter could not be replayed, and the output says why.
`,
	New: func() cli.Verb { return new(deadReplayVerb) },
}

var deadDiscardCommand = cli.Command{
	Section: "dead",
	Path:    "dead discard",
	Args:    "KEY...",
	Short:   "remove dead letters uncounted",
	Long: `A discarded dead letter is never counted, even if a replay was asked for. "removed" says that
an aggregator had already taken it: it was counted, or may be within the next minute.
`,
	New: func() cli.Verb { return new(deadDiscardVerb) },
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

// A dead verb is about dead letters.
type dead struct {
	calling
	client          *client.Client
	all, asNew, yes bool
}

// connect comes before all calls.
func (d *dead) connect() (err error) {
	d.client, err = d.calling.client()
	return err
}

// chosen is connect for a verb that takes keys or --all.
func (d *dead) chosen() error {
	switch {
	case d.all && len(d.args) > 0:
		return cli.Usagef("--all takes no KEY, got %q", d.args[0])
	case !d.all && len(d.args) == 0:
		return cli.Usagef("KEY is missing; --all for every dead letter")
	}
	return d.connect()
}

func (d *dead) allFlag() cli.Flag { return cli.Switch("all", &d.all, "All dead letters.") }

func (d *dead) yesFlag() cli.Flag {
	return cli.Switch("yes", &d.yes, "Do not ask. --all, --as-new and discard need it if no person can be asked.")
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
			Letters []deadLetter `json:"letters"`
			Next    string       `json:"next_page_token"`
		}
		if err := json.Unmarshal(raw, &page); err != nil || page.Letters == nil {
			return fmt.Errorf("the server answered with something else than dead letters; is that a countmill?")
		}
		if err := visit(raw, page.Letters); err != nil {
			return err
		}
		seen += len(page.Letters)
		if token = page.Next; token == "" || limit > 0 && seen >= limit {
			return nil
		}
	}
}

type deadListVerb struct {
	dead
	limit int
}

func (d *deadListVerb) Flags() []cli.Flag {
	return d.flags(usual, pages, cli.New("limit", "N", cli.Count{To: &d.limit, Max: math.MaxInt32}, "Stop after N dead letters. 0: all."))
}

func (d *deadListVerb) Run(ctx context.Context) error {
	if err := d.connect(); err != nil {
		return err
	}
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
			_, err := fmt.Fprintf(d.stdout, row, cli.Plain(l.Key), shortTime(l.At), cli.Plain(l.Applied), l.Bytes, cli.Plain(reason))
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && n == 0 && !d.json {
		_, err = fmt.Fprintln(d.stderr, errNoLetters)
	}
	return err
}

// shortTime leaves fractions of a second out.
func shortTime(t string) string {
	whole, _, cut := strings.Cut(cli.Plain(t), ".")
	if cut {
		whole += "Z"
	}
	return whole
}

type deadShowVerb struct{ dead }

func (d *deadShowVerb) Flags() []cli.Flag { return d.flags(usual, oneAnswer) }

func (d *deadShowVerb) Run(ctx context.Context) error {
	if len(d.args) != 1 {
		return cli.Usagef("name one KEY, got %s", cli.Quoted(d.args))
	}
	raw, err := d.ask(ctx, client.Request{Path: "/v1/dead-letters/" + url.PathEscape(d.args[0])})
	if err != nil {
		return err
	}
	if d.json {
		_, err = d.stdout.Write(raw)
		return err
	}
	var got shownLetter
	if err := json.Unmarshal(raw, &got); err != nil || got.Key == "" {
		return fmt.Errorf("the server answered with something else than a dead letter; is that a countmill?")
	}
	return got.print(d.stdout)
}

// A shownLetter is the answer of GET /v1/dead-letters/KEY.
type shownLetter struct {
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

func (l *shownLetter) print(out io.Writer) error {
	replay := map[string]string{"ids": "yes, under its own ids", "as_new": "with --as-new", "never": "no"}[l.Replay]
	if l.Why != "" {
		replay += ": " + l.Why
	}
	if l.Asked {
		replay += " (asked for)"
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range [][2]string{
		{"key", l.Key}, {"source", l.Source}, {"time", l.Time}, {"set aside", l.At}, {"reason", l.Reason},
		{"applied", l.Applied}, {"bytes", strconv.Itoa(l.Bytes)}, {"can be replayed", replay},
	} {
		fmt.Fprintf(table, "%s\t%s\n", row[0], cli.Plain(row[1]))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	switch {
	case l.Batch != nil:
		for _, p := range l.Batch.Parts {
			fmt.Fprintf(out, "\npart %s, %s\n", cli.Plain(p.ID), cli.Plain(p.Kind))
			for _, e := range p.Entries {
				fmt.Fprintf(out, "%+d\t%s\n", e.Delta, cli.Plain(e.Counter))
			}
		}
	case l.JSON != nil:
		fmt.Fprintf(out, "\n%s\n", cli.Plain(string(l.JSON)))
	default:
		fmt.Fprintf(out, "\nbase64 %s\n", cli.Plain(l.Base64))
	}
	return nil
}
