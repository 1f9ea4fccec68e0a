package command

import (
	"math"
	"time"

	"github.com/spf13/pflag"

	"github.com/countmill/countmill/internal/plan"
)

// planFlags are the rows of plan. Package plan bounds the values, and has the prices.
func planFlags() []flag {
	rows := []flag{
		number("rate", "Increments a second, of all publishers.", func(l *plan.Load) *float64 { return &l.Rate }),
		whole("counters", "Number of counters.", func(l *plan.Load) *int64 { return &l.Counters }),
		number("zipf", "The counter of rank k gets increments in proportion to 1/k^N; 0: all counters get the same.", func(l *plan.Load) *float64 { return &l.Zipf }),
		number("ids", "Part of the increments that have ids, from 0 to 1.", func(l *plan.Load) *float64 { return &l.IDs }),
		count("name-bytes", "Bytes of a counter's name.", func(l *plan.Load) *int { return &l.NameBytes }),
		count("publishers", "Publishers: processes, not threads.", func(l *plan.Load) *int { return &l.Publishers }),
		count("aggregators", "Aggregators; 0: so many that each is half busy.", func(l *plan.Load) *int { return &l.Aggregators }),
		span("count-within", "How old an increment may be at its commit. 0s: batches wait 250ms, and windows 100ms.", func(l *plan.Load) *time.Duration { return &l.CountWithin }),
		span("dedup-window", "How long ids are remembered.", func(l *plan.Load) *time.Duration { return &l.DedupWindow }),
		span("commit-time", "How long Datastore takes for a commit; the default is a guess.", func(l *plan.Load) *time.Duration { return &l.CommitTime }),
		number("shard-rate", "Commits a second that a shard sustains.", func(l *plan.Load) *float64 { return &l.ShardRate }),
		number("totals", "Totals served a second.", func(l *plan.Load) *float64 { return &l.Totals }),
		whole("asked", "How many of the counters those totals are of, the most incremented ones; 0: all.", func(l *plan.Load) *int64 { return &l.Asked }),
		span("max-staleness", "How old a total may be.", func(l *plan.Load) *time.Duration { return &l.MaxStaleness }),
		whole("watched", "Counters of the prefixes that pages watch, the most incremented ones. Every reader reads them once a second.", func(l *plan.Load) *int64 { return &l.Watched }),
		whole("series-counters", "Counters under a rule for series, the most incremented ones.", func(l *plan.Load) *int64 { return &l.Series }),
		number("board-rate", "Entities a second that the scans of each reader read, while somebody asks for a leaderboard.", func(l *plan.Load) *float64 { return &l.BoardRate }),
		whole("board-counters", "Counters of the index of a leaderboard, the most incremented ones; 0: all.", func(l *plan.Load) *int64 { return &l.BoardCounters }),
		whole("board-days", "Days of UTC in which the window of the leaderboard is: 1 or 2 for today and 1h, 8 for this-week, 32 for this-month; 0: totals.", func(l *plan.Load) *int64 { return &l.BoardDays }),
		whole("groups", "Groups of an index, whose counters have the same text up to the second ':'; 0: there is no index.", func(l *plan.Load) *int64 { return &l.Groups }),
		whole("index-counters", "Counters of that index, the most incremented ones; 0: all.", func(l *plan.Load) *int64 { return &l.IndexCounters }),
		count("readers", "Readers with a cache of their own. Readers that share memcached are 1.", func(l *plan.Load) *int { return &l.Readers }),
	}
	rows[0].def = "none; needed"
	defaults := plan.Defaults()
	for i, p := range defaults.Prices.Each() {
		rows = append(rows, number(p.Flag, p.About, func(l *plan.Load) *float64 { return l.Prices.Each()[i].Dollars }))
		rows[len(rows)-1].arg = "DOLLARS"
	}
	return append(rows,
		planFlag("prices-as-of", "TEXT", "Date and place of the prices, for the output.", func(l *plan.Load) pflag.Value { return anyValue{&l.Prices.AsOf} }),
		asJSON("Write one JSON object.", "plan"))
}

func planFlag(name, arg, help string, bind func(*plan.Load) pflag.Value) flag {
	return flag{name: name, arg: arg, of: []string{"plan"}, help: help, bind: func(v *values) pflag.Value { return bind(&v.load) }}
}

func number(name, help string, to func(*plan.Load) *float64) flag {
	return planFlag(name, "N", help, func(l *plan.Load) pflag.Value { return (*numberValue)(to(l)) })
}

func whole(name, help string, to func(*plan.Load) *int64) flag {
	return planFlag(name, "N", help, func(l *plan.Load) pflag.Value { return wholeValue{to(l)} })
}

func count(name, help string, to func(*plan.Load) *int) flag {
	return planFlag(name, "N", help, func(l *plan.Load) pflag.Value { return countValue{to: to(l), min: math.MinInt32, max: math.MaxInt32} })
}

func span(name, help string, to func(*plan.Load) *time.Duration) flag {
	return planFlag(name, "DURATION", help, func(l *plan.Load) pflag.Value { return durationValue{to: to(l)} })
}
