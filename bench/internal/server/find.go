package server

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Find returns the path of a program: from the PATH, or the last match of the patterns.
func Find(name string, patterns ...string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, pattern := range patterns {
		found, _ := filepath.Glob(pattern)
		if len(found) > 0 {
			slices.Sort(found)
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("%s: %w", name, ErrMissing)
}

// Says returns the first line of a program's output, for its version.
func Says(path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	// wrk exits with an error after it has printed its version.
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if line == "" {
		return "", fmt.Errorf("ask %s for its version: %w", path, err)
	}
	return line, nil
}

// A User is the user that a server runs as.
type User struct{ UID, GID uint32 }

// Unprivileged returns the user of that name if this process runs as root, for servers that refuse to;
// nil if it does not.
func Unprivileged(name string) (*User, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("run as %s: %w", name, err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	return &User{uint32(uid), uint32(gid)}, err
}
