package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/transfer"
	"github.com/countmill/countmill/internal/transfer/appengine"
)

var adoptCommand = command{
	name:  "adopt",
	args:  "gae --project PROJECT",
	short: "import the sharded counters of App Engine code",
	long: `Imports the counters that the code of Google's article "Sharding counters" (App Engine)
keeps in Datastore, in any of its languages: Python (ndb and db), Java, JDO, Go, and the
first, simple versions of each. It never writes to Datastore.

  countmill adopt gae --project my-app --dry-run     shows what would be imported
  countmill adopt gae --project my-app

It reads all shards, keeps their sums in the file SNAPSHOT, and imports that file: see
"countmill help import". Run again, it imports the same file, and nothing counts twice,
whatever the source has become. Stopped while it reads, it reads anew. Without SNAPSHOT,
within the deduplication window, a counter is still not counted again: a sum that has changed is named as
a conflict, or becomes a dead letter, "id reused", where the server cannot say so at once.

While the application still counts with the old code, a sum is what the shards were when
each was read. To move without a gap:

  1. countmill adopt gae --project my-app
  2. let the application count with countmill
  3. countmill adopt gae --project my-app --since SNAPSHOT --snapshot REST
     when nothing writes to the old shards any more: it imports what they grew by

The Go code, as the article prints it, keeps one set of shards for all its counters and
never sets their Name: only their grand total can be told. It goes to the counter that
--go-total names. The simple versions have one counter without a name: --simple.
Two layouts with a counter of one name add up in it; --dry-run shows which.
`,
	flags: func() string {
		return `  --project PROJECT
      Id of the Google Cloud project. DATASTORE_EMULATOR_HOST works as everywhere.
  --database DATABASE
      Id of the database. Default: the project's default database.
  --namespace NAMESPACE
      Namespace of the old counters. Default: the default namespace.
  --java NAME
      A counter of Java's low-level code; may stand several times. Default: all that
      there are, found by a query of kinds, which the Firestore emulator has not: name
      them there, or say --java "" for none.
  --prefix PREFIX
      Put before every name. Default: nothing.
  --go-total NAME
      Counter for the grand total of Go's shards. Default GeneralCounterShard.
  --simple NAME
      Counter for the total of the simple versions. Default SimpleCounterShard.
  --skip-unknown
      Leave out entities of the shards' kinds that are in no layout of the article, and
      counters whose names or totals (beyond 2^53-1) one increment cannot have. Default:
      import nothing then.
  --dry-run
      Print what would be imported, and do not.
  --snapshot SNAPSHOT
      File of what is imported. Default countmill-adopt-PROJECT[-DATABASE][-NAMESPACE].ndjson.
  --since SNAPSHOT
      Import only what the counters grew by since this snapshot; may stand several times,
      once for each that was imported. Needs --snapshot.
  --dedup-window DURATION
      The server's --dedup-window. Default 192h. [COUNTMILL_DEDUP_WINDOW]
  --server URL
      The countmill to talk to. Default http://` + app.DefaultListen + `. [COUNTMILL_SERVER]
  --timeout DURATION
      How long one block may take, repeats included, and how long Datastore may be silent.
      Default 2m. [COUNTMILL_TIMEOUT]
  --json
      Write what was done, or would be, as JSON.
` + tokenHelp
	},
	run: runAdopt,
}

// An adopter imports the counters of one source.
type adopter struct {
	call
	source              appengine.Config
	client              *client
	timeout, window     time.Duration
	prefix              string
	goTotal, simple     string
	skipUnknown, dryRun bool
	snapshot            string
	since               []string
	json                bool
}

func runAdopt(ctx context.Context, c call) error {
	v := newVerbFlags("adopt", importTimeout)
	a := &adopter{call: c}
	a.flags(v)
	window := v.set.Duration("dedup-window", countmill.DefaultDedupWindow, "")
	args, err := v.parse(c)
	if err != nil {
		return err
	}
	if len(args) != 1 || args[0] != "gae" {
		return app.Usagef("name what to adopt (limit: gae), got %s", quoted(args))
	}
	if err := windowFlag(v, c, *window); err != nil {
		return err
	}
	a.timeout, a.window, a.json, a.source.Silence = v.timeout, *window, v.json, v.timeout
	a.source.Emulator, _ = c.lookup("DATASTORE_EMULATOR_HOST")
	if v.set.Changed("java") {
		a.source.JavaNames = withoutEmpty(a.source.JavaNames)
	}
	if err := a.check(); err != nil {
		return err
	}
	if a.client, err = v.client(); err != nil {
		return err
	}
	return a.run(ctx)
}

func (a *adopter) flags(v *verbFlags) {
	v.set.StringVar(&a.source.Project, "project", "", "")
	v.set.StringVar(&a.source.Database, "database", "", "")
	v.set.StringVar(&a.source.Namespace, "namespace", "", "")
	v.set.StringArrayVar(&a.source.JavaNames, "java", nil, "")
	v.set.StringVar(&a.prefix, "prefix", "", "")
	v.set.StringVar(&a.goTotal, "go-total", "GeneralCounterShard", "")
	v.set.StringVar(&a.simple, "simple", "SimpleCounterShard", "")
	v.set.BoolVar(&a.skipUnknown, "skip-unknown", false, "")
	v.set.BoolVar(&a.dryRun, "dry-run", false, "")
	v.set.StringVar(&a.snapshot, "snapshot", "", "")
	v.set.StringArrayVar(&a.since, "since", nil, "")
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

func (a *adopter) check() error {
	if a.source.Project == "" {
		return app.Usagef("--project is missing")
	}
	for flag, name := range map[string]string{"--go-total": a.goTotal, "--simple": a.simple} {
		if err := countmill.CheckCounter(a.prefix + name); err != nil {
			return app.Usagef("%s %q: %s", flag, a.prefix+name, err)
		}
	}
	if len(a.since) > 0 && a.snapshot == "" {
		return app.Usagef("--since needs --snapshot: a file of its own for what is imported now")
	}
	if a.snapshot == "" {
		parts := []string{"countmill-adopt", a.source.Project}
		for _, part := range []string{a.source.Database, a.source.Namespace} {
			if part != "" {
				parts = append(parts, part)
			}
		}
		a.snapshot = strings.NewReplacer(":", "_", "/", "_").Replace(strings.Join(parts, "-")) + ".ndjson"
	}
	return nil
}

func (a *adopter) run(ctx context.Context) error {
	_, err := os.Stat(a.snapshot)
	switch {
	case err == nil:
		fmt.Fprintf(a.stderr, "countmill: %s is there, so Datastore is not read again\n", a.snapshot)
		if a.dryRun {
			err = a.showSnapshot()
		}
	case errors.Is(err, fs.ErrNotExist):
		err = a.take(ctx)
	}
	if err != nil || a.dryRun {
		return err
	}
	im := &importer{call: a.call, client: a.client, timeout: a.timeout, window: a.window, name: a.snapshot, format: transfer.NDJSON}
	im.sameCaller = true // all rows have ids, which are nobody's
	done, err := im.run(ctx)
	if err != nil {
		return err
	}
	return done.print(a.call, a.json)
}
