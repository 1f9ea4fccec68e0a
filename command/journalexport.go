package command

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/transfer/journalfile"
	"github.com/countmill/countmill/store"
	"github.com/countmill/countmill/wire"
)

var journalExportCommand = cli.Command{
	Path:  "journal export",
	Args:  "[NAME|PREFIX*]",
	Short: "write the entries of a period to a file",
	Long: `Writes the entries from --from on and before --to, of the counter NAME, of the counters that begin
with PREFIX, or of all counters, in the order of their keys:

  countmill journal export 'billing:*' --from 2026-11-01T00:00:00Z --to 2026-12-01T00:00:00Z --output nov.ndjson

It writes NDJSON: an entry has key, time, counter, delta, part and sender, as GET /v1/journal has them. An
entry that is not known to have a sender has none.

The same period gives the same bytes, as long as its entries neither expire nor are erased. A period must be
over: with datastore: or postgres: the journal is complete up to five and a half minutes ago.

A stopped export starts again from the beginning; with --output the file is there when it is whole. Export a
long journal in several periods.

A token needs the scope admin, and no prefixes unless NAME is given.
`,
	New: func() cli.Verb { return new(journalExportVerb) },
}

type journalExportVerb struct {
	calling
	output, from, to string
}

func (c *journalExportVerb) Flags() []cli.Flag {
	return c.flags(usual, "",
		cli.New("from", "TIME", cli.Day(&c.from), "The first moment of the period, as 2006-01-02T15:04:05Z, or a date, which begins in UTC. At most six digits follow the seconds.").Default("none; needed"),
		cli.New("to", "TIME", cli.Day(&c.to), "The moment, or the date, after the period. The journal must be complete up to it.").Default("none; needed"),
		outputFlag(&c.output),
	)
}

func (c *journalExportVerb) Run(ctx context.Context) error {
	if len(c.args) > 1 {
		return cli.Usagef("name one counter or prefix at most, got %s", cli.Quoted(c.args))
	}
	x := &journalfile.Export{Timeout: c.timeout, Progress: progressOn(c.stderr)}
	var err error
	if x.Period, err = c.period(strings.Join(c.args, "")); err != nil {
		return err
	}
	if x.Client, err = c.client(client.WithTries(0)); err != nil {
		return err
	}
	var n int64
	if err := c.export(ctx, c.output, &x.Progress, func(w io.Writer) (err error) {
		n, err = x.Run(ctx, w)
		return err
	}); err != nil {
		return err
	}
	fmt.Fprintf(c.stderr, "countmill: %s\n", counted(n, "entry"))
	if n == 0 {
		c.warnNoEntries(x.Period.Counters)
	}
	return nil
}

// warnNoEntries warns that an export has nothing of a counter or a prefix.
func (c *call) warnNoEntries(counters string) {
	prefix, isPrefix := strings.CutSuffix(counters, "*")
	switch {
	case counters == "":
	case isPrefix:
		fmt.Fprintf(c.stderr, "countmill: the journal has no entries of counters that begin with %q in this period\n", prefix)
	default:
		fmt.Fprintf(c.stderr, "countmill: the journal has no entries of the counter %q in this period; for all counters that begin so, write %q\n", counters, counters+"*")
	}
}

// period is the part of the journal that the flags and the argument name.
func (c *journalExportVerb) period(counters string) (p journalfile.Period, err error) {
	if counters != "" {
		if err := store.CheckPattern(counters); err != nil {
			return p, cli.Usagef("NAME|PREFIX*: %s", err)
		}
	}
	p.Counters = counters
	for _, side := range []struct {
		name, text string
		to         *time.Time
	}{{"from", c.from, &p.From}, {"to", c.to, &p.To}} {
		if side.text == "" {
			return p, cli.Usagef("--%s is missing: name both ends of the period", side.name)
		}
		at, err := time.Parse(time.RFC3339Nano, side.text)
		switch {
		case err != nil:
			return p, cli.Usagef("--%s: %s", side.name, err)
		case !wire.InRange(at):
			return p, cli.Usagef("--%s: must be from 1970 to 2261, got %q", side.name, side.text)
		case at != at.Truncate(time.Microsecond):
			return p, cli.Usagef("--%s: must have at most six digits after the seconds, got %q", side.name, side.text)
		}
		*side.to = at.UTC()
	}
	if !p.From.Before(p.To) {
		return p, cli.Usagef("--to: must be after --from, got %s and %s", c.to, c.from)
	}
	return p, nil
}
