package coverage

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// least is the required coverage by tests in percent of the statements, without error texts.
const least = 95

var packages = []string{"./aggregator/...", "./publisher/...", "./reader/...", "./admin/...", "./sequence/...", "./internal/api/...", "./internal/shards/..."}

// Only the tests of the packages themselves run.
func TestCoverage(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the tests of the roles")
	}
	blocks := measure(t, "../..")
	list, err := readExplained("explained.txt")
	if err != nil {
		t.Fatal(err)
	}
	r := compare(blocks, list)
	for _, p := range r.problems {
		t.Error(p)
	}
	t.Logf("%d of %d statements: %.1f %%; %d explanations", r.covered, r.statements, r.share(), len(list))
	if r.share() < least {
		t.Errorf("tests cover %.2f %% of the statements, want %d %%", r.share(), least)
	}
}

// measure runs the tests, without environment variables that change them.
func measure(t *testing.T, root string) []*block {
	t.Helper()
	profile := filepath.Join(t.TempDir(), "profile")
	args := append([]string{"test", "-short", "-timeout", "8m", "-coverpkg", strings.Join(packages, ","), "-coverprofile", profile}, packages...)
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "COUNTMILL_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return read(t, root, profile)
}

func read(t *testing.T, root, profile string) []*block {
	t.Helper()
	f, err := os.Open(profile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	blocks, err := readProfile(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := describe(root, blocks); err != nil {
		t.Fatal(err)
	}
	return blocks
}
