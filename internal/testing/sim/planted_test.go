package sim

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/testing/bugtest"
)

// plantedMost is in how many schedules each bug has to be found each time.
const plantedMost = 20_000

// Every bug can still be planted.
func TestBugsCanBePlanted(t *testing.T) { bugtest.Check(t) }

// showStory is the variable that makes TestPlanted show the smallest schedule with each bug.
const showStory = "COUNTMILL_TEST_STORY"

// The simulator must be able to fail: every planted bug breaks a promise, and is found in
// every run, or the file names a test of its package that finds it. COUNTMILL_TEST_PLANTED is how many runs there are for each, and -schedules bounds a run. COUNTMILL_WRITE_REFERENCE writes
// the results into the page of evidence.
func TestPlanted(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv("COUNTMILL_TEST_PLANTED"))
	if err != nil {
		t.Skip("COUNTMILL_TEST_PLANTED is not a number of runs: 5 take half an hour")
	}
	all := bugtest.Read(t, "testdata/bugs")
	planter, found, signs := bugtest.Build(t, all), make([]findings, len(all)), make([]string, len(all))
	t.Cleanup(func() {
		t.Logf("schedules until a bug is found\n%-42s %6s %6s %6s  %s%s", "bug", "caught", "mean", "max", "by", strings.Join(signs, ""))
		if os.Getenv("COUNTMILL_WRITE_REFERENCE") != "" {
			if err := os.WriteFile("../../../docs/evidence/planted.md", []byte(plantedPage(all, found, runs)), 0o600); err != nil {
				t.Error(err)
			}
		}
	})
	for i, b := range all {
		t.Run(b.Name, func(t *testing.T) {
			t.Parallel()
			f := &found[i]
			for range runs {
				f.hunt(t, planter.Command(t, &b, "-test.run", "^TestFreshSeeds$", "-test.v", "-test.timeout", "20m", "-hunt", "-schedules", strconv.Itoa(mostPlanted())))
			}
			signs[i] = fmt.Sprintf("\n%-42s %d of %d %6d %6d  %s", b.Name, f.caught, runs, f.all/max(f.caught, 1), f.most,
				strings.Join(f.by, fmt.Sprintf("\n%66s", "")))
			t.Log(signs[i])
			if f.caught < runs && b.Found == "" {
				t.Errorf("%s: found in %d of %d runs of %d schedules each", b.What, f.caught, runs, mostPlanted())
			}
		})
	}
}

// mostPlanted is in how many schedules a bug has to be found.
func mostPlanted() int { return cmp.Or(*countFlag, plantedMost) }

// plantedPage is the page of evidence with the results.
func plantedPage(all []bugtest.Bug, found []findings, runs int) string {
	var means []int
	for i := range found {
		if f := &found[i]; f.caught > 0 {
			means = append(means, f.all/f.caught)
		}
	}
	slices.Sort(means)
	page := fmt.Sprintf(`# Planted bugs and the simulator

`+"`COUNTMILL_WRITE_REFERENCE=1 COUNTMILL_TEST_PLANTED=%d go test ./internal/testing/sim -run 'TestPlanted$' -timeout 4h`"+` writes this page. It plants each
bug in the product. Then it runs fresh schedules until one fails.

Runs of each bug: %d, of at most %d schedules each. The number is the mean of the runs that found the bug. The simulator found %d of %d bugs, and half of
them within %d schedules.

Schedules seldom bring about what these bugs need. A test of the package finds each of them:

`, runs, runs, mostPlanted(), len(means), len(all), means[len(means)/2])
	for _, b := range all {
		if b.Found != "" {
			page += fmt.Sprintf("- %s: `%s`\n", b.Name, b.Found)
		}
	}
	page += "\nSchedules, and the bugs that were found after so many:\n\n"
	after := make(map[int][]string)
	for i, b := range all {
		f := &found[i]
		if f.caught == 0 && b.Found != "" {
			continue
		}
		mean, name := f.all/max(f.caught, 1), b.Name
		if f.caught < runs {
			name += fmt.Sprintf(" (in %d of %d runs)", f.caught, runs)
		}
		after[mean] = append(after[mean], name)
	}
	for _, mean := range slices.Backward(slices.Sorted(maps.Keys(after))) {
		page += fmt.Sprintf("- %d: %s\n", mean, strings.Join(after[mean], ", "))
	}
	return page
}

// findings are the results of the runs for one bug, in schedules.
type findings struct {
	caught, all, most int
	by                []string // the violations, each kind once
}

var foundLine = regexp.MustCompile(`(?m)^found in schedule (\d+), seed \d+: (.*)$`)

// hunt runs fresh schedules until something is wrong.
func (f *findings) hunt(t *testing.T, hunt *exec.Cmd) {
	t.Helper()
	out, err := hunt.CombinedOutput()
	found := foundLine.FindStringSubmatch(string(out))
	switch {
	case err != nil: // a bug that makes a role panic shows nothing about the simulator
		t.Errorf("%v\n%.4000s", err, out)
		return
	case found == nil:
		return
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	if t.Log(found[0]); os.Getenv(showStory) != "" {
		t.Logf("%s", out)
	}
	f.caught, f.all, f.most = f.caught+1, f.all+n, max(f.most, n)
	kind := kindOf(found[2])
	if !slices.Contains(f.by, kind) {
		f.by = append(f.by, kind)
	}
}

var (
	names   = regexp.MustCompile(`\b(of "?|read |served )(a|b|below|poison|page:/[xy]|wide\d+)\b`)
	numbers = regexp.MustCompile(`[0-9a-f]{32}|\d+(\.\d+)*`)
)

// kindOf returns a violation without the names and numbers that differ between schedules.
func kindOf(violation string) string {
	return numbers.ReplaceAllString(names.ReplaceAllString(violation, "${1}x"), "#")
}
