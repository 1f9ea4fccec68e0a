package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// versions matches a version as the Go module proxy has it.
var versions = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func main() {
	var r release
	flag.StringVar(&r.root, "root", "..", "the directory of the repository")
	flag.StringVar(&r.out, "out", "../dist", "the directory for the archives")
	flag.StringVar(&r.version, "version", "", "the version, as v0.1.0")
	flag.StringVar(&r.revision, "revision", "unknown", "the commit")
	flag.BoolVar(&r.fresh, "fresh", false, "begin the second build of each binary with an empty cache")
	flag.Parse()
	if err := r.run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A release is one run of the command.
type release struct {
	root, out, version, revision string
	fresh                        bool
}

func (r release) run() error {
	if !versions.MatchString(r.version) {
		return fmt.Errorf("-version %q: write it as v0.1.0", r.version)
	}
	work, err := os.MkdirTemp("", "countmill-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	elsewhere := filepath.Join(work, "elsewhere")
	if err := copySource(r.root, elsewhere); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	var sums strings.Builder
	for _, t := range targets {
		name, hash, err := r.archive(t, work, elsewhere)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", hash, name)
		fmt.Printf("%-14s built twice, same bytes: %s\n", t, name)
	}
	for _, c := range clients {
		name, hash, err := c.pack(r)
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", hash, name)
		fmt.Printf("%-14s %s\n", c.language, name)
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(sums.String()), 0o644)
}

// archive vets the program for a target, builds it twice, and packs it.
func (r release) archive(t target, work, elsewhere string) (name, hash string, err error) {
	here := build{source: r.root, version: r.version, revision: r.revision}
	if err := (build{source: elsewhere}).vet(t); err != nil {
		return "", "", err
	}
	binary := filepath.Join(work, t.os+t.arch)
	if err := here.twice(t, binary, elsewhere, r.fresh); err != nil {
		return "", "", err
	}
	files, err := here.contents(t, binary)
	if err != nil {
		return "", "", err
	}
	folder := fmt.Sprintf("countmill_%s_%s_%s", strings.TrimPrefix(r.version, "v"), t.os, t.arch)
	ext, data, err := pack(t, folder, files)
	if err != nil {
		return "", "", err
	}
	name = folder + ext
	return name, fmt.Sprintf("%x", sha256.Sum256(data)), os.WriteFile(filepath.Join(r.out, name), data, 0o644)
}

// twice builds the binary into a file, and again from the source in another directory. It is an error if
// the two differ.
func (b build) twice(t target, binary, elsewhere string, fresh bool) error {
	if err := b.make(t, binary); err != nil {
		return err
	}
	again := b
	again.source = elsewhere
	if fresh {
		again.cache = filepath.Join(filepath.Dir(binary), "cache-"+t.os+t.arch)
		defer os.RemoveAll(again.cache)
	}
	second := binary + "-again"
	defer os.Remove(second)
	if err := again.make(t, second); err != nil {
		return err
	}
	first, err := sum(binary)
	if err != nil {
		return err
	}
	if got, err := sum(second); err != nil || got != first {
		return fmt.Errorf("%s: two builds of the same source differ: %s and %s in another directory (%v)", t, first, got, err)
	}
	return nil
}

// contents are the files of an archive.
func (b build) contents(t target, binary string) ([]file, error) {
	modules, err := b.linkedModules(t)
	if err != nil {
		return nil, err
	}
	goroot, err := t.goTool(b.source, b.cache, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	texts, err := licences(strings.TrimSpace(goroot), modules)
	if err != nil {
		return nil, err
	}
	list, err := moduleList(t, binary, modules)
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile(filepath.Join(b.source, "LICENSE"))
	if err != nil {
		return nil, err
	}
	return []file{{t.binary(), 0o755, program}, {"LICENSE", 0o644, own}, {"LICENCES.txt", 0o644, texts}, {"MODULES.txt", 0o644, list}}, nil
}
