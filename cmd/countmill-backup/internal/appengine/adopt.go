package appengine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/api/option"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/transfer"
)

const help = `Writes the counters that the code of Google's article "Sharding counters" (App Engine)
keeps in Datastore, in any of its languages, into a file that "countmill import" counts.
It never writes to Datastore.

  countmill-backup adopt gae --project my-app --dry-run     shows the counters
  countmill-backup adopt gae --project my-app --snapshot all.ndjson
  countmill import all.ndjson

Rows have ids of the source and the counter. So a snapshot that is taken again does not
count again within the deduplication window: a changed sum is reported as a conflict.

To move without a gap: do the above, let the application count with countmill, and once
nothing writes to the old shards any more import what they grew by:

  countmill-backup adopt gae --project my-app --since all.ndjson --snapshot rest.ndjson
  countmill import rest.ndjson

The Go code, as the article prints it, keeps one set of shards for all its counters and
never sets their Name: only their grand total can be read, into --go-total. The simple
versions have one counter without a name: --simple. Two layouts with a counter of one
name add up in it; --dry-run shows which. DATASTORE_EMULATOR_HOST names an emulator.

`

// An adoption makes a snapshot of the counters of one source.
type adoption struct {
	Source
	goTotal, simple     string // counters for totals without a name
	skipUnknown, dryRun bool
	snapshot            string // the file to write
	since               []string
	stdout, stderr      io.Writer
}

// An adopted counter is one to be imported.
type adopted struct {
	counter string
	layouts []string
	shards  int
	total   int64 // in the source
	delta   int64 // of the import
}

// Main runs `adopt gae` with the arguments after it, and returns its exit code.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return run(ctx, args, stdout, stderr)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer, options ...option.ClientOption) int {
	a := &adoption{Source: Source{options: options}, stdout: stdout, stderr: stderr}
	code := 2
	err := a.parse(args)
	if err == nil {
		code, err = 1, a.run(ctx)
	}
	if errors.Is(err, flag.ErrHelp) || err == nil {
		return 0
	}
	fmt.Fprintf(stderr, "countmill-backup: %s\n", strings.ReplaceAll(err.Error(), "\n", "; "))
	return code
}

func (a *adoption) parse(args []string) error {
	f := flag.NewFlagSet("adopt gae", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&a.Project, "project", "", "`id` of the Google Cloud project; needed")
	f.StringVar(&a.Database, "database", "", "`id` of the database (default the project's default database)")
	f.StringVar(&a.Namespace, "namespace", "", "`namespace` of the old counters")
	f.Func("java", "`name` of a counter of Java's low-level code; may be repeated, and \"\" means none (default all, by a query of kinds)", func(name string) error {
		if a.JavaNames = slices.Concat([]string{}, a.JavaNames); name != "" {
			a.JavaNames = append(a.JavaNames, name)
		}
		return nil
	})
	f.StringVar(&a.goTotal, "go-total", kindGeneral, "`counter` for the grand total of Go's shards")
	f.StringVar(&a.simple, "simple", kindSimple, "`counter` for the total of the simple versions")
	f.BoolVar(&a.skipUnknown, "skip-unknown", false, "leave out what cannot be adopted: entities in no layout of the article, and counters whose names or totals one increment cannot have")
	f.BoolVar(&a.dryRun, "dry-run", false, "print the counters and write no file")
	f.StringVar(&a.snapshot, "snapshot", "", "`file` to write; needed without --dry-run")
	f.Func("since", "write only the growth since this `snapshot`, whose rows were all imported; may be repeated", func(path string) error {
		a.since = append(a.since, path)
		return nil
	})
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			fmt.Fprint(a.stdout, help)
			f.SetOutput(a.stdout)
			f.PrintDefaults()
		}
		return err
	}
	for name, counter := range map[string]string{"--go-total": a.goTotal, "--simple": a.simple} {
		if err := countmill.CheckCounter(counter); err != nil {
			return fmt.Errorf("%s %q: %w", name, counter, err)
		}
	}
	switch {
	case f.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	case a.Project == "":
		return errors.New("--project is missing")
	case a.snapshot == "" && !a.dryRun:
		return errors.New("--snapshot is missing: the file to write")
	}
	return nil
}

// run reads the source and writes the snapshot, or shows it in a dry run.
func (a *adoption) run(ctx context.Context) error {
	if _, err := os.Stat(a.snapshot); err == nil && !a.dryRun {
		return fmt.Errorf("%s exists; import it with \"countmill import\", or name another file", a.snapshot)
	}
	all, label, err := a.adopt(ctx)
	if a.dryRun {
		return errors.Join(a.show(all), err)
	}
	if err != nil {
		return fmt.Errorf("nothing was written: %w", err)
	}
	return transfer.WriteFile(a.snapshot, func(w io.Writer) error { return a.writeRows(w, all, label) })
}

// show prints the counters to import.
func (a *adoption) show(all []*adopted) error {
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "COUNTER\tLAYOUT\tSHARDS\tTOTAL\tIMPORT")
	for _, c := range all {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\n", c.counter, strings.Join(c.layouts, ", "), c.shards, c.total, c.delta)
	}
	return w.Flush()
}

// adopt reads the source. The counters are there beside an error, too, if the source was read.
func (a *adoption) adopt(ctx context.Context) (all []*adopted, label string, err error) {
	earlier, label, err := a.earlier()
	if err != nil {
		return nil, "", err
	}
	f, err := a.read(ctx)
	if err != nil {
		return nil, "", err
	}
	all, left, err := a.plan(f, earlier)
	if err != nil {
		return nil, "", err
	}
	if len(all)+len(left) == 0 {
		return nil, "", fmt.Errorf("there are no counters of the article in namespace %q of %s; --namespace and --database name others", a.Namespace, a.Project)
	}
	a.report(f, all)
	for _, line := range left {
		fmt.Fprintf(a.stderr, "countmill-backup: left out: %s\n", line)
	}
	if len(left) > 0 && !a.skipUnknown {
		return all, "", fmt.Errorf("%d entities or counters cannot be adopted; --skip-unknown leaves them out", f.unknownCount+len(left)-len(f.unknown))
	}
	return all, label, nil
}

// plan returns the counters to import, by name, and a line for each that cannot be.
func (a *adoption) plan(f *found, earlier map[string]int64) (all []*adopted, left []string, err error) {
	left = slices.Clone(f.unknown)
	byName := make(map[string]*adopted)
	for _, t := range f.ordered() {
		name, layout := a.target(t), string(t.layout)
		if t.name == "" && t.layout == layoutGo {
			layout += " (grand total)"
		}
		if err := countmill.CheckCounter(name); err != nil {
			left = append(left, fmt.Sprintf("%s counter %q: %v", layout, name, err))
			continue
		}
		c := byName[name]
		if c == nil {
			c = &adopted{counter: name}
			byName[name] = c
		}
		if c.total, err = plus(c.total, t.sum); err != nil {
			return nil, nil, fmt.Errorf("counter %q: %w", name, err)
		}
		c.layouts, c.shards = append(c.layouts, layout), c.shards+t.shards
	}
	for _, name := range slices.Sorted(maps.Keys(earlier)) { // so that the error names the same one each time
		if byName[name] == nil {
			return nil, nil, fmt.Errorf("counter %q of --since is not in the source any more", name)
		}
	}
	for name, c := range byName {
		c.delta = c.total - earlier[name] // may wrap, far beyond the limit of the next line
		if wide := new(big.Int).Sub(big.NewInt(c.total), big.NewInt(earlier[name])); wide.CmpAbs(big.NewInt(countmill.MaxDelta)) > 0 {
			// In several increments it would have several ids, and taken again with another
			// total one of them could be new.
			left = append(left, fmt.Sprintf("counter %q: %s is more than one increment can add (limit: 9007199254740991)", name, wide))
			delete(byName, name)
		}
	}
	slices.Sort(left)
	all = slices.SortedFunc(maps.Values(byName), func(a, b *adopted) int { return cmp.Compare(a.counter, b.counter) })
	return all, left, nil
}

func (a *adoption) target(t *total) string {
	switch {
	case t.layout == layoutSimple:
		return a.simple
	case t.layout == layoutGo && t.name == "":
		return a.goTotal
	}
	return t.name
}

func plus(a, b int64) (int64, error) {
	sum := a + b
	if (sum > a) != (b > 0) {
		return 0, countmill.ErrOverflow
	}
	return sum, nil
}

// earlier sums up the snapshots of --since, and returns a label of their own.
func (a *adoption) earlier() (sums map[string]int64, label string, err error) {
	sums = make(map[string]int64)
	for _, path := range a.since {
		sum, err := transfer.ImportedAll(path)
		if err != nil {
			return nil, "", fmt.Errorf("--since %s: %w", path, err)
		}
		label += sum
		if err := addSnapshot(path, sum, sums); err != nil {
			return nil, "", fmt.Errorf("--since %s: %w", path, err)
		}
	}
	return sums, label, nil
}

// addSnapshot adds the rows of a file, if its SHA-256 is still that of its import.
func addSnapshot(path, imported string, sums map[string]int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	hash := sha256.New()
	r, err := transfer.NewReader(io.TeeReader(f, hash), transfer.Form{Format: transfer.NDJSON}, transfer.Within(time.Now(), math.MaxInt64))
	if err != nil {
		return err
	}
	for {
		row, err := r.Next()
		if errors.Is(err, io.EOF) {
			if hex.EncodeToString(hash.Sum(nil)) != imported {
				return errors.New("it has changed since its import: restore it")
			}
			return nil
		}
		if err = errors.Join(err, row.Err); err == nil {
			sums[row.Inc.Counter], err = plus(sums[row.Inc.Counter], row.Inc.Delta)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", row.Line, err)
		}
	}
}

// writeRows writes increments whose ids are of the source and the counter, not of the
// total: a snapshot that is taken again does not count again.
func (a *adoption) writeRows(out io.Writer, all []*adopted, label string) error {
	w := transfer.NewWriter(out, transfer.NDJSON)
	for _, c := range all {
		if c.delta == 0 {
			continue
		}
		if err := w.Increment(countmill.Increment{Counter: c.counter, Delta: c.delta, ID: a.id(c.counter, label)}); err != nil {
			return err
		}
	}
	return w.Flush()
}

func (a *adoption) id(counter, label string) string {
	h := sha256.New()
	for _, field := range []string{a.Project, a.Database, a.Namespace, counter, label} {
		h.Write(binary.AppendUvarint(nil, uint64(len(field)))) // a hash takes all that it is given
		h.Write([]byte(field))
	}
	return "adopt-gae-1:" + hex.EncodeToString(h.Sum(nil)[:16])
}

// report writes lines about the source for a person.
func (a *adoption) report(f *found, all []*adopted) {
	const form = "2006-01-02T15:04:05.000Z"
	zero := 0
	for _, c := range all {
		if c.delta == 0 {
			zero++
		}
		if slices.Contains(c.layouts, string(layoutGo)+" (grand total)") {
			fmt.Fprintf(a.stderr, "countmill-backup: the article's Go code keeps one set of shards for all its counters: only their grand total can be adopted, as %q (--go-total)\n", c.counter)
		}
	}
	fmt.Fprintf(a.stderr, "countmill-backup: %d counters, %d of them with nothing to import; read from %s to %s\n",
		len(all), zero, f.began.Format(form), f.ended.Format(form))
}
