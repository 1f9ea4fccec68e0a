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
