package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/plan"
)

var planCommand = command{
	name:  "plan",
	short: "say what a load takes and costs on Google Cloud",
	long: `Works out what a steady load takes on Pub/Sub and Datastore: shards, aggregators, messages
and commits a second, entities written and read, markers stored, dollars a month. Beside
it stands the classic sharded counter, which reads and writes one of a counter's shards
for each increment, and counts twice what is repeated.

  countmill plan --rate 1e6 --counters 1e5 --zipf 1.1 --publishers 50
  countmill plan --rate 200 --counters 1e4 --publishers 4 --totals 500 --asked 100

Below stands which limits bind. It starts nothing and asks nobody. Numbers may be written
as 1e6. Prices are those of the day and place that the output names: give your own.
`,
	flags: func() string { return newPlanFlags().help() },
	run:   runPlan,
}

// planFlags are the command line of plan.
type planFlags struct {
	set  *pflag.FlagSet
	load plan.Load
	json bool
	all  []planFlag
}

type planFlag struct{ name, arg, help string }

func newPlanFlags() *planFlags {
	f := &planFlags{set: pflag.NewFlagSet("plan", pflag.ContinueOnError), load: plan.Defaults()}
	f.set.SetOutput(io.Discard)
	f.set.Usage = func() {}
	l := &f.load
	f.number(&l.Rate, "rate", "N", "Increments a second, of all publishers. Needed.")
	f.set.Lookup("rate").DefValue = "1e6" // for errors: it has none
	f.whole(&l.Counters, "counters", "Counters that they go to.")
	f.number(&l.Zipf, "zipf", "S", "They go to the counter of rank k in proportion to 1/k^S; 0: to all alike.")
	f.number(&l.IDs, "ids", "PART", "Which part of them has ids, from 0 to 1.")
	f.count(&l.NameBytes, "name-bytes", "Bytes of a counter's name.")
	f.count(&l.Publishers, "publishers", "Publishers: processes, not threads.")
	f.count(&l.Aggregators, "aggregators", "Aggregators; 0: as many as are half busy.")
	f.add("linger", "DURATION", "How long a publisher's batch waits for more.")
	f.set.DurationVar(&l.Linger, "linger", l.Linger, "")
	f.add("window-linger", "DURATION", "How long an aggregator's window waits for more.")
	f.set.DurationVar(&l.Window, "window-linger", l.Window, "")
	f.add("count-within", "DURATION", "How old an increment may be when it is counted: it sets both lingers. 0s: they stand as they are.")
	f.set.DurationVar(&l.CountWithin, "count-within", l.CountWithin, "")
	f.add("dedup-window", "DURATION", "How long ids are remembered.")
	f.set.DurationVar(&l.DedupWindow, "dedup-window", l.DedupWindow, "")
	f.add("commit-time", "DURATION", "What Datastore takes for a commit; the default is a guess.")
	f.set.DurationVar(&l.CommitTime, "commit-time", l.CommitTime, "")
	f.count(&l.StartShards, "shards", "Shards of a new counter.")
	f.count(&l.MaxShards, "max-shards", "Shards of a counter at most.")
	f.number(&l.ShardRate, "shard-rate", "N", "Commits a second that a shard takes.")
	f.number(&l.Totals, "totals", "N", "Totals served a second.")
	f.whole(&l.Asked, "asked", "Counters that those are of, the most incremented ones; 0: all.")
	f.add("max-staleness", "DURATION", "How old a total may be.")
	f.set.DurationVar(&l.MaxStaleness, "max-staleness", l.MaxStaleness, "")
	f.count(&l.Readers, "readers", "Readers with a cache of their own; those that share memcached are 1.")
	for _, p := range l.Prices.Each() {
		f.number(p.Dollars, p.Flag, "DOLLARS", p.About)
	}
	f.add("prices-as-of", "TEXT", "Where those are from, for the output.")
	f.set.StringVar(&l.Prices.AsOf, "prices-as-of", l.Prices.AsOf, "")
	f.add("json", "", "Write one JSON object.")
	f.set.BoolVar(&f.json, "json", false, "")
	return f
}

func (f *planFlags) add(name, arg, help string) { f.all = append(f.all, planFlag{name, arg, help}) }

func (f *planFlags) number(to *float64, name, arg, help string) {
	f.add(name, arg, help)
	f.set.Var((*numberValue)(to), name, "")
}

func (f *planFlags) count(to *int, name, help string) {
	f.add(name, "N", help)
	f.set.IntVar(to, name, *to, "")
}

func (f *planFlags) whole(to *int64, name, help string) {
	f.add(name, "N", help)
	f.set.Var((*wholeValue)(to), name, "")
}

// help is the flags with their defaults.
func (f *planFlags) help() string {
	var b strings.Builder
	for _, p := range f.all {
		fmt.Fprintf(&b, "  --%s\n      %s", strings.TrimSpace(p.name+" "+p.arg), p.help)
		if p.name != "rate" && p.name != "json" {
			fmt.Fprintf(&b, " Default %s.", shortDuration(f.set.Lookup(p.name).DefValue))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// shortDuration writes 192h for what Go writes 192h0m0s.
func shortDuration(text string) string {
	if hours, ok := strings.CutSuffix(text, "h0m0s"); ok {
		return hours + "h"
	}
	return text
}

type numberValue float64

func (v *numberValue) String() string { return strconv.FormatFloat(float64(*v), 'g', -1, 64) }
func (v *numberValue) Type() string   { return "number" }

func (v *numberValue) Set(s string) error {
	n, err := strconv.ParseFloat(s, 64)
	*v = numberValue(n)
	return err
}

// A wholeValue is a number that may be written as 1e6.
type wholeValue int64

func (v *wholeValue) String() string { return strconv.FormatInt(int64(*v), 10) }
func (v *wholeValue) Type() string   { return "whole number" }

func (v *wholeValue) Set(s string) error {
	n, err := strconv.ParseFloat(s, 64)
	if err != nil || n != math.Trunc(n) || math.Abs(n) > 1<<53 {
		return errors.New("no whole number")
	}
	*v = wholeValue(n)
	return nil
}

func runPlan(_ context.Context, c call) error {
	f := newPlanFlags()
	if err := app.FlagError(f.set.Parse(c.args)); err != nil {
		return err
	}
	if extra := f.set.Args(); len(extra) > 0 {
		return app.Usagef("plan takes no argument, got %q", extra[0])
	}
	if !f.set.Changed("rate") {
		return app.Usagef("--rate is missing: increments a second")
	}
	if f.load.CountWithin > 0 && (f.set.Changed("linger") || f.set.Changed("window-linger")) {
		return app.Usagef("--count-within sets --linger and --window-linger: leave them out")
	}
	p, err := plan.Make(f.load)
	if err != nil {
		return app.Usagef("%s", err)
	}
	if f.json {
		return writeJSON(c.stdout, f.answer(p))
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

func (f *planFlags) answer(p plan.Plan) planAnswer {
	a := planAnswer{Flags: make(map[string]string), Aggregators: p.Aggregators, Countmill: p.Countmill, Classic: p.Classic, Notes: p.Notes}
	f.set.VisitAll(func(flag *pflag.Flag) {
		if flag.Name != "json" {
			a.Flags[flag.Name] = flag.Value.String()
		}
	})
	return a
}
