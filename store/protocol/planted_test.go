package protocol_test

import (
	"testing"

	"github.com/countmill/countmill/internal/testing/bugtest"
)

const bugs = "testdata/bugs"

// Every planted bug still applies to the code.
func TestBugsCanBePlanted(t *testing.T) {
	t.Parallel()
	bugtest.Check(t, bugtest.Read(t, bugs))
}

func TestPlantedBugs(t *testing.T) { bugtest.Found(t, bugs) }
