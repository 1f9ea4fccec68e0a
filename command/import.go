package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/transfer"
)

var importCommand = command{
	path:  "import",
	group: "move",
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
block's number. Rows with ids count once by their ids, from any file.

Run again, it sends the file from its start: the server knows which rows it has. That
takes no longer than the first time. It has to be the same file, byte for byte, and the
same caller if tokens are used. The server remembers for its --dedup-window, so FILE.countmill-import
beside the file says when its import began; beyond the deduplication window it is refused, not counted
again. Remove that file only if the rows are to count again. Without it, as with -, the
rows count again after the deduplication window.

With --series each row needs a time, of the last nine years, and its counter a rule (countmill rule
add series) that keeps quarter hours for as long. The row then counts in the counter's series in that
quarter hour, and in its total. Sort the rows by time: each request has rows of one quarter hour. It
needs the scopes publish and admin.

Standard input, and any other input that is no plain file, is first copied to a temporary file of at
most 4 GiB.

A row whose id was counted before with another delta is not counted. If the server says so, the
import goes on with all other rows, and names some of those at its end.

Exit code 0: all rows are counted, but those that --skip-bad left out. 1: not all are, and
the error says how many. 2: the command line is wrong, and none is.
`,
	run: runImport,
}

func runImport(ctx context.Context, c call) error {
	if len(c.args) != 1 {
		return app.Usagef("name one FILE, or - for standard input, got %s", quoted(c.args))
	}
	im := transfer.Import{Timeout: c.timeout, Window: c.window, Name: c.args[0], Rejects: c.rejects, State: c.state,
		History: c.history, SameCaller: c.sameCaller, Stdin: c.stdin, Stderr: c.stderr, Progress: c.showProgress}
	if im.Name != "-" {
		if _, err := os.Stat(im.Name); err != nil {
			return fmt.Errorf("import: %w", err)
		}
	}
	var err error
	if im.Format, err = transfer.FormatOf(c.format, im.Name); err != nil {
		return app.Usagef("--format: %s", err)
	}
	if im.Client, err = c.client(client.WithTries(0)); err != nil {
		return err
	}
	if im.Token, err = c.sentToken(); err != nil {
		return err
	}
	done, err := im.Run(ctx)
	if errors.Is(err, transfer.ErrSameFile) {
		return app.Usagef("%s", err)
	}
	if err != nil {
		return err
	}
	return c.printImported(done)
}

// printImported reports an import. It returns an error if rows were dropped for their ids.
func (c call) printImported(d *transfer.Imported) error {
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
	return fmt.Errorf("%s: not counted, because other deltas were counted under their ids: %d of %d rows (%s%s)",
		d.File, d.Conflicts, d.Rows, strings.Join(d.Reused, "; "), more)
}

func (c call) importedText(d *transfer.Imported) error {
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
