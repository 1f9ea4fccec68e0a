package main

import (
	"errors"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
)

// errEnough ends a walk that has seen the requested number of identifiers.
var errEnough = errors.New("enough")

// identifiers calls f for each occurrence of an identifier in the Go files under cfg.source, in the
// same order every time, up to cfg.limit.
func identifiers(cfg config, f func(name string) error) error {
	n := 0
	err := filepath.WalkDir(cfg.source, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return scan(path, text, func(name string) error {
			if cfg.limit > 0 && n == cfg.limit {
				return errEnough
			}
			n++
			return f(name)
		})
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// scan calls f for each identifier of a file. A file that does not compile (the standard library has
// some, for tests) is scanned as far as possible.
func scan(path string, text []byte, f func(name string) error) error {
	var s scanner.Scanner
	set := token.NewFileSet()
	s.Init(set.AddFile(path, -1, len(text)), text, nil, 0)
	for {
		_, tok, name := s.Scan()
		if tok == token.EOF {
			return nil
		}
		if tok != token.IDENT {
			continue
		}
		if err := f(name); err != nil {
			return err
		}
	}
}

// count is the independent count: a plain map over a pass of its own.
func count(cfg config) (map[string]int64, int64, error) {
	names := make(map[string]int64)
	var all int64
	err := identifiers(cfg, func(name string) error {
		names[name]++
		all++
		return nil
	})
	if err == nil && all == 0 {
		err = errors.New("no identifiers")
	}
	return names, all, err
}
