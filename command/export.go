package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"time"

	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/transfer"
)

// maxPage is the most counters of one GET /v1/counters.
const maxPage = 1000

var exportCommand = command{
	name:  "export",
	args:  "[PREFIX]",
	short: "write all totals as rows that import takes",
	long: `Writes the totals of all counters, or of those whose names begin with PREFIX, as rows of
counter and delta. Imported where none of them is, they are the same totals again:

  countmill export --output totals.csv
  countmill export page: --format ndjson | countmill import - --format ndjson --server http://other:8080

A counter whose total is 0 has no row. One beyond +-(2^53-1), which is the most that an
increment may add, has several. Ids, times and numbers of shards are not exported: the
importing server does not know what counted here.

The server answers in pages of at most 1,000 counters. The totals of a page are of one
moment, those of different pages are not: standard error says from when to when they are.
What is counted meanwhile may be in or not. An export that is stopped is begun anew; with
--output the file is there when it is whole. Exit code 1 as well when a counter's total
fits no 64 bits: it is named, and the others are written.
`,
	flags: func() string {
		return `  --format FORMAT
      csv or ndjson. Default: what the name of --output ends in, or csv.
  --output FILE
      Where to write. Default -, standard output.
  --server URL
      The countmill to talk to. Default http://` + app.DefaultListen + `. [COUNTMILL_SERVER]
  --timeout DURATION
      How long one page may take, repeats included. Default 15s. [COUNTMILL_TIMEOUT]
  --json
      Short for --format ndjson.
` + tokenHelp
	},
	run: runExport,
}

func runExport(ctx context.Context, c call) error {
	v := newVerbFlags("export", defaultTimeout)
	format := v.set.String("format", "", "")
	output := v.set.String("output", "-", "")
	args, err := v.parse(c)
	if err != nil {
		return err
	}
	if len(args) > 1 {
		return app.Usagef("name one PREFIX at most, got %s", quoted(args))
	}
	e := &exporter{timeout: v.timeout, query: url.Values{"limit": {fmt.Sprint(maxPage)}}}
	if len(args) == 1 {
		e.query.Set("prefix", args[0])
	}
	if e.format, err = exportFormat(*format, *output, v.json); err != nil {
		return err
	}
	if e.client, err = v.client(); err != nil {
		return err
	}
	bar := c.stderr
	if *output == "-" && isTerminal(c.stdout) {
		bar = io.Discard // the rows show how far it is, and a bar would stand among them
	}
	e.progress = startProgress(bar, "exporting", "counters", 0)
	if *output == "-" {
		err = e.write(ctx, c.stdout)
	} else {
		err = writeFile(*output, func(w io.Writer) error { return e.write(ctx, w) })
	}
	e.progress.stop()
	if err != nil {
		if ctx.Err() != nil {
			err = errInterrupted
		}
		return fmt.Errorf("the export is not whole: %w", err)
	}
	return e.report(c)
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
		return "", app.Usagef("--format: %s", err)
	}
	return f, nil
}

// An exporter writes totals page by page.
type exporter struct {
	client   *client
	timeout  time.Duration
	query    url.Values
	format   transfer.Format
	progress *progress

	counters, rows, zero int
	overflowed           []string
	first, last          string // as_of: they sort as they are
}

// A countersPage is what GET /v1/counters answers.
type countersPage struct {
	Totals []struct {
		Counter string      `json:"counter"`
		Total   json.Number `json:"total"`
		AsOf    string      `json:"as_of"`
	} `json:"totals"`
	Overflowed []string `json:"overflowed"`
	Next       string   `json:"next_page_token"`
}

func (e *exporter) write(ctx context.Context, out io.Writer) error {
	w := transfer.NewWriter(out, e.format)
	for {
		page, err := e.page(ctx)
		if err != nil {
			return err
		}
		if err := e.add(w, page); err != nil {
			return err
		}
		if page.Next == "" {
			return w.Flush()
		}
		e.query.Set("page_token", page.Next)
	}
}

// page reads a page, again while that may help.
func (e *exporter) page(ctx context.Context) (*countersPage, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	for try := 0; ; try++ {
		answer, err := e.client.get(ctx, max(e.timeout/2, time.Millisecond), "/v1/counters?"+e.query.Encode())
		if err == nil {
			page := &countersPage{}
			if err := json.Unmarshal(answer, page); err != nil || page.Totals == nil {
				return nil, errors.New("the server answered with something else than a page of counters; is that a countmill?")
			}
			return page, nil
		}
		if again, _ := classify(err); !again || ctx.Err() != nil {
			return nil, err
		}
		e.progress.wait(err.Error())
		if !pause(ctx, min(try, 5), err) {
			return nil, err
		}
	}
}

func (e *exporter) add(w *transfer.Writer, page *countersPage) error {
	for _, t := range page.Totals {
		total, err := t.Total.Int64()
		if err != nil {
			return fmt.Errorf("the server answered with the total %q of %q: %w", t.Total, t.Counter, err)
		}
		n, err := w.Total(t.Counter, total)
		if err != nil {
			return err
		}
		if e.rows += n; n == 0 {
			e.zero++
		} else {
			e.counters++
		}
		if e.first == "" {
			e.first, e.last = t.AsOf, t.AsOf
		}
		e.first, e.last = min(e.first, t.AsOf), max(e.last, t.AsOf)
	}
	e.overflowed = append(e.overflowed, page.Overflowed...)
	e.progress.add(0, int64(len(page.Totals)))
	return nil
}

// report says on standard error what was written: the rows may be on standard output.
func (e *exporter) report(c call) error {
	fmt.Fprintf(c.stderr, "countmill: %d counters in %d rows", e.counters, e.rows)
	if e.zero > 0 {
		fmt.Fprintf(c.stderr, ", %d left out as their total is 0", e.zero)
	}
	if e.first != "" {
		fmt.Fprintf(c.stderr, ", as of %s to %s", e.first, e.last)
	}
	fmt.Fprintln(c.stderr)
	if n := len(e.overflowed); n > 0 {
		return fmt.Errorf("%d counters are left out whose totals do not fit 64 bits: %q", n, e.overflowed[:min(n, badShown)])
	}
	return nil
}
