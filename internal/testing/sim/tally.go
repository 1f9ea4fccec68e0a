package sim

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// Counts say what schedules did. Tallies show them by their names.
type Counts struct {
	Calls     int `name:"calls of bus and store"`
	Steps     int `name:"steps"`
	Reads     int `name:"reads checked"`
	After     int `name:"reads with receipts checked"`
	Conflicts int `name:"conflicts that callers were told of"`
	Replayed  int `name:"letters counted after all"`
	Resets    int `name:"resets and deletes applied"`
	Swept     int `name:"deleted counters swept"`
	Moved     int `name:"shards whose series were moved to the archive"`
	Built     int `name:"indexes built"`
	Groups    int `name:"totals of groups compared with their counters"`
	Boards    int `name:"leaderboards checked"`
	Pages     int `name:"pages of the journal checked"`
	Values    int `name:"answers with values of sequences"`
	Raced     int `name:"requests counted behind a flood"`
	Beside    int `name:"totals of another database on the cache"`
	Cuts      int `name:"cuts of the power of a machine, or of a connection"`
	Virtual   time.Duration
	Faults    [mostFaults]int
}

// each visits the numbers of c with their names.
func (c *Counts) each(visit func(name string, n int)) {
	fields := reflect.ValueOf(c).Elem()
	for i := range fields.NumField() {
		if name, ok := fields.Type().Field(i).Tag.Lookup("name"); ok {
			visit(name, int(fields.Field(i).Int()))
		}
	}
}

// A Tally adds up what schedules did. It stays small however many there are.
type Tally struct {
	Counts
	Schedules int
	Least     int       // calls in the schedule that had fewest
	Few       int       // schedules that had fewer than leastCalls
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
	one := Tally{Counts: r.Counts, Schedules: 1, Least: r.Calls}
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
	sums, others := reflect.ValueOf(&t.Counts).Elem(), reflect.ValueOf(&o.Counts).Elem()
	for i := range sums.NumField() {
		if sum := sums.Field(i); sum.CanInt() {
			sum.SetInt(sum.Int() + others.Field(i).Int())
		}
	}
	for i, n := range o.Faults {
		t.Faults[i] += n
	}
	t.Schedules += o.Schedules
	t.Few += o.Few
	t.Wrong += o.Wrong
	t.Failures = append(t.Failures, o.Failures...)
	t.Failures = t.Failures[:min(len(t.Failures), mostFailures)]
}

// Rare names the faults that were hit less than least times.
func (t *Tally) Rare(least int) (rare []string) {
	for i, name := range faultNames {
		if n := t.Faults[i]; n < least {
			rare = append(rare, fmt.Sprintf("fault %q: %d", name, n))
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
	row("calls in the shortest schedule", t.Least)
	row(fmt.Sprintf("schedules with fewer than %d calls", leastCalls), t.Few)
	t.each(func(name string, n int) { row(name, n) })
	row("virtual time", t.Virtual.Round(time.Second))
	row("wall time", wall.Round(100*time.Millisecond))
	for i, name := range faultNames {
		row("fault: "+name, t.Faults[i])
	}
	return b.String()
}
