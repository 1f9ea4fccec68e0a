package postgres_test

import (
	"testing"

	"github.com/countmill/countmill/internal/testing/bugtest"
)

const suiteBugs = "testdata/suitebugs"

// Every planted bug still applies to the code.
func TestBugsCanBePlanted(t *testing.T) {
	t.Parallel()
	bugtest.Check(t, bugtest.Read(t, suiteBugs))
}

func TestPlantedSuiteBugs(t *testing.T) { bugtest.Found(t, suiteBugs) }
