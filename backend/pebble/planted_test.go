package pebble

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/testing/bugtest"
)

// Every planted bug still applies to the code.
func TestBugsCanBePlanted(t *testing.T) { bugtest.Check(t) }

// Some bugs do not need a loss of power: a test of its own finds each.
func TestPlantedSuiteBugs(t *testing.T) { bugtest.Found(t) }

// plantedCuts is the number of power cuts within which each bug must be found.
const plantedCuts = 10_000

// Power cuts find every planted bug. COUNTMILL_TEST_PLANTED is the number of runs for each bug, and
// each run must find it.
func TestPlanted(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv("COUNTMILL_TEST_PLANTED"))
	if err != nil {
		t.Skip("COUNTMILL_TEST_PLANTED is not a number of runs: 5 take some minutes")
	}
	images := t.TempDir() // images of failed machines; here failures are expected
	var rows strings.Builder
	bugs := bugtest.Read(t, "testdata/bugs")
	planter := bugtest.Build(t, bugs)
	for _, b := range bugs {
		t.Run(b.Name, func(t *testing.T) {
			caught, all, most := 0, 0, 0
			for range runs {
				cmd := planter.Command(t, &b, "-test.run", "^TestPowerCut$", "-test.v", "-cuts", strconv.Itoa(plantedCuts))
				cmd.Env = append(cmd.Env, "TMPDIR="+images)
				out, err := cmd.CombinedOutput()
				ran := ranLine.FindSubmatch(out)
				if err == nil {
					t.Errorf("%s: not found in %d power cuts", b.What, plantedCuts)
					continue
				}
				if ran == nil {
					t.Fatalf("%v\n%.4000s", err, out)
				}
				n, err := strconv.Atoi(string(ran[1]))
				if err != nil {
					t.Fatal(err)
				}
				caught, all, most = caught+1, all+n, max(most, n)
			}
			fmt.Fprintf(&rows, "\n%-32s %d of %d %6d %6d", b.Name, caught, runs, all/max(caught, 1), most)
		})
	}
	t.Logf("power cuts until a bug is found\n%-32s %6s %6s %6s%s", "bug", "caught", "mean", "max", rows.String())
}

var ranLine = regexp.MustCompile(`(\d+) power cuts of \d+ machines`)
