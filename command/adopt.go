package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/transfer"
	"github.com/countmill/countmill/internal/transfer/adopt"
	"github.com/countmill/countmill/internal/transfer/appengine"
)

var adoptFamily = cli.Command{
	Path:  "adopt",
	Group: "move",
	Args:  "gae --project PROJECT",
	Short: "import the counters of other systems",
}

var adoptCommand = cli.Command{
	Path:  "adopt gae",
	Args:  "--project PROJECT",
	Short: "import the sharded counters of App Engine code",
	Long: `Imports the counters that the code of Google's article "Sharding counters" (App Engine)
keeps in Datastore, in any of its languages: Python (ndb and db), Java, JDO, Go, and the
first, simple versions of each. It never writes to Datastore.

  countmill adopt gae --project my-app --dry-run     shows the counters
  countmill adopt gae --project my-app

It reads all shards, keeps their sums in the file SNAPSHOT, and imports that file: see
"countmill help import". Run again, it imports the same file, and nothing counts twice,
even if the source has changed. Stopped while it reads, it reads anew. Without SNAPSHOT,
within the deduplication window, a counter still does not count again: a changed sum is
reported as a conflict, or becomes a dead letter, "id reused", if the server finds it later.

While the application still counts with the old code, a sum is what the shards were when
each was read. To move without a gap:

  1. countmill adopt gae --project my-app
  2. let the application count with countmill
  3. countmill adopt gae --project my-app --since SNAPSHOT --snapshot REST
     when nothing writes to the old shards any more: it imports what they grew by

The Go code, as the article prints it, keeps one set of shards for all its counters and
never sets their Name: only their grand total can be read. It goes to the counter that
--go-total names. The simple versions have one counter without a name: --simple.
Two layouts with a counter of one name add up in it; --dry-run shows which.
`,
	New: func() cli.Verb { return new(adoptVerb) },
}

type adoptVerb struct {
	calling
	silence                           time.Duration
	window                            time.Duration
	source                            appengine.Config
	prefix, goTotal, simple, snapshot string
	since                             []string
	skipUnknown, dryRun               bool
}

func (c *adoptVerb) Flags() []cli.Flag {
	c.goTotal, c.simple = "GeneralCounterShard", "SimpleCounterShard"
	return withSilence(&c.silence, 2*time.Minute, "The longest silence of Datastore while its shards are read.", c.flags(transferTimeout, importedJSON,
		namePrefixFlag(&c.prefix).In(moveSection),
		windowFlag(&c.window).In(moveSection),
		cli.New("project", "PROJECT", cli.Any(&c.source.Project), "Id of the Google Cloud project. DATASTORE_EMULATOR_HOST works as in Google's libraries.").Default("none; needed"),
		cli.New("database", "DATABASE", cli.Any(&c.source.Database), "Id of the database.").Default("the project's default database"),
		cli.New("namespace", "NAMESPACE", cli.Any(&c.source.Namespace), "Namespace of the old counters.").Default("the default namespace"),
		cli.New("java", "NAME", cli.List{To: &c.source.JavaNames},
			"A counter of Java's low-level code; may be repeated. The Firestore emulator has no query of kinds: name the counters, or pass --java \"\" for none.").Default("all, by a query of kinds"),
		cli.New("go-total", "NAME", cli.Any(&c.goTotal), "Counter for the grand total of Go's shards."),
		cli.New("simple", "NAME", cli.Any(&c.simple), "Counter for the total of the simple versions."),
		cli.Switch("skip-unknown", &c.skipUnknown, "Leave out entities of the shards' kinds that are in no layout of the article, and counters whose names or totals (beyond 2^53-1) one increment cannot have. Without it, adopt imports nothing then."),
		cli.Switch("dry-run", &c.dryRun, "Print what adopt would import, and import nothing."),
		cli.New("snapshot", "SNAPSHOT", cli.Any(&c.snapshot), "File for the rows to import.").Default("countmill-adopt-PROJECT[-DATABASE][-NAMESPACE].ndjson"),
		cli.New("since", "SNAPSHOT", cli.List{To: &c.since}, "Import only the growth of the counters since this snapshot. Repeat it for each snapshot that was imported. Needs --snapshot.").Default("none"),
	))
}

func (c *adoptVerb) Run(ctx context.Context) error {
	if len(c.args) > 0 {
		return cli.ErrArguments(c.args[0])
	}
	a := &adopt.Adoption{Source: c.source, Prefix: c.prefix, GoTotal: c.goTotal, Simple: c.simple, SkipUnknown: c.skipUnknown,
		Snapshot: c.snapshot, Since: c.since, Progress: progressOn(c.stderr), Log: c.stderr}
	a.Source.Silence = c.silence
	a.Source.Emulator, _ = c.lookup("DATASTORE_EMULATOR_HOST")
	if c.Given("java") {
		a.Source.JavaNames = withoutEmpty(a.Source.JavaNames)
	}
	if err := checkAdoption(a); err != nil {
		return err
	}
	cl, err := c.client(client.WithTries(0))
	if err != nil {
		return err
	}
	token, err := c.sentToken()
	if err != nil {
		return err
	}
	if err := c.take(ctx, a); err != nil || c.dryRun {
		return err
	}
	done, err := transfer.Import{Client: cl, Token: token, Timeout: c.timeout, Window: c.window, Name: a.Snapshot, Form: transfer.Form{Format: transfer.NDJSON},
		SameCaller: true, // all rows have ids, which no caller owns
		Stderr:     c.stderr, Progress: progressOn(c.stderr)}.Run(ctx)
	if err != nil {
		return err
	}
	return c.printImported(done)
}

// withoutEmpty is never nil.
func withoutEmpty(names []string) []string {
	all := []string{}
	for _, name := range names {
		if name != "" {
			all = append(all, name)
		}
	}
	return all
}

// checkAdoption refuses flags that do not fit, and names the snapshot.
func checkAdoption(a *adopt.Adoption) error {
	if a.Source.Project == "" {
		return cli.Usagef("--project is missing")
	}
	for flag, name := range map[string]string{"--go-total": a.GoTotal, "--simple": a.Simple} {
		if err := countmill.CheckCounter(a.Prefix + name); err != nil {
			return cli.Usagef("%s %q: %s", flag, a.Prefix+name, err)
		}
	}
	if len(a.Since) > 0 && a.Snapshot == "" {
		return cli.Usagef("--since needs --snapshot: a file of its own for the new rows")
	}
	if a.Snapshot == "" {
		parts := []string{"countmill-adopt", a.Source.Project}
		for _, part := range []string{a.Source.Database, a.Source.Namespace} {
			if part != "" {
				parts = append(parts, part)
			}
		}
		a.Snapshot = strings.NewReplacer(":", "_", "/", "_").Replace(strings.Join(parts, "-")) + ".ndjson"
	}
	return nil
}

// take makes the snapshot unless it is there, and shows it if nothing is to be imported.
func (c *adoptVerb) take(ctx context.Context, a *adopt.Adoption) error {
	var all []*adopt.Counter
	_, err := os.Stat(a.Snapshot)
	switch {
	case err == nil:
		fmt.Fprintf(c.stderr, "countmill: %s is there, so Datastore is not read again\n", a.Snapshot)
		if c.dryRun {
			all, err = a.Taken()
		}
	case errors.Is(err, fs.ErrNotExist):
		all, err = a.Take(ctx, c.dryRun)
	}
	if c.dryRun && (err == nil || len(all) > 0) {
		err = errors.Join(c.showAdopted(all), err)
	}
	return err
}

// showAdopted prints the counters to import.
func (c *adoptVerb) showAdopted(all []*adopt.Counter) error {
	if c.json {
		return writeJSON(c.stdout, all)
	}
	w := tabwriter.NewWriter(c.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "COUNTER\tLAYOUT\tSHARDS\tTOTAL\tIMPORT")
	for _, a := range all {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\n", a.Counter, strings.Join(a.Layouts, ", "), a.Shards, a.Total, a.Delta)
	}
	return w.Flush()
}
