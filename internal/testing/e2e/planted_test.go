package e2e

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/countmill/countmill/internal/testing/bugtest"
)

// Chaos and kills must be able to fail. The test builds countmill with a bug of the simulator's and
// runs them until something is wrong. COUNTMILL_TEST_PLANTED is the most runs for each bug. Not every
// bug can be found here. For example, the look-up before a retry hides a fresh marker on it, except in
// a moment that only the simulator can aim at.
func TestPlanted(t *testing.T) {
	runs, err := strconv.Atoi(os.Getenv("COUNTMILL_TEST_PLANTED"))
	if err != nil {
		t.Skip("COUNTMILL_TEST_PLANTED is not a number of runs: each takes minutes")
	}
	bugs := bugtest.Read(t, "../sim/testdata/bugs")
	for _, tt := range []struct{ test, bug string }{
		{"TestKills", "01-ack-before-commit"},
		{"TestKills", "02-marker-in-its-own-commit"},
		{"TestKillsOnPostgreSQL", "01-ack-before-commit"},
		{"TestFullWALOnPostgreSQL", "01-ack-before-commit"},
		{"TestNATS", "01-ack-before-commit"},
		{"TestNATS", "02-marker-in-its-own-commit"},
		{"TestFullDisk", "01-ack-before-commit"},
		{"TestChaos", "01-ack-before-commit"},
		{"TestChaos", "02-marker-in-its-own-commit"},
		{"TestChaos", "06-resent-under-new-ids"},
		{"TestChaos", "20-unavailable-after-flushing"},
		{"TestChaos", "22-no-marker-where-the-bus-repeats"},
	} {
		t.Run(tt.test+"/"+tt.bug, func(t *testing.T) {
			i := slices.IndexFunc(bugs, func(b bugtest.Bug) bool { return b.Name == tt.bug })
			if i < 0 {
				t.Fatal("there is no such bug")
			}
			overlay := bugs[i].Overlay(t)
			for run := range runs {
				if found := findPlanted(t, tt.test, overlay); found != "" {
					t.Logf("%s: found in run %d: %s", bugs[i].What, run+1, found)
					return
				}
			}
			t.Errorf("%s: not found in %d runs", bugs[i].What, runs)
		})
	}
}

// foundBy matches the messages of these tests about wrong totals, as opposed to slow ones.
var foundBy = regexp.MustCompile(`(?m)^.*(holds increment|holds what nobody sent|must come after|which lacks some of it|no order has both` +
	`|it was \d+ before|\d+ were sent|that had been acknowledged are in no total|in vain for all that was acknowledged|totals are not what the ledger says|something counted twice|increments are missing).*$`)

// findPlanted runs a test on a countmill with the bug, and returns the message about wrong totals.
func findPlanted(t *testing.T, test, overlay string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+test+"$", "-test.v", "-test.timeout", "20m")
	cmd.Env = append(os.Environ(), "COUNTMILL_TEST_OVERLAY="+overlay, "COUNTMILL_TEST_REQUIRE=emulators")
	cmd.WaitDelay = time.Minute
	out, err := cmd.CombinedOutput()
	found := foundBy.Find(out)
	if err != nil && found == nil {
		t.Errorf("%s failed, for another reason: %v\n%.8000s", test, err, out)
	}
	return string(found)
}
