// Command size measures the first build of countmill, with an empty module cache and an empty build cache:
// the bytes that the go command downloads, unpacks, compiles and links. It then shows the modules with the
// most bytes, and the cost of each import that could go. It needs the module proxy, and some minutes.
//
//	go -C tools run ./size
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	root    = ".."
	program = "./cmd/countmill"
	module  = "github.com/countmill/countmill"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() (err error) {
	dir, err := os.MkdirTemp("", "countmill-size-")
	if err != nil {
		return err
	}
	c := caches{dir}
	defer func() { err = errors.Join(err, c.remove()) }()
	began := time.Now()
	if _, err := c.goTool("build", "-o", c.binary(), program); err != nil {
		return err
	}
	took := time.Since(began)
	all, err := c.measure()
	if err != nil {
		return err
	}
	fmt.Printf("%.0f s\n", took.Seconds())
	all.print(os.Stdout)
	return nil
}

// caches are the empty caches of a first build.
type caches struct{ dir string }

func (c caches) modules() string { return filepath.Join(c.dir, "mod") }
func (c caches) builds() string  { return filepath.Join(c.dir, "build") }
func (c caches) binary() string  { return filepath.Join(c.dir, "countmill") }

func (c caches) goTool(args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOMODCACHE="+c.modules(), "GOCACHE="+c.builds())
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	return out.String(), nil
}

// remove deletes the caches. The go command makes modules read-only.
func (c caches) remove() error {
	if _, err := c.goTool("clean", "-modcache"); err != nil {
		return err
	}
	return os.RemoveAll(c.dir)
}

// bytesBelow adds up the files below a directory whose names have a suffix.
func bytesBelow(dir, suffix string) (total int64, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, suffix) {
			return err
		}
		info, err := d.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	return total, err
}
