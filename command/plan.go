package command

import (
	"context"
	"io"

	"github.com/countmill/countmill/internal/app"
	"github.com/countmill/countmill/internal/plan"
)

var planCommand = command{
	path:  "plan",
	group: "set",
	short: "estimate resources and cost of a load on Google Cloud",
	long: `Estimates a steady load on Pub/Sub and Datastore: shards, aggregators, messages
and commits a second, entities written and read, markers stored, dollars a month. The
second column is the classic sharded counter, which reads and writes one of a counter's
shards for each increment, and counts repeats twice.

  countmill plan --rate 1e6 --counters 1e5 --zipf 1.1 --publishers 50
  countmill plan --rate 200 --counters 1e4 --publishers 4 --totals 500 --asked 100

The last lines name the limits that bind. plan starts nothing and calls no server. Numbers may be
written as 1e6. The output names date and place of its prices: give your own.
`,
	run: runPlan,
}

func runPlan(_ context.Context, c call) error {
	if !c.given("rate") {
		return app.Usagef("--rate is missing: increments a second")
	}
	p, err := plan.Make(c.load)
	if err != nil {
		return app.Usagef("%s", err)
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

func (c call) planAnswer(p plan.Plan) planAnswer {
	a := planAnswer{Flags: make(map[string]string), Aggregators: p.Aggregators, Countmill: p.Countmill, Classic: p.Classic, Notes: p.Notes}
	for _, f := range c.flags {
		value := c.set.Lookup(f.name).Value.(notedValue).Value
		switch v := value.(type) {
		case durationValue:
			a.Flags[f.name] = v.to.String()
		case boolValue: // --json
		default:
			a.Flags[f.name] = value.String()
		}
	}
	return a
}
