// Package adopt makes importable snapshots of the counters that App Engine code keeps in Datastore.
package adopt

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/big"
	"os"
	"slices"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/transfer"
	"github.com/countmill/countmill/internal/transfer/appengine"
)

// A Counter is one to be imported.
type Counter struct {
	Counter string   `json:"counter"`
	Layouts []string `json:"layouts"`
	Shards  int      `json:"shards"`
	Total   int64    `json:"total"` // in the source
	Delta   int64    `json:"delta"` // of the import
}

// An Adoption makes a snapshot of the counters of one source, to be imported.
type Adoption struct {
	Source          appengine.Config
	Prefix          string // before every name
	GoTotal, Simple string // counters for totals without a name
	SkipUnknown     bool   // leave out entities and counters that cannot be adopted; else they are an error
	Snapshot        string // the file to write
	Since           []string

	Progress transfer.StartProgress
	Log      io.Writer // lines for a person
}

// Take reads the source and writes the snapshot. With dryRun it writes none. The counters are there
// beside an error, too, if the source was read.
func (a *Adoption) Take(ctx context.Context, dryRun bool) ([]*Counter, error) {
	all, label, err := a.read(ctx)
	if err != nil {
		return all, fmt.Errorf("nothing was counted: %w", err)
	}
	if dryRun {
		return all, nil
	}
	return all, transfer.WriteFile(a.Snapshot, func(w io.Writer) error { return a.writeRows(w, all, label) })
}

func (a *Adoption) read(ctx context.Context) (all []*Counter, label string, err error) {
	earlier, label, err := a.earlier()
	if err != nil {
		return nil, "", err
	}
	p := a.Progress("reading", "shards", 0)
	a.Source.Read = func(n int) { p.Add(0, int64(n)) }
	found, err := appengine.Read(ctx, a.Source)
	p.Stop()
	if ctx.Err() != nil {
		err = transfer.ErrInterrupted
	}
	if errors.Is(err, appengine.ErrNoKinds) {
		err = fmt.Errorf(`%w; name Java's counters with --java, or pass --java "" for none`, err)
	}
	if err != nil {
		return nil, "", err
	}
	all, left, err := a.plan(found, earlier)
	if err != nil {
		return nil, "", err
	}
	if len(all)+len(left) == 0 {
		return nil, "", fmt.Errorf("there are no counters of the article in namespace %q of %s; --namespace and --database name others",
			a.Source.Namespace, a.Source.Project)
	}
	a.report(found, all)
	for _, line := range left {
		fmt.Fprintf(a.Log, "countmill: left out: %s\n", line)
	}
	if len(left) > 0 && !a.SkipUnknown {
		return all, "", fmt.Errorf("%d entities or counters cannot be adopted; --skip-unknown leaves them out", found.UnknownCount+len(left)-len(found.Unknown))
	}
	return all, label, nil
}

// Taken is the counters of the snapshot that is there.
func (a *Adoption) Taken() ([]*Counter, error) {
	sums := make(map[string]int64)
	if err := addSnapshot(a.Snapshot, sums); err != nil {
		return nil, fmt.Errorf("%s: %w", a.Snapshot, err)
	}
	var all []*Counter
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		all = append(all, &Counter{Counter: name, Layouts: []string{"snapshot"}, Total: sums[name], Delta: sums[name]})
	}
	return all, nil
}

// plan returns the counters to import, by name, and a line for each that cannot be.
func (a *Adoption) plan(found *appengine.Found, earlier map[string]int64) (all []*Counter, left []string, err error) {
	left = slices.Clone(found.Unknown)
	byName := make(map[string]*Counter)
	for _, t := range found.Totals() {
		name, layout := a.Prefix+a.target(t), string(t.Layout)
		if t.Name == "" && t.Layout == appengine.Go {
			layout += " (grand total)"
		}
		if err := countmill.CheckCounter(name); err != nil {
			left = append(left, fmt.Sprintf("%s counter %q: %v", layout, name, err))
			continue
		}
		c := byName[name]
		if c == nil {
			c = &Counter{Counter: name}
			byName[name] = c
		}
		if c.Total, err = plus(c.Total, t.Sum); err != nil {
			return nil, nil, fmt.Errorf("counter %q: %w", name, err)
		}
		c.Layouts, c.Shards = append(c.Layouts, layout), c.Shards+t.Shards
	}
	for _, name := range slices.Sorted(maps.Keys(earlier)) { // so that the error names the same one each time
		if byName[name] == nil {
			return nil, nil, fmt.Errorf("counter %q of --since is not in the source any more", name)
		}
	}
	for name, c := range byName {
		c.Delta = c.Total - earlier[name] // may wrap, far beyond the limit of the next line
		if wide := new(big.Int).Sub(big.NewInt(c.Total), big.NewInt(earlier[name])); wide.CmpAbs(big.NewInt(countmill.MaxDelta)) > 0 {
			// In several increments it would have several ids, and taken again with another
			// total one of them could be new.
			left = append(left, fmt.Sprintf("counter %q: %s is more than one increment can add (limit: 9007199254740991)", name, wide))
			delete(byName, name)
		}
	}
	slices.Sort(left)
	all = slices.SortedFunc(maps.Values(byName), func(a, b *Counter) int { return cmp.Compare(a.Counter, b.Counter) })
	return all, left, nil
}

func (a *Adoption) target(t appengine.Total) string {
	switch {
	case t.Layout == appengine.Simple:
		return a.Simple
	case t.Layout == appengine.Go && t.Name == "":
		return a.GoTotal
	}
	return t.Name
}

func plus(a, b int64) (int64, error) {
	sum := a + b
	if (sum > a) != (b > 0) {
		return 0, countmill.ErrOverflow
	}
	return sum, nil
}

// earlier sums up the snapshots of --since, and returns a label of their own.
func (a *Adoption) earlier() (sums map[string]int64, label string, err error) {
	sums = make(map[string]int64)
	for _, path := range a.Since {
		sum, err := transfer.ImportedAll(path)
		if err != nil {
			return nil, "", fmt.Errorf("--since %s: %w", path, err)
		}
		label += sum
		if err := addSnapshot(path, sums); err != nil {
			return nil, "", fmt.Errorf("--since %s: %w", path, err)
		}
	}
	return sums, label, nil
}

func addSnapshot(path string, sums map[string]int64) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := transfer.NewReader(f, transfer.Form{Format: transfer.NDJSON}, transfer.Within(time.Now(), math.MaxInt64))
	if err != nil {
		return err
	}
	for {
		row, err := r.Next()
		if errors.Is(err, io.EOF) {
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
func (a *Adoption) writeRows(out io.Writer, all []*Counter, label string) error {
	w := transfer.NewWriter(out, transfer.NDJSON)
	for _, c := range all {
		if c.Delta == 0 {
			continue
		}
		if err := w.Increment(countmill.Increment{Counter: c.Counter, Delta: c.Delta, ID: a.id(c.Counter, label)}); err != nil {
			return err
		}
	}
	return w.Flush()
}

func (a *Adoption) id(counter, label string) string {
	h := sha256.New()
	for _, field := range []string{a.Source.Project, a.Source.Database, a.Source.Namespace, counter, label} {
		h.Write(binary.AppendUvarint(nil, uint64(len(field)))) // a hash takes all that it is given
		h.Write([]byte(field))
	}
	return "adopt-gae-1:" + hex.EncodeToString(h.Sum(nil)[:16])
}

// report writes lines about the source for a person.
func (a *Adoption) report(found *appengine.Found, all []*Counter) {
	const form = "2006-01-02T15:04:05.000Z"
	zero := 0
	for _, c := range all {
		if c.Delta == 0 {
			zero++
		}
		if slices.Contains(c.Layouts, string(appengine.Go)+" (grand total)") {
			fmt.Fprintf(a.Log, "countmill: the article's Go code keeps one set of shards for all its counters: only their grand total can be adopted, as %q (--go-total)\n", c.Counter)
		}
	}
	fmt.Fprintf(a.Log, "countmill: %d counters, %d of them with nothing to import; read from %s to %s\n",
		len(all), zero, found.Began.Format(form), found.Ended.Format(form))
}
