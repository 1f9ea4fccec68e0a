package command

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/transfer"
)

var exportCommand = cli.Command{
	Path:  "export",
	Group: "move",
	Args:  "[PREFIX]",
	Short: "write all totals as rows that import takes",
	Long: `Writes the totals of all counters, or of those whose names begin with PREFIX, as rows of
counter and delta. Imported where none of them is, they are the same totals again:

  countmill export --output totals.csv
  countmill export page: --format ndjson | countmill import - --format ndjson --server http://other:8080

A counter whose total is 0 has no row. One beyond +-(2^53-1), which is the most that an
increment may add, has several. Ids, times and numbers of shards are not exported: the
importing server does not know what counted here. Nor are the rows of series: GET /v1/series
with Accept: text/csv has them.

The server answers in pages of at most 1,000 counters. The totals of a page are of one
moment, those of different pages are not: standard error says from when to when they are.
Increments during the export may be in it. A stopped export starts again from the beginning; with
--output the file is there when it is whole. Exit code 1 as well when a counter's total
fits no 64 bits: it is named, and the others are written.
`,
	New: func() cli.Verb { return new(exportVerb) },
}

type exportVerb struct {
	calling
	format, output string
}

func (c *exportVerb) Flags() []cli.Flag {
	return c.flags(usual, "Short for --format ndjson.",
		cli.New("format", "FORMAT", cli.Text{To: &c.format, Of: formats}, "csv or ndjson.").Default("by the end of --output, or csv"),
		outputFlag(&c.output),
	)
}

func (c *exportVerb) Run(ctx context.Context) error {
	if len(c.args) > 1 {
		return cli.Usagef("name one PREFIX at most, got %s", cli.Quoted(c.args))
	}
	e := transfer.Export{Timeout: c.timeout, Prefix: strings.Join(c.args, ""), Progress: progressOn(c.stderr)}
	var err error
	if e.Format, err = exportFormat(c.format, c.output, c.json); err != nil {
		return err
	}
	if e.Client, err = c.client(client.WithTries(0)); err != nil {
		return err
	}
	var done *transfer.Exported
	if err := c.export(ctx, c.output, &e.Progress, func(w io.Writer) (err error) {
		done, err = e.Run(ctx, w)
		return err
	}); err != nil {
		return err
	}
	return c.reportExport(done)
}

// export writes to a file, whole or not at all, or for - to standard output.
func (c *call) export(ctx context.Context, output string, progress *transfer.StartProgress, write func(io.Writer) error) (err error) {
	if output == "-" {
		if cli.IsTerminal(c.stdout) { // the rows show how far it is, and a bar would be among them
			*progress = progressOn(io.Discard)
		}
		err = write(c.stdout)
	} else {
		err = transfer.WriteFile(output, write)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = transfer.ErrInterrupted
		}
		return fmt.Errorf("the export is not whole: %w", err)
	}
	return nil
}

func exportFormat(format, output string, ndjson bool) (transfer.Format, error) {
	if ndjson && format == "" {
		format = string(transfer.NDJSON)
	}
	if output == "-" && format == "" {
		format = string(transfer.CSV)
	}
	f, err := transfer.FormatOf(format, output)
	if err != nil {
		return "", cli.Usagef("--format: %s", err)
	}
	return f, nil
}

// reportExport sums up on standard error: the rows may be on standard output.
func (c *exportVerb) reportExport(e *transfer.Exported) error {
	fmt.Fprintf(c.stderr, "countmill: %s in %s", counted(e.Counters, "counter"), counted(e.Rows, "row"))
	if e.Zero > 0 {
		fmt.Fprintf(c.stderr, ", %d left out as their total is 0", e.Zero)
	}
	if e.First != "" {
		fmt.Fprintf(c.stderr, ", as of %s to %s", e.First, e.Last)
	}
	fmt.Fprintln(c.stderr)
	if e.Counters+e.Zero+len(e.Overflowed) == 0 {
		c.warnNoMatch(strings.Join(c.args, ""))
	}
	if n := len(e.Overflowed); n > 0 {
		return fmt.Errorf("%s left out, because of a total that does not fit 64 bits: %q", counted(n, "counter"), e.Overflowed[:min(n, transfer.BadShown)])
	}
	return nil
}
