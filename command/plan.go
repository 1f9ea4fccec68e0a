package command

import (
	"context"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/internal/plan"
)

var planCommand = cli.Command{
	Path:  "plan",
	Group: "set",
	Short: "estimate resources and cost of a load on Google Cloud",
	Long: `Estimates a steady load on Pub/Sub and Datastore: shards, aggregators, messages
and commits a second, entities written and read, markers stored, dollars a month. The
second column is the classic sharded counter, which reads and writes one of a counter's
shards for each increment, and counts repeats twice.

  countmill plan --rate 1e6 --counters 1e5 --zipf 1.1 --publishers 50
  countmill plan --rate 200 --counters 1e4 --publishers 4 --totals 500 --asked 100

The last lines name the limits that bind. plan starts nothing and calls no server. Numbers may be
written as 1e6. The output names date and place of its prices: give your own.
`,
	New: func() cli.Verb { return new(planVerb) },
}

type planVerb struct {
	call
	load    plan.Load
	json    bool
	planned []cli.Flag // without --json
}

// Flags are of package plan, which bounds the values and has the prices.
func (c *planVerb) Flags() []cli.Flag {
	c.load = plan.Defaults()
	l := &c.load
	rows := []cli.Flag{
		number("rate", "Increments a second, of all publishers.", &l.Rate),
		whole("counters", "Number of counters.", &l.Counters),
		number("zipf", "The counter of rank k gets increments in proportion to 1/k^N; 0: all counters get the same.", &l.Zipf),
		number("ids", "Part of the increments that have ids, from 0 to 1.", &l.IDs),
		count("name-bytes", "Bytes of a counter's name.", &l.NameBytes),
		count("publishers", "Publishers: processes, not threads.", &l.Publishers),
		count("aggregators", "Aggregators; 0: so many that each is half busy.", &l.Aggregators),
		span("count-within", "How old an increment may be at its commit. 0s: batches wait 250ms, and windows 100ms.", &l.CountWithin),
		span("dedup-window", "How long ids are remembered.", &l.DedupWindow),
		span("commit-time", "How long Datastore takes for a commit; the default is a guess.", &l.CommitTime),
		number("shard-rate", "Commits a second that a shard sustains.", &l.ShardRate),
		number("totals", "Totals served a second.", &l.Totals),
		whole("asked", "How many of the counters those totals are of, the most incremented ones; 0: all.", &l.Asked),
		span("max-staleness", "How old a total may be.", &l.MaxStaleness),
		whole("watched", "Counters of the prefixes that pages watch, the most incremented ones. Every reader reads them once a second.", &l.Watched),
		whole("series-counters", "Counters under a rule for series, the most incremented ones.", &l.Series),
		number("board-rate", "Entities a second that the scans of each reader read, while somebody asks for a leaderboard.", &l.BoardRate),
		whole("board-counters", "Counters of the index of a leaderboard, the most incremented ones; 0: all.", &l.BoardCounters),
		whole("board-days", "Days of UTC in which the window of the leaderboard is: 1 or 2 for today and 1h, 8 for this-week, 32 for this-month; 0: totals.", &l.BoardDays),
		whole("groups", "Groups of an index, whose counters have the same text up to the second ':'; 0: there is no index.", &l.Groups),
		whole("index-counters", "Counters of that index, the most incremented ones; 0: all.", &l.IndexCounters),
		count("readers", "Readers with a cache of their own. Readers that share memcached are 1.", &l.Readers),
	}
	rows[0] = rows[0].Default("none; needed")
	for _, p := range l.Prices.Each() {
		rows = append(rows, cli.New(p.Flag, "DOLLARS", cli.Number(p.Dollars), p.About))
	}
	c.planned = append(rows, cli.New("prices-as-of", "TEXT", cli.Any(&l.Prices.AsOf), "Date and place of the prices, for the output."))
	return append(c.planned, cli.Switch("json", &c.json, "Write one JSON object."))
}

func number(name, help string, to *float64) cli.Flag { return cli.New(name, "N", cli.Number(to), help) }
func whole(name, help string, to *int64) cli.Flag    { return cli.New(name, "N", cli.Whole(to), help) }

func count(name, help string, to *int) cli.Flag {
	return cli.New(name, "N", cli.Count{To: to, Min: math.MinInt32, Max: math.MaxInt32}, help)
}

func span(name, help string, to *time.Duration) cli.Flag {
	return cli.New(name, "DURATION", cli.Duration{To: to}, help)
}

func (c *planVerb) Run(context.Context) error {
	if !c.Given("rate") {
		return cli.Usagef("--rate is missing: increments a second")
	}
	p, err := plan.Make(c.load)
	if err != nil {
		return cli.Usagef("%s", err)
	}
	if c.json {
		return writeJSON(c.stdout, c.planAnswer(p))
	}
	_, err = io.WriteString(c.stdout, planText(p))
	return err
}

// A planAnswer is what --json writes.
type planAnswer struct {
	Flags       map[string]string `json:"flags"`
	Aggregators int               `json:"aggregators"`
	Countmill   plan.Cost         `json:"countmill"`
	Classic     plan.Cost         `json:"classic"`
	Notes       []string          `json:"notes"`
}

func (c *planVerb) planAnswer(p plan.Plan) planAnswer {
	a := planAnswer{Flags: make(map[string]string), Aggregators: p.Aggregators, Countmill: p.Countmill, Classic: p.Classic, Notes: p.Notes}
	for _, f := range c.planned {
		switch v := f.Value.(type) {
		case cli.Duration:
			a.Flags[f.Name] = v.To.String()
		default:
			a.Flags[f.Name] = v.String()
		}
	}
	return a
}

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
