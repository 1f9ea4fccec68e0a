package command

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
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
	Path:  "dead list",
	Short: "list dead letters, and why they could not be counted",
	New:   func() cli.Verb { return new(deadListVerb) },
}

var deadShowCommand = cli.Command{
	Path:  "dead show",
	Args:  "KEY",
	Short: "show the contents of a dead letter",
	New:   func() cli.Verb { return new(deadShowVerb) },
}

var deadReplayCommand = cli.Command{
	Path:  "dead replay",
	Args:  "KEY...",
	Short: "count dead letters after all",
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
	Path:  "dead discard",
	Args:  "KEY...",
	Short: "remove dead letters uncounted",
	Long: `A discarded dead letter is never counted, even if a replay was asked for. "removed" says that
an aggregator had already taken it: it was counted, or may be within the next minute.
`,
	New: func() cli.Verb { return new(deadDiscardVerb) },
}

// A dead verb is about dead letters.
type dead struct {
	calling
	all, asNew, yes bool
}

// chosen checks the arguments of a verb that takes keys or --all.
func (d *dead) chosen() error {
	switch {
	case d.all && len(d.args) > 0:
		return cli.Usagef("--all takes no KEY, got %q", d.args[0])
	case !d.all && len(d.args) == 0:
		return cli.Usagef("KEY is missing; --all for every dead letter")
	}
	return nil
}

func (d *dead) allFlag() cli.Flag { return cli.Switch("all", &d.all, "All dead letters.") }

func (d *dead) yesFlag() cli.Flag {
	return cli.Switch("yes", &d.yes, "Do not ask. --all, --as-new and discard need it if no person can be asked.")
}

// pages calls visit with each page of letters until limit of them have been seen; 0 for all.
func (d *dead) pages(ctx context.Context, limit int, visit func(page []client.DeadLetter) error) error {
	token := ""
	for seen := 0; ; {
		most := 100
		if limit > 0 {
			most = min(limit-seen, most)
		}
		page, err := asked(ctx, &d.calling, func(ctx context.Context, cl *client.Client) (client.DeadPage, error) {
			return cl.DeadLetters(ctx, token, most)
		})
		if err != nil {
			return err
		}
		if err := visit(page.DeadLetters); err != nil {
			return err
		}
		seen += len(page.DeadLetters)
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
	n := 0
	const row = "%-32s  %-20s  %-7s  %8v  %s\n"
	err := d.pages(ctx, d.limit, func(page []client.DeadLetter) error {
		if d.json {
			return d.writeJSON()
		}
		if n == 0 && len(page) > 0 {
			fmt.Fprintf(d.stdout, row, "KEY", "SET ASIDE", "APPLIED", "BYTES", "REASON")
		}
		n += len(page)
		for _, l := range page {
			reason := l.Reason
			if l.ReplayAsked {
				reason = "(replay asked for) " + reason
			}
			_, err := fmt.Fprintf(d.stdout, row, cli.Plain(l.Key), shortStamp(l.At), cli.Plain(l.Applied), l.Bytes, cli.Plain(reason))
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

type deadShowVerb struct{ dead }

func (d *deadShowVerb) Run(ctx context.Context) error {
	if len(d.args) != 1 {
		return cli.Usagef("name one KEY, got %s", cli.Quoted(d.args))
	}
	return shown(ctx, &d.calling, func(ctx context.Context, cl *client.Client) (client.DeadLetterShown, error) {
		return cl.DeadLetter(ctx, d.args[0])
	},
		func(l client.DeadLetterShown) error { return printDeadLetter(d.stdout, &l) })
}

func printDeadLetter(out io.Writer, l *client.DeadLetterShown) error {
	replay := map[string]string{"ids": "yes, under its own ids", "as_new": "with --as-new", "never": "no"}[l.Replay]
	if l.Why != "" {
		replay += ": " + l.Why
	}
	if l.ReplayAsked {
		replay += " (asked for)"
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, row := range [][2]string{
		{"key", l.Key}, {"source", l.Source}, {"time", stamp(l.Time)}, {"set aside", stamp(l.At)}, {"reason", l.Reason},
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
		fmt.Fprintf(out, "\nbase64 %s\n", base64.StdEncoding.EncodeToString(l.Base64))
	}
	return nil
}

// maxDeadKeys is the most letters of one POST /v1/dead-letters/replay or discard.
const maxDeadKeys = 100

// A deadTally counts what became of letters.
type deadTally struct{ all, asked, refused int }

// errNoDeadLetters: --all means none.
var errNoDeadLetters = errors.New("no dead letters")

type deadReplayVerb struct{ dead }

func (d *deadReplayVerb) Flags() []cli.Flag {
	return d.flags(usual, oneAnswer, d.allFlag(),
		cli.Switch("as-new", &d.asNew, "Count dead letters as new whose ids are forgotten, lost or taken."), d.yesFlag())
}

func (d *deadReplayVerb) Run(ctx context.Context) error {
	if err := d.chosen(); err != nil {
		return err
	}
	if d.all || d.asNew {
		if err := d.sure(ctx, "Replay"); err != nil {
			return d.orNone(err)
		}
	}
	t, err := d.act(ctx, func(ctx context.Context, cl *client.Client, keys []string) (client.DeadOutcomes, error) {
		return cl.ReplayDeadLetters(ctx, d.asNew, keys...)
	})
	if err != nil {
		return d.orNone(d.soFar(t, err))
	}
	if t.asked > 0 && !d.json {
		fmt.Fprintf(d.stderr, "%d to be counted by an aggregator within half a minute or so; `countmill dead list` shows the rest\n", t.asked)
	}
	if t.refused > 0 {
		return fmt.Errorf("%d of %d letters cannot be replayed like that", t.refused, t.asked+t.refused)
	}
	return nil
}

type deadDiscardVerb struct{ dead }

func (d *deadDiscardVerb) Flags() []cli.Flag {
	return d.flags(usual, oneAnswer, d.allFlag(), d.yesFlag())
}

func (d *deadDiscardVerb) Run(ctx context.Context) error {
	if err := d.chosen(); err != nil {
		return err
	}
	if err := d.sure(ctx, "Remove uncounted, for good,"); err != nil {
		return d.orNone(err)
	}
	t, err := d.act(ctx, func(ctx context.Context, cl *client.Client, keys []string) (client.DeadOutcomes, error) {
		return cl.DiscardDeadLetters(ctx, keys...)
	})
	return d.orNone(d.soFar(t, err))
}

// orNone: without dead letters all of them are done, and standard error says so.
func (d *dead) orNone(err error) error {
	if !errors.Is(err, errNoDeadLetters) {
		return err
	}
	if d.json {
		return nil
	}
	_, err = fmt.Fprintln(d.stderr, errNoDeadLetters)
	return err
}

// soFar says how far it came before an error. A repeat does no harm.
func (d *dead) soFar(t deadTally, err error) error {
	if err == nil || t.all == 0 {
		return err
	}
	return fmt.Errorf("after %d letters: %w; repeat it: nothing is done twice", t.all, err)
}

// sure lets a person confirm, and says what there is to lose.
func (d *dead) sure(ctx context.Context, verb string) error {
	if d.yes {
		return nil
	}
	if d.person == nil {
		return cli.Confirm(d.person, d.stderr, verb+" dead letters?")
	}
	letters, unknown := 0, 0
	err := d.countDeadLetters(ctx, func(page []client.DeadLetter) {
		for _, l := range page {
			letters++
			if l.Applied != "no" {
				unknown++
			}
		}
	})
	if err != nil {
		return err
	}
	if letters == 0 {
		return errNoDeadLetters
	}
	question := fmt.Sprintf("%s %d dead letters?", verb, letters)
	if d.asNew && unknown > 0 {
		question = fmt.Sprintf("%d of them were maybe counted (applied: unknown). Those whose ids are forgotten or lost may then count twice. %s", unknown, question)
	}
	return cli.Confirm(d.person, d.stderr, question)
}

// countDeadLetters calls count with the letters that are meant.
func (d *dead) countDeadLetters(ctx context.Context, count func([]client.DeadLetter)) error {
	if d.all {
		return d.pages(ctx, 0, func(page []client.DeadLetter) error { count(page); return nil })
	}
	for _, key := range d.args {
		l, err := asked(ctx, &d.calling, func(ctx context.Context, cl *client.Client) (client.DeadLetterShown, error) {
			return cl.DeadLetter(ctx, key)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		count([]client.DeadLetter{{Key: l.Key, Applied: l.Applied}})
	}
	return nil
}

// An action does something with the letters of keys.
type action func(ctx context.Context, cl *client.Client, keys []string) (client.DeadOutcomes, error)

// act does it with the keys, or with those of all letters, in lots.
func (d *dead) act(ctx context.Context, do action) (t deadTally, err error) {
	if !d.all {
		for lot := range slices.Chunk(d.args, maxDeadKeys) {
			if err := d.post(ctx, do, lot, &t); err != nil {
				return t, err
			}
		}
		return t, nil
	}
	found := false
	err = d.pages(ctx, 0, func(page []client.DeadLetter) error {
		if len(page) == 0 {
			return nil
		}
		found = true
		lot := make([]string, len(page))
		for i, l := range page {
			lot[i] = l.Key
		}
		return d.post(ctx, do, lot, &t)
	})
	if err == nil && !found {
		err = errNoDeadLetters
	}
	return t, err
}

func (d *dead) post(ctx context.Context, do action, keys []string, t *deadTally) error {
	got, err := asked(ctx, &d.calling, func(ctx context.Context, cl *client.Client) (client.DeadOutcomes, error) { return do(ctx, cl, keys) })
	if err != nil {
		return err
	}
	for _, o := range got.DeadLetters {
		t.all++
		switch o.Result {
		case "asked":
			t.asked++
		case "refused":
			t.refused++
		}
		switch {
		case o.Result == "gone":
			o.Why = "it was counted or discarded, or never there"
		case o.MaybeCountedBefore:
			o.Why = "as new; it may have been counted before, and would count twice"
		case o.AsNew:
			o.Why = "as new"
		}
		if !d.json {
			fmt.Fprintln(d.stdout, strings.TrimSuffix(cli.Plain(o.Key)+"\t"+cli.Plain(o.Result)+": "+cli.Plain(o.Why), ": "))
		}
	}
	return d.writeJSON()
}
