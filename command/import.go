package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/transfer"
	"github.com/countmill/countmill/store"
)

var importCommand = cli.Command{
	Path:  "import",
	Group: "move",
	Args:  "FILE|-",
	Short: "count the rows of a file, each once",
	Long: `Counts each row of a CSV or NDJSON file once, whatever happens on the way: when it is
stopped, or the server is, run it again with the same file, and what was counted before
is not counted again.

  countmill import stock.csv
  countmill export | countmill import - --format csv --server http://other:8080
  zcat clicks.ndjson.gz | countmill import - --format ndjson

CSV begins with a line that names the columns: counter and delta, perhaps id and time. --columns
takes them from columns with other names. Columns are separated by commas, semicolons or tabs.
NDJSON has the objects that POST /v1/increments takes, one a line.

  countmill import pages.csv --columns 'counter=Page path,delta=Views' --prefix page: --dry-run

The file is UTF-8. Deltas may have a sign or .0. Times may be dates, dates
and times, or seconds or milliseconds since 1970; --tz is their zone if they name none. A value that
has two meanings, such as 1,234 or 10/11/2026, cannot be counted. --dry-run prints what would be.

The file is read twice. First it is checked: a row that cannot be counted is named with
its line, and then nothing is counted; --skip-bad leaves such rows out. Then it is sent in
blocks of at most 10,000 rows, each under an Idempotency-Key of the file's SHA-256, the flags
that say how it is read, and the block's number. Rows with ids count once by their ids, from any file.

Run again, it sends the file from its start: the server knows which rows it has. That
takes no longer than the first time. It has to be the same file, byte for byte, read by the same
flags, and the same caller if tokens are used. The server remembers for its --dedup-window, which
begins with the import, or, without --series, at the oldest time of a row. After it the file is refused,
not counted again: put rows that are not counted into a file of their own, without times or with --series.
FILE.countmill-import beside the file says when its import began. Remove it only if the rows are to count
again. Without it, as with -, the rows count again after the deduplication window.

With --series each row needs a time, of the last nine years, and its counter a rule (countmill rule
add series) that keeps quarter hours for as long. The row then counts in the counter's series in that
quarter hour, and in its total. Sort the rows by time: each request has rows of one quarter hour. It
needs the scopes publish and admin, and no prefixes. --complete FROM/TO says that the file has everything
that the counters of its rules counted in that period: then its rows in series are not partial. A row that is
left out may not be of that period, and the period is not stored if ids were counted with other deltas.

Standard input, and any other input that is no plain file, is first copied to a temporary file of at
most 4 GiB.

A row whose id was counted before with another delta is not counted. If the server says so, the
import goes on with all other rows, and names some of those at its end.

Exit code 0: all rows are counted, but those that --skip-bad left out. 1: not all are, and
the error says how many. 2: the command line is wrong, and none is.
`,
	New: func() cli.Verb { return new(importVerb) },
}

type importVerb struct {
	calling
	format, columns, tz, prefix, rejects, state, complete string
	dryRun, history, sameCaller                           bool
	window                                                time.Duration
}

func (c *importVerb) Flags() []cli.Flag {
	c.tz, c.window = "UTC", countmill.DefaultDedupWindow
	return c.flags(2*time.Minute, "Write the result as JSON.",
		cli.New("format", "FORMAT", cli.Text{To: &c.format, Of: formats}, "csv or ndjson.").Default("by the end of the file's name"),
		cli.New("columns", "COLUMNS", cli.Any(&c.columns),
			"Names of CSV columns, such as counter=path,delta=hits,time=date. Other columns are ignored; without delta each row counts 1.").Default("those named counter, delta, id and time; no others"),
		cli.New("tz", "ZONE", cli.Any(&c.tz), "The time zone of dates and times that name none, such as Asia/Kolkata."),
		cli.New("prefix", "PREFIX", cli.Any(&c.prefix), "Text to put before every name.").Default("none"),
		cli.Switch("dry-run", &c.dryRun, "Print the increments that would be counted, as NDJSON, and count nothing."),
		cli.New("skip-bad", "REJECTS", cli.Any(&c.rejects), "Leave out rows that cannot be counted, and write them to the file REJECTS: NDJSON with line, reason and row.").Default("refuse the file"),
		cli.New("state", "STATE", cli.Any(&c.state), "File that remembers when the import began.").Default("FILE.countmill-import; none for -"),
		cli.Switch("series", &c.history, "Each row counts in the series of its counter at its own time, which may be years ago."),
		cli.New("complete", "FROM/TO", cli.Any(&c.complete),
			"A period of which the file has all counts of all counters of its rules, as two times, or dates in --tz. With --series: rows of that period are not partial.").Default("none"),
		cli.Switch("same-caller", &c.sameCaller, "Go on with another token than the import began with, if both have the same name."),
		cli.New("dedup-window", "DURATION", cli.Duration{To: &c.window, Min: time.Second, Max: store.MaxWindow}, "The server's --dedup-window.").FromEnv(),
	)
}

func (c *importVerb) Run(ctx context.Context) error {
	if len(c.args) != 1 {
		return cli.Usagef("name one FILE, or - for standard input, got %s", cli.Quoted(c.args))
	}
	im := transfer.Import{Timeout: c.timeout, Window: c.window, Name: c.args[0], Rejects: c.rejects, State: c.state,
		SameCaller: c.sameCaller, Stdin: c.stdin, Stderr: c.stderr, Progress: progressOn(c.stderr)}
	if im.Name != "-" {
		if _, err := os.Stat(im.Name); err != nil {
			return fmt.Errorf("import: %w", err)
		}
	}
	var err error
	if im.Form, err = c.importForm(im.Name); err != nil {
		return err
	}
	if im.Complete, err = c.completePeriod(im.Form.Zone); err != nil {
		return err
	}
	if c.dryRun {
		im.DryRun = c.stdout
	}
	if im.Client, err = c.client(client.WithTries(0)); err != nil {
		return err
	}
	if im.Token, err = c.sentToken(); err != nil {
		return err
	}
	done, err := im.Run(ctx)
	if errors.Is(err, transfer.ErrSameFile) {
		return cli.Usagef("%s", err)
	}
	if err != nil {
		return err
	}
	if c.dryRun {
		return c.dryRunText(done)
	}
	return c.printImported(done)
}

// importForm is the form of the file, as flags say.
func (c *importVerb) importForm(file string) (f transfer.Form, err error) {
	f.Prefix, f.Series = c.prefix, c.history
	if f.Format, err = transfer.FormatOf(c.format, file); err != nil {
		return f, cli.Usagef("--format: %s", err)
	}
	if f.Zone, err = zone(c.tz); err != nil {
		return f, err
	}
	if c.Given("columns") {
		if f.Format != transfer.CSV {
			return f, cli.Usagef("--columns is given without CSV (limit: with --format csv)")
		}
		if f.Columns, err = transfer.ParseColumns(c.columns); err != nil {
			return f, cli.Usagef("--columns: %s", err)
		}
	}
	return f, nil
}

// completePeriod reads --complete.
func (c *importVerb) completePeriod(zone *time.Location) (p store.Period, err error) {
	if !c.Given("complete") {
		return p, nil
	}
	if !c.history {
		return p, cli.Usagef("--complete is given without --series")
	}
	from, to, _ := strings.Cut(c.complete, "/")
	if p.From, err = timeOrDate("complete", from, zone); err != nil {
		return p, err
	}
	if p.To, err = timeOrDate("complete", to, zone); err != nil {
		return p, err
	}
	if !p.From.Before(p.To) || p.To.After(time.Now()) {
		return p, cli.Usagef("--complete: must be like 2026-01-01/2026-11-01, a period that is over, got %q", c.complete)
	}
	return p, nil
}

// printImported reports an import. It returns an error if rows were dropped for their ids.
func (c *importVerb) printImported(d *transfer.Imported) error {
	var err error
	if c.json {
		err = json.NewEncoder(c.stdout).Encode(d)
	} else {
		err = c.importedText(d)
	}
	if err != nil || d.Conflicts == 0 {
		return err
	}
	more := ""
	if d.Conflicts > int64(len(d.Reused)) {
		more = "; ..."
	}
	period := ""
	if c.complete != "" {
		period = "; so the period of --complete is not stored"
	}
	return fmt.Errorf("%s: not counted, because other deltas were counted under their ids: %d of %d rows (%s%s)%s",
		d.File, d.Conflicts, d.Rows, strings.Join(d.Reused, "; "), more, period)
}

// dryRunText sums up on standard error: the increments are on standard output.
func (c *importVerb) dryRunText(d *transfer.Imported) error {
	fmt.Fprintf(c.stderr, "countmill: %s would be counted", counted(d.Accepted, "row"))
	if d.LeftOut > 0 {
		fmt.Fprintf(c.stderr, ", %d left out and written to %s", d.LeftOut, d.Rejects)
	}
	_, err := fmt.Fprintln(c.stderr, "; nothing was")
	return err
}

func (c *importVerb) importedText(d *transfer.Imported) error {
	if d.Accepted == 1 {
		fmt.Fprintf(c.stdout, "%s: 1 row is counted, once", d.File)
	} else {
		fmt.Fprintf(c.stdout, "%s: %d rows are counted, each once", d.File, d.Accepted)
	}
	if d.LeftOut > 0 {
		fmt.Fprintf(c.stdout, ", %d left out and written to %s", d.LeftOut, d.Rejects)
	}
	if d.Repeated {
		fmt.Fprintf(c.stdout, "; what the import that began %s counted was not counted again", d.Began.Format(time.RFC3339))
	}
	_, err := fmt.Fprintln(c.stdout)
	return err
}
