package bugtest

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Found plants the bugs of the package in the working directory that name a test, one at a time, and
// runs this test COUNTMILL_TEST_PLANTED times. It has to fail each time.
func Found(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv("COUNTMILL_TEST_PLANTED"))
	if err != nil {
		t.Skip("COUNTMILL_TEST_PLANTED is not a number of runs: 5 take a minute")
	}
	bugs := slices.DeleteFunc(Read(t, all), func(b Bug) bool { return b.Found == "" })
	planter := Build(t, bugs)
	for _, b := range bugs {
		t.Run(b.Name, func(t *testing.T) {
			cmd := planter.Command(t, &b, "-test.v", "-test.timeout", "5m",
				"-test.count", strconv.Itoa(runs), "-test.run", pattern(b.Found))
			out, err := cmd.CombinedOutput()
			if strings.Contains(string(out), "--- SKIP: "+b.Found+" ") {
				t.Skipf("%s was skipped:\n%.4000s", b.Found, out)
			}
			if n := strings.Count(string(out), "--- FAIL: "+b.Found+" "); n != runs {
				t.Errorf("%s: %s failed %d times of %d (%v):\n%.4000s", b.What, b.Found, n, runs, err, out)
			}
		})
	}
}

// pattern matches a test, or a test in a test, and no other.
func pattern(name string) string {
	return "^" + strings.ReplaceAll(name, "/", "$/^") + "$"
}
