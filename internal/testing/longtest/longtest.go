// Package longtest marks the tests that are not needed before every change: they take many seconds of real
// time, or depend on the speed of the machine. `make full` runs them.
package longtest

import (
	"os"
	"testing"
)

// Variable has to be set for long tests to run.
const Variable = "COUNTMILL_TEST_LONG"

// Only skips t, with the reason why it is long, unless [Variable] is set and the run is not short.
func Only(t testing.TB, why string) {
	t.Helper()
	switch {
	case os.Getenv(Variable) == "":
		t.Skip(why + "; set " + Variable + "=1, or run make full")
	case testing.Short():
		t.Skip(why)
	}
}
