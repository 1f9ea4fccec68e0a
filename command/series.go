package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/store"
)

var seriesCommand = cli.Command{
	Path:  "series",
	Group: "count",
	Args:  "NAME...",
	Short: "draw the counts of a counter over time",
	Long: `Draws a chart of what was counted under the counter NAME, for each of several names. It needs a
rule for series ("countmill help rule"). Where no terminal is, it prints a line for each row: its
beginning, the count, partial or whole, and the name, with tabs between. The last line of the
charts says how much was counted without a rule, if that is not 0.

  countmill series page:/home --last 24h
  countmill series page:/home --last 90d --step 1w --tz Asia/Kolkata
  countmill series page:/home --from 2026-11-01 --to 2026-12-01 --step 1d

A row is partial if it is not over, or if the rule does not cover all of it.
`,
	New: func() cli.Verb { return new(seriesVerb) },
}

// A seriesRow is one of the rows that GET /v1/series answers with.
type seriesRow struct {
	Time    string
	Counter string
	Value   int64
	Error   string // the type of a problem if there is no value
	Partial bool
}

// text is the value, or "overflow" as in ls.
func (r *seriesRow) text() string {
	if r.Error != "" {
		return "overflow"
	}
	return strconv.FormatInt(r.Value, 10)
}

// overflowIn is the error that values of a series do not fit 64 bits.
func overflowIn(rows []seriesRow) error {
	at := slices.IndexFunc(rows, func(r seriesRow) bool { return r.Error != "" })
	if at < 0 {
		return nil
	}
	return fmt.Errorf("%w: counter %q at %s", countmill.ErrOverflow, cli.Plain(rows[at].Counter), cli.Plain(rows[at].Time))
}

type seriesVerb struct {
	calling
	groups             []string
	last               time.Duration
	from, to, step, tz string
}

func (c *seriesVerb) Flags() []cli.Flag {
	c.last = 24 * time.Hour
	return c.flags(usual, oneAnswer,
		groupFlag(&c.groups),
		cli.New("last", "DURATION", cli.Duration{To: &c.last, Min: time.Minute, Max: store.MaxKeep}, "How far back to go, from 1m to 3660d."),
		cli.New("from", "TIME", cli.Any(&c.from), "The beginning, as 2006-01-02T15:04:05Z, or a date in --tz.").Default("--last before --to"),
		cli.New("to", "TIME", cli.Any(&c.to), "The end, as 2006-01-02T15:04:05Z, or a date in --tz.").Default("now"),
		cli.New("step", "STEP", cli.Any(&c.step), "The time of a row: 1m, 5m, 15m, 1h, 1d, 1w, 1mo, 1y and others. Steps below 15m need minutes, which the rule keeps for hours.").Default("fits a terminal"),
		zoneFlag(&c.tz),
	)
}

func (c *seriesVerb) Run(ctx context.Context) error {
	names, err := withGroups(c.args, c.groups)
	if err != nil {
		return err
	}
	if err := checkNames(names, 100); err != nil {
		return err
	}
	query, err := c.seriesPeriod(time.Now().UTC())
	if err != nil {
		return err
	}
	query["counter"] = names
	var without string
	r := client.Request{Path: "/v1/series", Query: query, OnHeader: func(h http.Header) { without = h.Get("Countmill-Without-Curve") }}
	answer, err := c.ask(ctx, r)
	if problem, ok := errors.AsType[*client.Error](err); ok && strings.HasPrefix(problem.Detail, "step ") && c.step == "" {
		query.Set("step", "15m") // minutes are not kept for that long
		answer, err = c.ask(ctx, r)
	}
	if err != nil {
		return err
	}
	var rows []seriesRow
	if err := json.Unmarshal(answer, &rows); err != nil || rows == nil {
		return fmt.Errorf("the server answered with something else than a series; is that a countmill?")
	}
	switch {
	case c.json:
		_, err = c.stdout.Write(answer)
	case !cli.IsTerminal(c.stdout):
		err = printRows(c.stdout, rows)
	default:
		_, err = fmt.Fprint(c.stdout, charts(rows, query.Get("step"), without))
	}
	if err != nil {
		return err
	}
	return overflowIn(rows)
}

// seriesPeriod is the query for --from, --to, --last, --step and --tz.
func (c *seriesVerb) seriesPeriod(now time.Time) (url.Values, error) {
	if c.Given("from") && c.Given("last") {
		return nil, cli.Usagef("--from and --last exclude each other: --last goes back from --to")
	}
	in, err := zone(c.tz)
	if err != nil {
		return nil, err
	}
	query := url.Values{"tz": {c.tz}} // dates go as they are: the server knows where a day begins
	to := now
	if query.Set("to", now.Format(time.RFC3339)); c.Given("to") {
		if to, err = timeOrDate("to", c.to, in); err != nil {
			return nil, err
		}
		query.Set("to", c.to)
	}
	from := to.Add(-c.last)
	if query.Set("from", from.UTC().Format(time.RFC3339)); c.Given("from") {
		if from, err = timeOrDate("from", c.from, in); err != nil {
			return nil, err
		}
		query.Set("from", c.from)
	}
	if !from.Before(to) {
		return nil, cli.Usagef("--from: must be earlier than --to")
	}
	query.Set("step", cmp.Or(c.step, stepFor(to.Sub(from))))
	return query, nil
}

// zone is the value of --tz.
func zone(tz string) (*time.Location, error) {
	zone, err := time.LoadLocation(tz)
	if err != nil || tz == "" || tz == "Local" { // these would depend on the machine
		return nil, cli.Usagef("--tz: must be a time zone such as Asia/Kolkata, got %q", tz)
	}
	return zone, nil
}

// timeOrDate reads a time, or the midnight of a date.
func timeOrDate(flag, text string, zone *time.Location) (time.Time, error) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, nil
	}
	day, err := time.ParseInLocation(time.DateOnly, text, zone)
	if err != nil {
		return day, cli.Usagef("--%s: must be a time such as 2006-01-02T15:04:05Z, or a date such as 2006-01-02, got %q", flag, text)
	}
	return day, nil
}

// charts draws the rows of each counter. without is the part of all their sums that no series ever had.
func charts(rows []seriesRow, step, without string) string {
	var b strings.Builder
	for len(rows) > 0 {
		n := 1
		for n < len(rows) && rows[n].Counter == rows[0].Counter {
			n++
		}
		b.WriteString(chart(rows[:n], step))
		rows = rows[n:]
	}
	if n, err := strconv.ParseInt(without, 10, 64); err == nil && n != 0 {
		fmt.Fprintf(&b, "%d without a curve: counted without a rule\n", n)
	}
	return b.String()
}

// stepFor is a step that gives a chart of at most some hundred columns.
func stepFor(last time.Duration) string {
	const day = 24 * time.Hour
	for _, s := range []struct {
		upTo time.Duration
		step string
	}{{100 * time.Minute, "1m"}, {25 * time.Hour, "15m"}, {100 * time.Hour, "1h"}, {100 * day, "1d"}, {700 * day, "1w"}} {
		if last <= s.upTo {
			return s.step
		}
	}
	return "1mo"
}

func printRows(out io.Writer, rows []seriesRow) error {
	for _, r := range rows {
		whole := "whole"
		if r.Partial {
			whole = "partial"
		}
		if _, err := fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", cli.Plain(r.Time), r.text(), whole, cli.Plain(r.Counter)); err != nil {
			return err
		}
	}
	return nil
}

// chartHeight is the number of lines of the columns.
const chartHeight = 8

// chart draws the rows of one counter, a column each. Negative counts have columns too: they show the
// size.
func chart(rows []seriesRow, step string) string {
	var sum, most float64
	for _, r := range rows {
		sum += float64(r.Value)
		most = max(most, size(r.Value))
	}
	var b strings.Builder
	total := fmt.Sprintf("%.0f", sum)
	if overflowIn(rows) != nil {
		total = "overflow"
	}
	fmt.Fprintf(&b, "%s: %s in %s of %s, at most %.0f in one\n", cli.Plain(rows[0].Counter), total, counted(len(rows), "row"), step, most)
	for line := chartHeight - 1; line >= 0; line-- {
		text := ""
		for _, r := range rows {
			text += block(size(r.Value), most, line)
		}
		b.WriteString(strings.TrimRight(text, " "))
		b.WriteByte('\n')
	}
	first, last := shortTime(rows[0].Time), shortTime(rows[len(rows)-1].Time)
	fmt.Fprintf(&b, "%s%s%s\n\n", first, strings.Repeat(" ", max(1, len(rows)-len(first)-len(last))), last)
	return b.String()
}

func size(n int64) float64 { return max(float64(n), -float64(n)) }

// block is the part of a column that one line shows, in eighths. A count that is not 0 shows at
// least one.
func block(value, most float64, line int) string {
	if value == 0 {
		return " "
	}
	eighths := max(1, int(value/most*8*chartHeight+0.5)) - 8*line
	return string([]rune(" ▁▂▃▄▅▆▇█")[min(max(eighths, 0), 8)])
}
