package command

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/transfer"
)

// importTimeout is how long a block may take, repeats included: a server that is being
// replaced is back by then.
const importTimeout = 2 * time.Minute

var importCommand = command{
	name:  "import",
	args:  "FILE|-",
	short: "count the rows of a file, each once",
	long: `Counts each row of a CSV or NDJSON file once, whatever happens on the way: when it is
stopped, or the server is, run it again with the same file, and what was counted before
is not counted again.

  countmill import stock.csv
  countmill export | countmill import - --format csv --server http://other:8080
  zcat clicks.ndjson.gz | countmill import - --format ndjson

CSV begins with a line that names the columns: counter and delta, perhaps id and time.
NDJSON has the objects that POST /v1/increments takes, one a line.

The file is read twice. First it is checked: a row that cannot be counted is named with
its line, and then nothing is counted; --skip-bad leaves such rows out. Then it is sent in
blocks of at most 10,000 rows, each under an Idempotency-Key of the file's SHA-256 and the
block's number. Rows with ids are known by those, wherever else they come.

Run again, it sends the file from its start, as the server knows best what it has. That
takes no longer than the first time. It has to be the same file, byte for byte, and with
tokens the same caller. The server remembers for its --dedup-window, so FILE.countmill-import
beside the file says when its import began; beyond the deduplication window it is refused, not counted
again. Remove that file only if the rows are to count again. Without it, as with -, the
rows count again after the deduplication window.

- and whatever else is no plain file is first copied to a temporary file, of at most 4 GiB.

A row whose id was counted before with another delta is not counted. If the server says so, the
import goes on with all other rows, and names some of those at its end.

Exit code 0: all rows are counted, but those that --skip-bad left out. 1: not all are, and
the error says how many. 2: the command line is wrong, and none is.
`,
	flags: func() string {
		return `  --format FORMAT
      csv or ndjson. Default: what the file's name ends in.
  --skip-bad REJECTS
      Leave out rows that cannot be counted, and write them to the file REJECTS: NDJSON
      with line, reason and row.
  --state STATE
      Where to keep when the import began. Default FILE.countmill-import; none for -.
  --same-caller
      The token is another one than the first import had, but has the same name.
  --dedup-window DURATION
      The server's --dedup-window. Default 192h. [COUNTMILL_DEDUP_WINDOW]
  --server URL
      The countmill to talk to. Default http://` + app.DefaultListen + `. [COUNTMILL_SERVER]
  --timeout DURATION
      How long one block may take, repeats included. Default 2m. [COUNTMILL_TIMEOUT]
  --json
      Write what was done as JSON.
` + tokenHelp
	},
	run: runImport,
}

func runImport(ctx context.Context, c call) error {
	v := newVerbFlags("import", importTimeout)
	format := v.set.String("format", "", "")
	rejects := v.set.String("skip-bad", "", "")
	state := v.set.String("state", "", "")
	same := v.set.Bool("same-caller", false, "")
	window := v.set.Duration("dedup-window", countmill.DefaultDedupWindow, "")
	args, err := v.parse(c)
	if err != nil {
		return err
	}
	if len(args) != 1 {
		return app.Usagef("name one FILE, or - for standard input, got %s", quoted(args))
	}
	if err := windowFlag(v, c, *window); err != nil {
		return err
	}
	im := &importer{call: c, timeout: v.timeout, window: *window, name: args[0], rejects: *rejects, statePath: *state, sameCaller: *same}
	if args[0] != "-" {
		if _, err := os.Stat(args[0]); err != nil {
			return fmt.Errorf("import: %w", err)
		}
	}
	if im.format, err = transfer.FormatOf(*format, args[0]); err != nil {
		return app.Usagef("--format: %s", err)
	}
	if im.client, err = v.client(); err != nil {
		return err
	}
	done, err := im.run(ctx)
	if err != nil {
		return err
	}
	return done.print(c, v.json)
}

// windowFlag takes the variable that the server has as well.
func windowFlag(v *verbFlags, c call, window time.Duration) error {
	if text, ok := c.lookup(app.Env("dedup-window")); ok && text != "" && !v.set.Changed("dedup-window") {
		if err := v.set.Set("dedup-window", text); err != nil {
			return app.Usagef("%s: must be a duration such as 192h, got %q", app.Env("dedup-window"), text)
		}
		return nil
	}
	if window <= 0 {
		return app.Usagef("--dedup-window: must be more than 0s, got %s", window)
	}
	return nil
}

// imported is what an import has done.
type imported struct {
	File     string    `json:"file"`
	SHA256   string    `json:"sha256"`
	Began    time.Time `json:"began"`    // the first import of this file
	Repeated bool      `json:"repeated"` // it was not this one
	Rows     int64     `json:"rows"`
	Accepted int64     `json:"accepted"`
	LeftOut  int64     `json:"left_out"`
	Rejects  string    `json:"rejects,omitempty"`

	Conflicts int64    `json:"conflicts,omitempty"` // rows that were not counted: other deltas were under their ids
	Reused    []string `json:"conflicting,omitempty"`
}

// print reports the import. It returns an error if rows were dropped for their ids.
func (d *imported) print(c call, asJSON bool) error {
	write := d.text
	if asJSON {
		write = func(c call) error { return json.NewEncoder(c.stdout).Encode(d) }
	}
	if err := write(c); err != nil || d.Conflicts == 0 {
		return err
	}
	more := ""
	if d.Conflicts > int64(len(d.Reused)) {
		more = "; ..."
	}
	return fmt.Errorf("%s: not counted, because other deltas were counted under their ids: %d of %d rows (%s%s)",
		d.File, d.Conflicts, d.Rows, strings.Join(d.Reused, "; "), more)
}

func (d *imported) text(c call) error {
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

// openRows opens the file to import. What cannot be read twice is copied first.
func openRows(ctx context.Context, c call, name string) (file *os.File, spooled bool, err error) {
	if name == "-" {
		file, err = spool(ctx, c.stdin, maxSpool)
		return file, true, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, false, err
	}
	info, err := f.Stat()
	switch {
	case err == nil && info.Mode().IsRegular():
		return f, false, nil
	case err == nil && info.IsDir():
		err = fmt.Errorf("%s is a directory", name)
	case err == nil:
		file, err = spool(ctx, f, maxSpool)
	}
	_ = f.Close() // it was only read
	return file, true, err
}
