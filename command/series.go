package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/command/cli"
	"github.com/countmill/countmill/store"
)

var seriesCommand = cli.Command{
	Path:  "series",
	Group: "count",
	Args:  "NAME...",
	Short: "print the counts of a counter over time",
	Long: `Prints what was counted under the counter NAME, or under several names. It needs a rule for
series ("countmill help rule"). A line for each row has its beginning, the count, partial or whole,
and the name, with tabs between. Standard error says how much was counted without a rule, if that
is not 0. The page of the server draws the curve.

  countmill series page:/home --last 24h
  countmill series page:/home --last 90d --step 1w --tz Asia/Kolkata
  countmill series page:/home --from 2026-11-01 --to 2026-12-01 --step 1d

A row is partial if it is not over, or if the rule does not cover all of it.
`,
	New: func() cli.Verb { return new(seriesVerb) },
}

// valueOf is the value, or "overflow" as in ls.
func valueOf(r *client.Row) string {
	if r.Error != "" {
		return "overflow"
	}
	return strconv.FormatInt(r.Value, 10)
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
		cli.New("step", "STEP", cli.Any(&c.step), "The time of a row: 1m, 5m, 15m, 1h, 1d, 1w, 1mo, 1y and others. Steps below 15m need minutes, which the rule keeps for hours.").Default("some hundred rows"),
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
	q, options, err := c.seriesPeriod(time.Now().UTC())
	if err != nil {
		return err
	}
	q.Counters = names
	ask := func(ctx context.Context, cl *client.Client) ([]client.Row, error) {
		return cl.Series(ctx, q, options...)
	}
	rows, err := asked(ctx, &c.calling, ask)
	if problem, ok := errors.AsType[*client.Error](err); ok && strings.HasPrefix(problem.Detail, "step ") && c.step == "" {
		q.Step = "15m" // minutes are not kept for that long
		rows, err = asked(ctx, &c.calling, ask)
	}
	if err != nil && len(rows) == 0 {
		return err
	}
	if err := c.print(rows); err != nil {
		return err
	}
	return err // some values do not fit 64 bits
}

func (c *seriesVerb) print(rows []client.Row) error {
	if c.json {
		return c.writeJSON()
	}
	for _, r := range rows {
		whole := "whole"
		if r.Partial {
			whole = "partial"
		}
		if _, err := fmt.Fprintf(c.stdout, "%s\t%s\t%s\t%s\n", r.Time.Format(time.RFC3339), valueOf(&r), whole, cli.Plain(r.Counter)); err != nil {
			return err
		}
	}
	if without := c.answer.Header.Get("Countmill-Without-Curve"); without != "" && without != "0" {
		fmt.Fprintf(c.stderr, "%s without a curve: counted without a rule\n", cli.Plain(without))
	}
	return nil
}

// seriesPeriod is the query for --from, --to, --last, --step and --tz.
func (c *seriesVerb) seriesPeriod(now time.Time) (q client.SeriesQuery, dates []client.ReadOption, err error) {
	if c.Given("from") && c.Given("last") {
		return q, nil, cli.Usagef("--from and --last exclude each other: --last goes back from --to")
	}
	in, err := zone(c.tz)
	if err != nil {
		return q, nil, err
	}
	to := now
	if c.Given("to") {
		if to, err = timeOrDate("to", c.to, in); err != nil {
			return q, nil, err
		}
	}
	from := to.Add(-c.last)
	if c.Given("from") {
		if from, err = timeOrDate("from", c.from, in); err != nil {
			return q, nil, err
		}
	}
	if !from.Before(to) {
		return q, nil, cli.Usagef("--from: must be earlier than --to")
	}
	q = client.SeriesQuery{Zone: c.tz, From: from, To: to, Step: cmp.Or(c.step, stepFor(to.Sub(from)))}
	return q, []client.ReadOption{set("from", c.from), set("to", c.to)}, nil // dates go as they are: the server knows where a day begins
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

// stepFor is a step that gives at most some hundred rows.
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
