package sim

import (
	"fmt"
	"strings"
	"time"
)

// A Tally adds up what schedules did. It stays small however many there are.
type Tally struct {
	Schedules int
	Calls     int // of bus and store
	Least     int // calls in the schedule that had fewest
	Few       int // schedules that had fewer than leastCalls
	Steps     int
	Reads     int
	After     int // reads with receipts
	Conflicts int // increments refused because their ids were counted with another delta
	Replayed  int // letters
	Resets    int
	Swept     int // counters
	Grown     int // records that were raised to name more shards
	Built     int // indexes
	Groups    int // totals of groups that were compared with their counters
	Boards    int // leaderboards
	Pages     int // of the journal
	Values    int // answers with values of sequences
	Outdated  int // folds with markers by settings that had been changed
	Outlasted int // calls that were under way while the machine was suspended
	Virtual   time.Duration
	Faults    [faultCount]int
	Rows      [rowCount]int
	Shapes    [shapeCount]int
	Wrong     int       // schedules with a violation
	Failures  []Failure // the first of them
}

// A Failure is a schedule that went wrong.
type Failure struct {
	Seed      uint64
	Violation string
}

// mostFailures is how many are kept.
const mostFailures = 20

// Add takes a schedule in.
func (t *Tally) Add(r *Result) {
	one := Tally{
		Schedules: 1, Calls: r.Calls, Least: r.Calls, Steps: r.Steps, Reads: r.Reads, After: r.After, Replayed: r.Replayed, Virtual: r.Virtual,
		Conflicts: r.Conflicts, Resets: r.Resets, Swept: r.Swept, Grown: r.Grown, Built: r.Built, Groups: r.Groups, Boards: r.Boards, Pages: r.Pages, Values: r.Values, Outdated: r.Outdated, Outlasted: r.Outlasted,
		Faults: r.Faults, Rows: r.Rows, Shapes: r.Shapes,
	}
	if len(r.Violations) > 0 {
		one.Wrong, one.Failures = 1, []Failure{{r.Seed, r.Violations[0]}}
	} else if r.Calls < leastCalls {
		one.Few = 1
	}
	t.Merge(&one)
}

// Merge takes another tally in.
func (t *Tally) Merge(o *Tally) {
	if o.Schedules == 0 {
		return
	}
	if t.Schedules == 0 || o.Least < t.Least {
		t.Least = o.Least
	}
	t.Schedules += o.Schedules
	t.Calls += o.Calls
	t.Few += o.Few
	t.Steps += o.Steps
	t.Reads += o.Reads
	t.After += o.After
	t.Conflicts += o.Conflicts
	t.Replayed += o.Replayed
	t.Resets += o.Resets
	t.Swept += o.Swept
	t.Grown += o.Grown
	t.Built += o.Built
	t.Groups += o.Groups
	t.Boards += o.Boards
	t.Pages += o.Pages
	t.Values += o.Values
	t.Outdated += o.Outdated
	t.Outlasted += o.Outlasted
	t.Virtual += o.Virtual
	for i, n := range o.Faults {
		t.Faults[i] += n
	}
	for i, n := range o.Rows {
		t.Rows[i] += n
	}
	for i, n := range o.Shapes {
		t.Shapes[i] += n
	}
	t.Wrong += o.Wrong
	t.Failures = append(t.Failures, o.Failures...)
	t.Failures = t.Failures[:min(len(t.Failures), mostFailures)]
}

// Rare names the faults and answers that were hit less than least times.
func (t *Tally) Rare(least int) []string {
	var rare []string
	for i, n := range t.Faults {
		if n < least {
			rare = append(rare, fmt.Sprintf("fault %q: %d", Fault(i), n))
		}
	}
	for i, n := range t.Rows {
		if n < least {
			rare = append(rare, fmt.Sprintf("answer %q: %d", Row(i), n))
		}
	}
	for i, n := range t.Shapes {
		if n == 0 {
			rare = append(rare, fmt.Sprintf("%q: 0", Shape(i)))
		}
	}
	return rare
}

// Table is the tally for people.
func (t *Tally) Table(wall time.Duration) string {
	var b strings.Builder
	row := func(what string, value any) { fmt.Fprintf(&b, "| %-46s | %14s |\n", what, fmt.Sprint(value)) }
	row("schedules", t.Schedules)
	row("with a violation", t.Wrong)
	row("calls of bus and store", t.Calls)
	row("calls in the shortest schedule", t.Least)
	row(fmt.Sprintf("schedules with fewer than %d calls", leastCalls), t.Few)
	row("steps", t.Steps)
	row("reads checked", t.Reads)
	row("reads with receipts checked", t.After)
	row("conflicts that callers were told of", t.Conflicts)
	row("letters counted after all", t.Replayed)
	row("resets and deletes applied", t.Resets)
	row("deleted counters swept", t.Swept)
	row("counters given more shards", t.Grown)
	row("indexes built", t.Built)
	row("totals of groups compared with their counters", t.Groups)
	row("leaderboards checked", t.Boards)
	row("pages of the journal checked", t.Pages)
	row("answers with values of sequences", t.Values)
	row("folds by settings that were changed", t.Outdated)
	row("calls that outlast a suspension", t.Outlasted)
	row("virtual time", t.Virtual.Round(time.Second))
	row("wall time", wall.Round(100*time.Millisecond))
	for i, n := range t.Faults {
		row("fault: "+Fault(i).String(), n)
	}
	for i, n := range t.Rows {
		row("answer: "+Row(i).String(), n)
	}
	for i, n := range t.Shapes {
		row(Shape(i).String(), n)
	}
	return b.String()
}
