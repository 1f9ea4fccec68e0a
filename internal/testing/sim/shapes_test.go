package sim

import "testing"

// enough is in how many schedules each shape has to occur at least once.
const enough = 5_000

// Schedules do what docs/evidence/tests.md says of them.
func TestShapes(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes some seconds")
	}
	var tally Tally
	for tally.Schedules < enough && tally.missing() != nil {
		tally.Add(run(t, 1+uint64(tally.Schedules), false))
	}
	t.Logf("%d schedules: %v, faults %v", tally.Schedules, tally.Shapes, tally.Faults)
	for _, name := range tally.missing() {
		t.Errorf("%q occurred in none of %d schedules", name, tally.Schedules)
	}
	report(t, &tally, 1)
}

// missing names the shapes, and the faults of letters, times and windows, that have not occurred.
func (t *Tally) missing() (names []string) {
	for s, n := range t.Shapes {
		if n == 0 {
			names = append(names, Shape(s).String())
		}
	}
	for _, f := range []Fault{GivenUp, ReplayAsked, AskedAsNew, DeadLetterDiscarded, PastEvent, WindowLonger, WindowShorter, IDReused} {
		if t.Faults[f] == 0 {
			names = append(names, f.String())
		}
	}
	return names
}
