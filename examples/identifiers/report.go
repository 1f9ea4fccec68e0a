package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

// metrics are the rows of the report from /metrics, in this order.
var metrics = []struct{ name, label string }{
	{"countmill_messages_sent_total", "messages"},
	{"countmill_commits_total", "commits"},
	{"countmill_entities_written_total", "entities written"},
	{"countmill_entities_read_total", "entities read"},
	{"countmill_duplicate_parts_total", "duplicate parts"},
}

func metricNames() []string {
	var names []string
	for _, m := range metrics {
		names = append(names, m.name)
	}
	return names
}

type report struct {
	increments        int64
	names             int
	requests, repeats int64
	reads, refused    int64         // while increments were sent
	took, settled     time.Duration // until all was accepted, and from then until it was counted
	compared          time.Duration // from then until the totals were read
	kills, restarts   int
	metrics           map[string]float64
}

// addMetrics adds countmill's own metrics, including those of killed processes.
func (r *report) addMetrics(ctx context.Context, f *fleet) error {
	seen, err := f.metrics(ctx)
	if err != nil {
		return err
	}
	for _, m := range metrics {
		if _, ok := seen[m.name]; !ok {
			return fmt.Errorf("/metrics has no %s", m.name)
		}
	}
	r.metrics, r.kills, r.restarts = seen, f.kills, f.restarts
	return nil
}

func (r *report) print(w io.Writer) {
	row := func(label string, n int64) { fmt.Fprintf(w, "%-16s %12s\n", label, grouped(n)) }
	row("increments", r.increments)
	row("names", int64(r.names))
	row("requests", r.requests)
	row("  repeated", r.repeats)
	for _, m := range metrics {
		row(m.label, int64(r.metrics[m.name]))
	}
	row("reads on the way", r.reads)
	row("  refused", r.refused)
	row("kills", int64(r.kills))
	row("cache restarts", int64(r.restarts))
	fmt.Fprintf(w, "%-16s %12.1f\n", "seconds", r.took.Seconds())
	fmt.Fprintf(w, "%-16s %12.1f\n", "  until counted", r.settled.Seconds())
	fmt.Fprintf(w, "%-16s %12.1f\n", "  then compared", r.compared.Seconds())
	if r.kills > 0 {
		fmt.Fprintln(w, "Messages, commits and entities are from the metrics of each process shortly before it was killed.")
	}
}

// grouped is n with a comma after every three digits.
func grouped(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
