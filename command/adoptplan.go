package command

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
	"strings"
	"text/tabwriter"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/transfer"
	"github.com/countmill/countmill/internal/transfer/appengine"
)

// An adopted counter is one that is going to be imported.
type adopted struct {
	Counter string   `json:"counter"`
	Layouts []string `json:"layouts"`
	Shards  int      `json:"shards"`
	Total   int64    `json:"total"` // in the source
	Delta   int64    `json:"delta"` // of the import
}

// take reads the source and writes the snapshot, or only shows what it would hold.
func (a *adopter) take(ctx context.Context) error {
	earlier, label, err := a.earlier()
	if err != nil {
		return err
	}
	p := startProgress(a.stderr, "reading", "shards", 0)
	a.source.Read = func(n int) { p.add(0, int64(n)) }
	found, err := appengine.Read(ctx, a.source)
	p.stop()
	if ctx.Err() != nil {
		err = errInterrupted
	}
	if errors.Is(err, appengine.ErrNoKinds) {
		err = fmt.Errorf(`%w; name Java's counters with --java, or say --java "" for none`, err)
	}
	if err != nil {
		return fmt.Errorf("nothing was counted: %w", err)
	}
	all, left, err := a.plan(found, earlier)
	if err != nil {
		return fmt.Errorf("nothing was counted: %w", err)
	}
	if len(all)+len(left) == 0 {
		return fmt.Errorf("nothing was counted: there are no counters of the article in namespace %q of %s; others are named by --namespace and --database",
			a.source.Namespace, a.source.Project)
	}
	if a.dryRun {
		if err := a.show(all); err != nil {
			return err
		}
	}
	a.tell(found, all)
	if len(left) > 0 {
		for _, line := range left {
			fmt.Fprintf(a.stderr, "countmill: left out: %s\n", line)
		}
		if !a.skipUnknown {
			return fmt.Errorf("nothing was counted: %d entities or counters cannot be adopted; --skip-unknown leaves them out", found.UnknownCount+len(left)-len(found.Unknown))
		}
	}
	if a.dryRun {
		return nil
	}
	return writeFile(a.snapshot, func(w io.Writer) error { return a.writeRows(w, all, label) })
}

// plan is what is going to be imported, by name, and what cannot be.
func (a *adopter) plan(found *appengine.Found, earlier map[string]int64) (all []*adopted, left []string, err error) {
	left = slices.Clone(found.Unknown)
	byName := make(map[string]*adopted)
	for _, t := range found.Totals() {
		name, layout := a.prefix+a.target(t), string(t.Layout)
		if t.Name == "" && t.Layout == appengine.Go {
			layout += " (grand total)"
		}
		if err := countmill.CheckCounter(name); err != nil {
			left = append(left, fmt.Sprintf("%s counter %q: %v", layout, name, err))
			continue
		}
		c := byName[name]
		if c == nil {
			c = &adopted{Counter: name}
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
		c.Delta = c.Total - earlier[name] // may wrap, far beyond what is asked next
		if wide := new(big.Int).Sub(big.NewInt(c.Total), big.NewInt(earlier[name])); wide.CmpAbs(big.NewInt(countmill.MaxDelta)) > 0 {
			// In several increments it would have several ids, and taken again with another
			// total one of them could be new.
			left = append(left, fmt.Sprintf("counter %q: %s is more than one increment can add (limit: 9007199254740991)", name, wide))
			delete(byName, name)
		}
	}
	slices.Sort(left)
	all = slices.SortedFunc(maps.Values(byName), func(a, b *adopted) int { return cmp.Compare(a.Counter, b.Counter) })
	return all, left, nil
}

func (a *adopter) target(t appengine.Total) string {
	switch {
	case t.Layout == appengine.Simple:
		return a.simple
	case t.Layout == appengine.Go && t.Name == "":
		return a.goTotal
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

// earlier is what the snapshots of --since hold together, and a label that they alone have.
func (a *adopter) earlier() (sums map[string]int64, label string, err error) {
	sums = make(map[string]int64)
	for _, path := range a.since {
		state, fresh, err := loadState(path+stateSuffix, time.Time{})
		if err != nil {
			return nil, "", err
		}
		if fresh || state.Finished.IsZero() {
			return nil, "", fmt.Errorf("--since %s: it was not imported to its end; do that first, by the same command as before", path)
		}
		label += state.SHA256
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
	r, err := transfer.NewReader(f, transfer.NDJSON, time.Now(), math.MaxInt64)
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
func (a *adopter) writeRows(out io.Writer, all []*adopted, label string) error {
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

func (a *adopter) id(counter, label string) string {
	h := sha256.New()
	for _, field := range []string{a.source.Project, a.source.Database, a.source.Namespace, counter, label} {
		h.Write(binary.AppendUvarint(nil, uint64(len(field)))) // a hash takes all that it is given
		h.Write([]byte(field))
	}
	return "adopt-gae-1:" + hex.EncodeToString(h.Sum(nil)[:16])
}

// show prints what would be imported.
func (a *adopter) show(all []*adopted) error {
	if a.json {
		return writeJSON(a.stdout, all)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "COUNTER\tLAYOUT\tSHARDS\tTOTAL\tIMPORT")
	for _, c := range all {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\n", c.Counter, strings.Join(c.Layouts, ", "), c.Shards, c.Total, c.Delta)
	}
	return w.Flush()
}

// showSnapshot prints what a snapshot that is there holds.
func (a *adopter) showSnapshot() error {
	sums := make(map[string]int64)
	if err := addSnapshot(a.snapshot, sums); err != nil {
		return fmt.Errorf("%s: %w", a.snapshot, err)
	}
	var all []*adopted
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		all = append(all, &adopted{Counter: name, Layouts: []string{"snapshot"}, Total: sums[name], Delta: sums[name]})
	}
	return a.show(all)
}

// tell says on standard error what a person should know of what was found.
func (a *adopter) tell(found *appengine.Found, all []*adopted) {
	const form = "2006-01-02T15:04:05.000Z"
	zero := 0
	for _, c := range all {
		if c.Delta == 0 {
			zero++
		}
		if slices.Contains(c.Layouts, string(appengine.Go)+" (grand total)") {
			fmt.Fprintf(a.stderr, "countmill: the article's Go code keeps one set of shards for all its counters: only their grand total can be adopted, as %q (--go-total)\n", c.Counter)
		}
	}
	fmt.Fprintf(a.stderr, "countmill: %d counters, %d of them with nothing to import; read from %s to %s\n",
		len(all), zero, found.Began.Format(form), found.Ended.Format(form))
}
