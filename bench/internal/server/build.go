package server

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/countmill/countmill/internal/testing/child"
)

// TempDir makes a directory in parent; "" means the system's temporary directory. It is removed by
// remove, and when this process has ended in any way.
func TempDir(parent string) (dir string, remove func(), err error) {
	if dir, err = os.MkdirTemp(parent, "countmill-bench-"); err != nil {
		return "", nil, err
	}
	var guard *child.Guard
	if dir, err = filepath.Abs(dir); err == nil {
		err = os.Chmod(dir, 0o755) // PostgreSQL runs as another user than root
	}
	if err == nil {
		guard, err = child.GuardDirs(dir)
	}
	if err != nil {
		_ = os.RemoveAll(dir)
		return "", nil, err
	}
	return dir, func() {
		_ = os.RemoveAll(dir)
		guard.End()
	}, nil
}

// Build builds countmill in dir with the dependencies of its own module, not with the versions that the
// clients of other systems need. It returns the program's path.
func Build(ctx context.Context, dir string) (path string, err error) {
	sources, err := Output(ctx, exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/countmill/countmill"))
	if err != nil {
		return "", fmt.Errorf("find countmill's sources (run this in bench/, or name a binary with -countmill): %w", err)
	}
	path = filepath.Join(dir, "countmill")
	cmd := exec.Command("go", "build", "-o", path, "./cmd/countmill")
	cmd.Dir = strings.TrimSpace(string(sources))
	_, err = Output(ctx, cmd)
	return path, err
}
