package main

import (
	"context"
	"strings"
	"testing"

	"github.com/countmill/countmill/bench/internal/system"
)

func TestRatiosAreWithinRounds(t *testing.T) {
	t.Parallel()
	plan := []job{
		{system.System{Name: "ours", Against: "theirs"}, "hot"},
		{system.System{Name: "theirs/slow", Family: "theirs"}, "hot"},
		{system.System{Name: "theirs/fast", Family: "theirs"}, "hot"},
		{system.System{Name: "gone"}, "hot"},
	}
	results := []result{
		{System: "ours", Load: "hot", Round: 1, Rate: 40}, {System: "ours", Load: "hot", Round: 2, Rate: 60}, {System: "ours", Load: "hot", Round: 3, Rate: 1000, Error: "lost"},
		{System: "theirs/slow", Load: "hot", Round: 1, Rate: 1}, {System: "theirs/slow", Load: "hot", Round: 2, Rate: 1},
		{System: "theirs/fast", Load: "hot", Round: 1, Rate: 10}, {System: "theirs/fast", Load: "hot", Round: 2, Rate: 30}, {System: "theirs/fast", Load: "hot", Round: 3, Rate: 30},
		{System: "gone", Load: "hot", Round: 1, Missing: "not installed"},
	}
	var out strings.Builder
	if err := printTables(&out, plan, results); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| ours | 50 (40 to 60) | theirs/fast | 3 (2 to 4) | 2 | ERROR in round 3: lost |",
		"| gone | – | – | – | 0 | MISSING: not installed |",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no row %q in\n%s", want, out.String())
		}
	}
}

// A system that lost more than the rounds differ fails the run. Both programs are in the plan, and each starts its own.
func TestSlowerThanAnEarlierProgram(t *testing.T) {
	t.Parallel()
	var opened string
	open := func(_ context.Context, at system.Place) (system.Instance, error) {
		opened = at.Countmill
		return nil, nil
	}
	systems := withBefore([]system.System{{Name: "redis"}, {Name: "http/ndjson", Loads: []string{"zipf"}, Open: open}}, "old")
	plan := choose(config{only: []string{"http/ndjson"}}, systems)
	if len(plan) != 2 {
		t.Fatalf("the plan is %v", plan)
	}
	for i, want := range []string{"new", "old"} {
		if _, err := plan[i].system.Open(t.Context(), system.Place{Countmill: "new"}); err != nil || opened != want {
			t.Errorf("%s starts %q, want %q (%v)", plan[i].system.Name, opened, want, err)
		}
	}
	for rate, wrong := range map[float64]bool{100: false, 95: false, 90: true} {
		var results []result
		for round, noise := range []float64{1, 1, 0.5} {
			results = append(results, result{System: "http/ndjson", Load: "zipf", Round: round, Rate: rate * noise},
				result{System: "http/ndjson/before", Load: "zipf", Round: round, Rate: 100})
		}
		if err := slower(plan, results); (err != nil) != wrong {
			t.Errorf("%g beside 100: got %v", rate, err)
		}
	}
}

func TestEverySystemSaysWhatItMeans(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	families := make(map[string]bool)
	for _, s := range system.All() {
		families[s.Family] = true
		if s.Ack == "" || s.How == "" || len(s.Loads) == 0 || s.Version == nil || s.Open == nil || seen[s.Name] {
			t.Errorf("%s: something is missing, or the name is not unique: %+v", s.Name, s)
		}
		seen[s.Name] = true
	}
	for _, s := range system.All() {
		if s.Against != "" && !families[s.Against] {
			t.Errorf("%s is compared with %q, which is not a family", s.Name, s.Against)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	c, err := parse([]string{"-quick", "-rounds", "2", "-only", "a,b"}, t.Output())
	if err != nil || c.rounds != 2 || c.goal.Increments != 1000 || len(c.only) != 2 {
		t.Errorf("got %+v, error %v", c, err)
	}
	for _, bad := range [][]string{{"-rounds", "0"}, {"-distinct", "15000"}, {"-seconds", "2", "-most", "1"}, {"x"}} {
		if _, err := parse(bad, t.Output()); err == nil {
			t.Errorf("%q: got no error", bad)
		}
	}
}
