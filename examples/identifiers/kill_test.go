package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/testing/longtest"
)

// The totals of a countmill that is killed in the middle of its work are exact.
func TestAgreesWithACountmillThatIsKilled(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "builds countmill and kills it")
	var out strings.Builder
	args := []string{
		"--limit", "100000", "--batch", "500", "--kill", "5",
		"--binary", build(t), "--data", filepath.Join(t.TempDir(), "data"),
	}
	if err := run(t.Context(), args, &out, t.Output()); err != nil {
		t.Fatal(err)
	}
	if want := "kills                       5\n"; !strings.Contains(out.String(), want) {
		t.Errorf("report %q has no row %q", out.String(), want)
	}
}

// build builds countmill as users do.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "countmill")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/countmill").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return binary
}
