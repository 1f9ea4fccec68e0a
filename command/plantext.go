package command

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/countmill/countmill/internal/plan"
)

// planText is a plan for a person. Numbers have three digits: no plan is exact to more.
func planText(p plan.Plan) string {
	var b strings.Builder
	l, mill, classic := p.Load, p.Countmill, p.Classic
	fmt.Fprintf(&b, "%s increments/s to %s from %s\n\n", short(l.Rate), countersText(l), several(float64(l.Publishers), "publisher"))
	row := func(what string, countmill, classic float64) {
		fmt.Fprintf(&b, "%-32s %14s %16s\n", what, short(countmill), short(classic))
	}
	only := func(what string, countmill float64) {
		fmt.Fprintf(&b, "%-32s %14s %16s\n", what, short(countmill), "-")
	}
	fmt.Fprintf(&b, "%-32s %14s %16s\n", "", "countmill", "classic counter")
	row("shards", mill.Shards, classic.Shards)
	row("  of the hottest counter", mill.MostShards, classic.MostShards)
	only("aggregators", float64(p.Aggregators))
	only("messages/s", mill.Messages)
	row("commits/s", mill.Commits, classic.Commits)
	row("entities written/s", mill.EntitiesWritten, classic.EntitiesWritten)
	only("  markers", mill.MarkersWritten)
	if l.Series > 0 {
		only("  series, beside folds", mill.SeriesWritten)
	}
	if l.Groups > 0 {
		only("  groups", mill.GroupsWritten)
	}
	row("  for a million increments", mill.PerMillion, classic.PerMillion)
	row("entities read/s", mill.EntitiesRead, classic.EntitiesRead)
	row("  for totals", mill.TotalsRead, classic.TotalsRead)
	if l.Watched > 0 {
		row("  for watchers", mill.WatchedRead, classic.WatchedRead)
	}
	if l.BoardRate > 0 {
		only("  for leaderboards", mill.BoardsRead)
	}
	if l.Groups > 0 {
		only("  by index workers", mill.IndexRead)
	}
	only("markers stored", mill.Markers)
	row("GiB stored", mill.StoredBytes/(1<<30), classic.StoredBytes/(1<<30))
	row("dollars a month", mill.Month.Total, classic.Month.Total)
	only("  Pub/Sub", mill.Month.PubSub)
	row("  writes", mill.Month.Writes, classic.Month.Writes)
	row("  reads", mill.Month.Reads, classic.Month.Reads)
	only("  deletes of markers", mill.Month.Deletes)
	row("  storage", mill.Month.Storage, classic.Month.Storage)
	if len(p.Notes) > 0 {
		b.WriteString("\n")
	}
	for _, note := range p.Notes {
		fmt.Fprintf(&b, "- %s\n", note)
	}
	fmt.Fprintf(&b, "\nPrices: %s.\n", l.Prices.AsOf)
	b.WriteString("Without machines, networks and free tiers; a month has 30 days.\n")
	return b.String()
}

func countersText(l plan.Load) string {
	text := several(float64(l.Counters), "counter")
	switch {
	case l.Counters == 1:
		return text
	case l.Zipf > 0:
		return fmt.Sprintf("%s, Zipf %g,", text, l.Zipf)
	}
	return text + ", all alike,"
}

func several(n float64, what string) string {
	if n != 1 {
		what += "s"
	}
	return short(n) + " " + what
}

// short is a number with three digits that count.
func short(n float64) string {
	switch {
	case n == 0:
		return "0"
	case n < 0.005:
		return "<0.01"
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(n)))-2)
	if unit < 1 {
		digits := min(int(math.Round(-math.Log10(unit))), 2)
		text := strconv.FormatFloat(n, 'f', digits, 64)
		return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	return grouped(strconv.FormatFloat(math.Round(n/unit)*unit, 'f', 0, 64))
}

// grouped puts commas between thousands.
func grouped(digits string) string {
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
