package postgres_test

import (
	"testing"

	"github.com/countmill/countmill/internal/testing/bugtest"
)

func TestBugsCanBePlanted(t *testing.T) { bugtest.Check(t) }

func TestPlantedSuiteBugs(t *testing.T) { bugtest.Found(t) }
