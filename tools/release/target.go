package main

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A target is a platform that a release has an archive for.
type target struct{ os, arch string }

// targets are built and vetted. Only linux/amd64 has been run: docs/evidence/unverified.md has a
// check for each of the others.
var targets = []target{
	{"linux", "amd64"},
	{"linux", "arm64"},
	{"darwin", "amd64"},
	{"darwin", "arm64"},
	{"windows", "amd64"},
}

const (
	module  = "github.com/countmill/countmill"
	program = "./cmd/countmill"
)

func (t target) String() string { return t.os + "/" + t.arch }

// binary is the name of the program in an archive.
func (t target) binary() string {
	if t.os == "windows" {
		return "countmill.exe"
	}
	return "countmill"
}

// env is the environment of every go command about the target. GOFLAGS has its default: a developer's
// flags must not get into a release.
func (t target) env(cache string) []string {
	env := append(os.Environ(), "GOOS="+t.os, "GOARCH="+t.arch, "GOAMD64=v1", "GOARM64=v8.0",
		"CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOWORK=off")
	if cache != "" {
		env = append(env, "GOCACHE="+cache)
	}
	return env
}

// goTool runs a go command about the target in dir and returns its output.
func (t target) goTool(dir, cache string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, t.env(cache)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: go %s: %w\n%s", t, strings.Join(args, " "), err, errs.String())
	}
	return out.String(), nil
}

// A build has the source and the version of a binary.
type build struct {
	source            string // the directory of the source
	version, revision string
	cache             string // of the go command; empty is the user's
}

// flags are the flags of go build. Every flag has its reason in the package comment.
func (b build) flags() []string {
	app := module + "/internal/app"
	ldflags := fmt.Sprintf("-s -X %s.version=%s -X %s.revision=%s", app, b.version, app, b.revision)
	return []string{"-trimpath", "-buildvcs=false", "-tags=grpcnotrace", "-ldflags=" + ldflags}
}

// make builds the target's binary into a file.
func (b build) make(t target, file string) error {
	_, err := t.goTool(b.source, b.cache, append(append([]string{"build"}, b.flags()...), "-o", file, program)...)
	if err != nil {
		return err
	}
	return static(t, file)
}

// vet vets the packages of countmill in the binary.
func (b build) vet(t target) error {
	own, err := t.goTool(b.source, b.cache, "list", "-deps", "-tags=grpcnotrace", "-f", "{{with .Module}}{{if .Main}}{{$.ImportPath}}{{end}}{{end}}", program)
	if err != nil {
		return err
	}
	_, err = t.goTool(b.source, b.cache, append([]string{"vet", "-tags=grpcnotrace"}, strings.Fields(own)...)...)
	return err
}

// static returns an error if a Linux binary needs a loader or a library.
func static(t target, file string) error {
	if t.os != "linux" {
		return nil
	}
	f, err := elf.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return err
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			libraries = append(libraries, "a loader")
		}
	}
	if len(libraries) > 0 {
		return fmt.Errorf("%s: the binary is not static, it needs %s", t, strings.Join(libraries, ", "))
	}
	return nil
}

// sum is the SHA-256 of a file, in hexadecimal.
func sum(file string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", sha256.Sum256(data)), nil
}

// notCopied are no part of the program.
var notCopied = map[string]bool{".git": true, "bench": true, "dist": true, "tools": true, "docs": true, "countmill-data": true}

// copySource copies the program's source into a directory, without tests: some of them need Unix, and
// vet would read them for Windows.
func copySource(from, to string) error {
	return filepath.WalkDir(from, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && notCopied[name]:
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(to, name), 0o755)
		case !d.Type().IsRegular() || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), data, 0o644)
	})
}
