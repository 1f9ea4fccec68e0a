package archtest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/testing/longtest"
)

// builds are two ways to build countmill with `CGO_ENABLED=0 go build`, each with the limits of the binary's bytes and
// of the packages compiled for it. docs/evidence/benchmarks.md has the figures: change a limit and its figure together.
// TestRelease has the limit of a release.
var builds = []struct {
	tags        string
	maxSize     int64
	maxPackages int
}{
	{tags: "", maxSize: 62.0e6, maxPackages: 777},
	{tags: "nogoogle", maxSize: 42.1e6, maxPackages: 529},
}

// Binaries stay below their limits on linux/amd64. One new import can add a tenth, and nobody would notice.
func TestBinarySize(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "links countmill twice")
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the limits are those of linux/amd64")
	}
	for _, b := range builds {
		file, packages := buildWith(t, b.tags)
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("tags %q: %d bytes, %d packages", b.tags, info.Size(), len(packages))
		if info.Size() > b.maxSize || len(packages) > b.maxPackages {
			t.Errorf("tags %q: the binary has %d bytes from %d packages, the limits are %d and %d; `go version -m` and `go list -deps` show their modules",
				b.tags, info.Size(), len(packages), b.maxSize, b.maxPackages)
		}
	}
}

// buildWith builds countmill with build tags, and returns its file and its packages.
func buildWith(t *testing.T, tags string) (file string, packages []string) {
	t.Helper()
	env := append(os.Environ(), "CGO_ENABLED=0")
	file = filepath.Join(t.TempDir(), "countmill")
	shell(t, root, env, fmt.Sprintf("go build -tags '%s' -o '%s' ./cmd/countmill", tags, file))
	return file, strings.Fields(shell(t, root, env, fmt.Sprintf("go list -tags '%s' -deps ./cmd/countmill", tags)))
}

// With the tag nogoogle the program has nothing of Google's clients. A command that needs them gets an error that
// names the tag.
func TestWithoutGoogle(t *testing.T) {
	t.Parallel()
	longtest.Only(t, "links countmill")
	file, packages := buildWith(t, "nogoogle")
	for _, p := range packages {
		for _, google := range []string{"cloud.google.com/", "google.golang.org/api", "google.golang.org/grpc", "github.com/ThreeDotsLabs/watermill-googlecloud"} {
			if strings.HasPrefix(p, google) {
				t.Errorf("with -tags nogoogle the program still has %s", p)
			}
		}
	}
	for _, command := range []string{
		"reader --store datastore://project",
		"publisher --bus pubsub://project/topic",
	} {
		out := shell(t, t.TempDir(), os.Environ(), "'"+file+"' "+command+" 2>&1 || true")
		if !strings.Contains(out, "-tags nogoogle") {
			t.Errorf("countmill %s wrote %q, which does not name the tag", command, out)
		}
	}
}
