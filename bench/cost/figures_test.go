package cost

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

var (
	fullFlag     = flag.Bool("full", false, "measure what docs/evidence/benchmarks.md has; otherwise less")
	unlockedFlag = flag.Bool("unlocked", false, "TestReads: readers do not wait for each other")
)

// TestMain prints the measurements.
func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	if testing.Verbose() {
		fmt.Print(tables())
	}
	os.Exit(code)
}

// figures are the cost of a run.
type figures struct {
	Increments int64
	Messages   int64
	Entries    int64 // in them
	Bytes      int64 // of them
	Shards     int
	Markers    int
	Records    int
	Workers    int
	Moved      int // by moves of series
	Moves      int
	Commits    int
	Reads      int
}

// folded is the number of entities that folds wrote: shards and markers.
func (f figures) folded() int { return f.Shards + f.Markers }

// written is every entity written.
func (f figures) written() int { return f.folded() + f.Records + f.Workers + f.Moved }

func (f figures) perMillion(n int) float64 { return float64(n) * 1e6 / float64(f.Increments) }

func (p *pipeline) figures() figures {
	var f figures
	for _, pub := range p.pubs {
		s := pub.Stats()
		f.Messages, f.Entries, f.Bytes = f.Messages+s.Messages, f.Entries+s.Entries, f.Bytes+s.Bytes
	}
	for _, n := range p.sent {
		f.Increments += n
	}
	var written, read int64
	for _, agg := range p.aggs {
		s := agg.Stats()
		written, read = written+s.EntitiesWritten, read+s.EntitiesRead
	}
	c := p.store.Counts()
	f.Shards, f.Markers, f.Records = c.Wrote["shard"], c.Wrote["marker"], c.Wrote["record"]
	f.Moves, f.Moved = c.TxWrote["shard"], c.TxWrote["shard"]+c.TxWrote["day"]
	f.Commits, f.Reads, f.Workers = c.Folds, c.Read["record"]+c.Read["marker"], p.store.Calls("write worker")
	if int(written) != f.folded()+f.Records || int(read) != f.Reads {
		p.t.Errorf("the aggregators say they wrote %d entities and read %d; the store has %d and %d", written, read, f.folded()+f.Records, f.Reads)
	}
	return f
}

// since returns the difference to earlier figures.
func (f figures) since(e figures) figures {
	return figures{
		Increments: f.Increments - e.Increments, Messages: f.Messages - e.Messages, Entries: f.Entries - e.Entries, Bytes: f.Bytes - e.Bytes,
		Shards: f.Shards - e.Shards, Markers: f.Markers - e.Markers, Records: f.Records - e.Records, Workers: f.Workers - e.Workers,
		Moved: f.Moved - e.Moved, Moves: f.Moves - e.Moves,
		Commits: f.Commits - e.Commits, Reads: f.Reads - e.Reads,
	}
}

// A row is one line of a table.
type row struct {
	Table string
	Label string
	X     float64
	// Floor is the fewest entities that a fold of the same windows could write, 0 if that is not
	// needed.
	Floor int
	figures
}

var rows struct {
	sync.Mutex
	all   []row
	reads []readFigures
}

func keep(table, label string, x float64, floor int, f figures) {
	rows.Lock()
	defer rows.Unlock()
	rows.all = append(rows.all, row{table, label, x, floor, f})
}

func keepReads(label string, f readFigures) {
	rows.Lock()
	defer rows.Unlock()
	f.Label, f.Per1000 = label, f.perThousand()
	rows.reads = append(rows.reads, f)
}

func measured() []row {
	rows.Lock()
	defer rows.Unlock()
	return slices.SortedStableFunc(slices.Values(rows.all), func(a, b row) int {
		return cmp.Or(strings.Compare(a.Table, b.Table), cmp.Compare(a.X, b.X))
	})
}

// tables returns all rows in Markdown.
func tables() string {
	var w strings.Builder
	table := ""
	for _, r := range measured() {
		if r.Table != table {
			table = r.Table
			fmt.Fprintf(&w, "\n## %s\n\n", table)
			fmt.Fprintln(&w, "| | increments | entries a message | entities per million: shards | markers | records | all | times the floor | per commit | reads per million | commits per million | messages per million |")
			fmt.Fprintln(&w, "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
		}
		fmt.Fprintln(&w, r.line())
	}
	fmt.Fprintf(&w, "\n## totals: %d clients, %d counters of %d shards, %s old at most\n\n", readClients, readCounters, readShards, readStaleness)
	fmt.Fprintln(&w, "| | totals served | entities read per 1,000 totals |")
	fmt.Fprintln(&w, "| --- | ---: | ---: |")
	for _, r := range rows.reads {
		fmt.Fprintf(&w, "| %s | %d | %.0f |\n", r.Label, r.Served, r.Per1000)
	}
	return w.String()
}

func (r row) line() string {
	floor := "–"
	if r.Floor > 0 {
		floor = fmt.Sprintf("%.2f", float64(r.folded())/float64(r.Floor))
	}
	of := func(n int) string { return fmt.Sprintf("%.0f", r.perMillion(n)) }
	return fmt.Sprintf("| %s | %d | %.0f | %s | %s | %s | %s | %s | %.1f | %s | %s | %s |", r.Label, r.Increments,
		float64(r.Entries)/float64(max(r.Messages, 1)), of(r.Shards), of(r.Markers), of(r.Records), of(r.written()), floor,
		float64(r.folded())/float64(max(r.Commits, 1)), of(r.Reads), of(r.Commits), of(int(r.Messages)))
}
