package pebble

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/testing/bugtest"
)

// Every bug can still be planted.
func TestBugsCanBePlanted(t *testing.T) {
	t.Parallel()
	bugtest.Check(t, append(bugtest.Read(t, "testdata/bugs"), bugtest.Read(t, suiteBugs)...))
}

// suiteBugs are found without a loss of power, each by a test of its own.
const suiteBugs = "testdata/suitebugs"

func TestPlantedSuiteBugs(t *testing.T) { bugtest.Found(t, suiteBugs) }

// plantedCuts is within how many power cuts each bug has to be found each time.
const plantedCuts = 10_000

// Power cuts must be able to find something. COUNTMILL_TEST_PLANTED is how many runs there
// are for each bug, and each has to find it.
func TestPlanted(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv("COUNTMILL_TEST_PLANTED"))
	if err != nil {
		t.Skip("COUNTMILL_TEST_PLANTED is not a number of runs: 5 take some minutes")
	}
	images := t.TempDir() // those of machines that went wrong, as they should
	var rows strings.Builder
	for _, b := range bugtest.Read(t, "testdata/bugs") {
		t.Run(b.Name, func(t *testing.T) {
			binary := b.Build(t)
			caught, all, most := 0, 0, 0
			for range runs {
				cmd := exec.CommandContext(t.Context(), binary, "-test.run", "^TestPowerCut$", "-test.v", "-cuts", strconv.Itoa(plantedCuts))
				cmd.Env = append(os.Environ(), "TMPDIR="+images)
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
