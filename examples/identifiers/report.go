package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

// metrics are what the report shows of /metrics, in this order.
var metrics = []struct{ name, label string }{
	{"countmill_messages_sent_total", "messages"},
	{"countmill_commits_total", "commits"},
	{"countmill_entities_written_total", "records written"},
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
	took              time.Duration
	kills             int
	metrics           map[string]float64
}

// addMetrics reads what countmill says of its own work, over all of its lives.
func (r *report) addMetrics(ctx context.Context, c *client, v *victim) error {
	now, err := c.metrics(ctx, metricNames())
	if err != nil {
		return fmt.Errorf("read the metrics: %w", err)
	}
	for _, m := range metrics {
		if _, ok := now[m.name]; !ok {
			return fmt.Errorf("/metrics has no %s", m.name)
		}
	}
	r.metrics = now
	if v != nil {
		for name, n := range v.seen {
			r.metrics[name] += n
		}
		r.kills = v.kills
	}
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
	row("kills", int64(r.kills))
	fmt.Fprintf(w, "%-16s %12.1f\n", "seconds", r.took.Seconds())
	if r.kills > 0 {
		fmt.Fprintln(w, "Messages, commits and records are what each process said of itself shortly before it was killed.")
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
