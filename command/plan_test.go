package command

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

func TestPlan(t *testing.T) {
	t.Parallel()
	got := try(t, nil, "plan", "--rate", "1e5", "--publishers", "10", "--totals", "100")
	if got.code != 0 || got.errOut != "" {
		t.Fatalf("got %+v", got)
	}
	rows := make(map[string]string)
	for line := range strings.Lines(got.out) {
		if len(line) > 60 && !strings.HasPrefix(line, "-") {
			rows[strings.TrimSpace(line[:32])] = strings.Join(strings.Fields(line[32:]), " ")
		}
	}
	for row, want := range map[string]string{
		"":                         "countmill classic counter",
		"shards":                   "10 100,000",
		"aggregators":              "1 -",
		"messages/s":               "40 -",
		"commits/s":                "8 100,000",
		"for a million increments": "485 1,000,000",
		"markers stored":           "28,200,000 -",
	} {
		if rows[row] != want {
			t.Errorf("%s: got %q, want %q", row, rows[row], want)
		}
	}
	for _, want := range []string{
		"100,000 increments/s to 1 counter from 10 publishers\n", "- markers are 83 % of what is written", "Prices: Pub/Sub 2026-09-20,",
	} {
		if !strings.Contains(got.out, want) {
			t.Errorf("no %q in:\n%s", want, got.out)
		}
	}
}

// Every price and the rate at which they are charged is the caller's to say.
func TestPlanAsJSON(t *testing.T) {
	t.Parallel()
	got := try(t, nil, "plan", "--json", "--rate", "1e4", "--counters", "1e3", "--zipf=1.1", "--ids", "0.5", "--aggregators", "3",
		"--price-write", "0", "--price-read", "0", "--price-pubsub", "0", "--price-storage", "0", "--price-delete", "10", "--prices-as-of", "today")
	var a planAnswer
	if err := json.Unmarshal([]byte(got.out), &a); err != nil || got.code != 0 {
		t.Fatalf("got %+v, error %v", got, err)
	}
	month := a.Countmill.Month
	if a.Aggregators != 3 || a.Flags["counters"] != "1000" || a.Flags["prices-as-of"] != "today" || a.Flags["commit-time"] != "50ms" {
		t.Errorf("got %d aggregators, flags %v", a.Aggregators, a.Flags)
	}
	if a.Countmill.MarkersWritten < 5000 || month.Total != month.Deletes || month.Total == 0 || a.Classic.Month.Total != 0 {
		t.Errorf("got %+v and %+v, want half of 10,000/s as markers, and deletes alone to cost", a.Countmill, a.Classic)
	}
}

// An index has its sums in commits, its workers' reads, and the price of its build; a scan for a leaderboard has its
// price too.
func TestPlanOfAnIndex(t *testing.T) {
	t.Parallel()
	args := []string{"plan", "--rate", "1e4", "--counters", "1e5", "--publishers", "10", "--groups", "100", "--index-counters", "5e4", "--board-rate", "50", "--board-counters", "1e5"}
	got := try(t, nil, args...)
	for _, want := range []string{
		"\n  groups     ", "\n  by index workers     ",
		"- the build of the index reads 51700 entities, a shard of each counter or more, and writes 3200, for 0.04 dollars",
		"- a scan for a leaderboard reads 200000 entities, a record, the shards and 0 days of each counter, in 66.7 minutes, for 0.12 dollars\n- no scan ends",
	} {
		if got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("no %q in %+v", want, got)
		}
	}
	var a planAnswer
	got = try(t, nil, append(args, "--json")...)
	if err := json.Unmarshal([]byte(got.out), &a); err != nil || got.code != 0 {
		t.Fatalf("got %+v, error %v", got, err)
	}
	c := a.Countmill
	if c.GroupsWritten <= 0 || c.IndexRead <= 0 || math.Round(c.IndexBuild.Read) != 51_700 || math.Round(c.IndexBuild.Written) != 3200 || c.IndexBuild.Dollars <= 0 || c.BoardScanDollars <= 0 || a.Flags["groups"] != "100" {
		t.Errorf("got %+v and flags %v", c, a.Flags)
	}
	if got = try(t, nil, "plan", "--rate", "1", "--counters", "5"); strings.Contains(got.out, "index") || strings.Contains(got.out, "groups") {
		t.Errorf("without an index:\n%s", got.out)
	}
}

func TestPlanRefuses(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                                  "--rate is missing",
		"--rate 0":                          "--rate: must be from 0.001 to 1e+10, got 0",
		"--rate x":                          `--rate: must be a number such as 1e6, got "x"`,
		"--rate 1 --counters 1.5":           `--counters: must be a whole number such as 1000 or 1e6, got "1.5"`,
		"--rate 1 --ids 2 --commit-time 2m": "--ids: must be from 0 to 1, got 2; --commit-time: must be from 1ms to 10s, got 2m0s",
		"--rate 1 page:":                    `the command takes no arguments, got "page:"`,
		"--rate 1 --colour":                 "unknown flag: --colour (see countmill help plan)",
		"--rate 1 --counters 5 --asked 6":   "--asked: must be from 0 to 5, got 6",
		"--rate 1 --counters 5 --groups 6":  "--groups: must be from 0 to 5, got 6",
		"--rate 1 --price-write -1":         "--price-write: must be from 0 to 1e+06, got -1",
	} {
		try(t, nil, append([]string{"plan"}, strings.Fields(args)...)...).wantError(t, 2, want)
	}
}

func TestShortNumbers(t *testing.T) {
	t.Parallel()
	for n, want := range map[float64]string{
		0: "0", 0.004: "<0.01", 0.126: "0.13", 1: "1", 8.004: "8", 9.98: "9.98", 12.34: "12.3", 123.4: "123", 999.6: "1,000", 1234: "1,230",
		1e6: "1,000,000", 27_936_123: "27,900,000",
	} {
		if got := short(n); got != want {
			t.Errorf("%g: got %q, want %q", n, got, want)
		}
	}
}
