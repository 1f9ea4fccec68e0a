package archtest

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The limits of what a user downloads and waits for: docs/evidence/size.md has the figures, and the
// reason of each. Raise one together with its figure.
const (
	maxBinary   = 36 << 20
	maxPackages = 718
)

// The binary that `go build` makes, and the packages compiled for it, stay below their limits on linux/amd64
// without cgo. A new import can add a tenth to either, and nobody would notice.
func TestBinarySize(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("links countmill")
	}
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the limits are those of linux/amd64")
	}
	env := append(os.Environ(), "CGO_ENABLED=0")
	packages := len(strings.Fields(shell(t, root, env, "go list -deps ./cmd/countmill")))
	file := filepath.Join(t.TempDir(), "countmill")
	shell(t, root, env, "go build -o '"+file+"' ./cmd/countmill")
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes, %d packages", info.Size(), packages)
	if info.Size() > maxBinary {
		t.Errorf("the binary has %d bytes, at most %d are allowed; `make size` shows the packages that they come from", info.Size(), maxBinary)
	}
	if packages > maxPackages {
		t.Errorf("the binary is made of %d packages, at most %d are allowed; `make size` shows the modules that they come from", packages, maxPackages)
	}
}

// With the tag nogoogle the program has nothing of Google's clients, and a URL that needs them gets an error
// which names the tag.
func TestWithoutGoogle(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("links countmill")
	}
	env := append(os.Environ(), "CGO_ENABLED=0")
	for _, p := range strings.Fields(shell(t, root, env, "go list -tags nogoogle -deps ./cmd/countmill")) {
		for _, google := range []string{"cloud.google.com/", "google.golang.org/api", "google.golang.org/grpc", "github.com/ThreeDotsLabs/watermill-googlecloud"} {
			if strings.HasPrefix(p, google) {
				t.Errorf("with -tags nogoogle the program still has %s", p)
			}
		}
	}
	file := filepath.Join(t.TempDir(), "countmill")
	shell(t, root, env, "go build -tags nogoogle -o '"+file+"' ./cmd/countmill")
	for _, command := range []string{
		"reader --store datastore://project",
		"publisher --bus pubsub://project/topic",
		"adopt gae --project project --dry-run",
	} {
		out := shell(t, t.TempDir(), env, "'"+file+"' "+command+" 2>&1 || true")
		if !strings.Contains(out, "-tags nogoogle") {
			t.Errorf("countmill %s wrote %q, which does not name the tag", command, out)
		}
	}
}
