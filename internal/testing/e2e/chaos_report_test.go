package e2e

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Metrics of aggregators about repeats. A killed process loses its metrics, so they are read again and
// again.
var repeatMetrics = []string{"countmill_duplicate_parts_total", "countmill_bus_redeliveries_total"}

// kills returns how many of the faults were SIGKILL.
func (c *chaos) kills() (kills, all int) {
	for s, n := range c.struck {
		if all += n; s.fault == "killed" {
			kills += n
		}
	}
	return kills, all
}

func (c *chaos) progress() string {
	kills, all := c.kills()
	n := c.callers.counted()
	text := fmt.Sprintf("%d faults, %d of them kills; %d increments acknowledged in %d requests, %d of which were repeated; %d totals read",
		all, kills, n.increments, n.requests, n.again+n.absorbed, c.ledger.shown())
	return text + "; seconds to recover: " + seconds(c.took) + "; with half-open connections: " + seconds(c.silent)
}

// report compares every total with the ledger, prints a summary, and fails if something is wrong.
func (c *chaos) report(length time.Duration) {
	t := c.t
	t.Helper()
	d, err := c.ledger.drift(func(counters []string) (answer, error) { return c.callers.readers[0].up().ask("0s", counters...) })
	if err != nil {
		t.Fatal(err)
	}
	kills, all := c.kills()
	table := reportOf(c.callers, d, c.took)
	table = append([][2]string{{"seconds", fmt.Sprintf("%.0f", length.Seconds())}, {"faults", fmt.Sprint(all)}, {"kills", fmt.Sprint(kills)}}, table...)
	var duplicates, redelivered float64
	for _, m := range c.members {
		duplicates, redelivered = duplicates+m.saw(repeatMetrics[0]), redelivered+m.saw(repeatMetrics[1])
	}
	table = append(table, [2]string{"the same, rounds with half-open connections", seconds(c.silent)}, [2]string{"parts that came again and were not counted, at least", fmt.Sprint(duplicates)},
		[2]string{"messages that Pub/Sub delivered again, at least", fmt.Sprint(redelivered)})
	t.Logf("\n%s", rows(table))
	c.callers.only(t)
	c.ended()
	c.d.noDeadLetters(t)
	c.callers.readers[0].up().noDeadLetters(t)
	if !d.none() {
		t.Errorf("totals are not what the ledger says: %+v", d)
	}
}

// ended checks that no process that had started ended without being killed.
func (c *chaos) ended() {
	early := 0
	for _, m := range c.members {
		m.mu.Lock()
		for _, end := range m.ends {
			c.t.Errorf("ended by itself: %s", end)
		}
		early += len(m.early)
		m.mu.Unlock()
	}
	c.t.Logf("processes that gave up while they started, their servers out of reach: %d", early)
}

// reportOf returns the rows that every run against a ledger reports.
func reportOf(c *callers, d drift, took []time.Duration) [][2]string {
	n := c.counted()
	return [][2]string{
		{"increments acknowledged", fmt.Sprint(n.increments)},
		{"requests acknowledged", fmt.Sprint(n.requests)},
		{"requests repeated, the outcome unknown", fmt.Sprint(n.again)},
		{"requests repeated, though acknowledged", fmt.Sprint(n.absorbed)},
		{"requests that may not be repeated, of unknown outcome", fmt.Sprint(n.unknown)},
		{"counters compared", fmt.Sprint(d.counters)},
		{"totals read and checked on the way", fmt.Sprint(c.ledger.shown())},
		{"unknown increments in histories, of them counted", fmt.Sprintf("%d, %d", d.unknown, d.unknownCounted)},
		{"drift: lost, counted twice, never sent", fmt.Sprintf("%d, %d, %d", d.lost, d.doubled, d.foreign)},
		{"seconds to recover: median, maximum", seconds(took)},
	}
}

// seconds returns the median and the maximum.
func seconds(took []time.Duration) string {
	if len(took) == 0 {
		return "none"
	}
	took = slices.Sorted(slices.Values(took))
	return fmt.Sprintf("%.1f, %.1f of %d", took[len(took)/2].Seconds(), took[len(took)-1].Seconds(), len(took))
}

func rows(table [][2]string) string {
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range table {
		fmt.Fprintf(w, "%s\t%s\n", row[0], row[1])
	}
	_ = w.Flush()
	return text.String()
}
