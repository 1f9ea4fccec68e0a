package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// small is a program whose store has a module of its own, and shares another one with its bus.
func small() *measured {
	of := func(path, module string, compiled int64, imports ...string) *pkg {
		p := &pkg{ImportPath: path, Imports: imports, compiled: compiled}
		if module != "" {
			p.Module = &struct {
				Path, Version, Dir string
				Main               bool
			}{Path: module}
		}
		return p
	}
	m := &measured{
		packages: map[string]*pkg{},
		zipped:   map[string]int64{"example.com/own": 1e6, "example.com/shared": 2e6},
		unpacked: map[string]int64{"example.com/own": 3e6, "example.com/shared": 4e6},
	}
	for _, p := range []*pkg{
		of(module+"/cmd/countmill", module, 1e6, module+"/backend/pebble", module+"/backend/memcached", "fmt"),
		of(module+"/backend/pebble", module, 2e6, "example.com/own/db", "example.com/shared/a"),
		of(module+"/backend/memcached", module, 4e6, "example.com/shared/b"),
		of("example.com/own/db", "example.com/own", 8e6, "fmt"),
		of("example.com/shared/a", "example.com/shared", 16e6),
		of("example.com/shared/b", "example.com/shared", 32e6),
		of("fmt", "", 64e6, "runtime"),
		of("runtime", "", 0),
	} {
		m.packages[p.ImportPath] = p
	}
	return m
}

// Without a package its own imports go as well, unless other packages share them. A module goes with its last
// package.
func TestWithout(t *testing.T) {
	m := small()
	gone := m.without(removable{"backend/pebble", []string{module + "/backend/pebble"}})
	var paths []string
	for _, p := range gone {
		paths = append(paths, p.ImportPath)
	}
	slices.Sort(paths)
	if want := []string{"example.com/own/db", "example.com/shared/a", module + "/backend/pebble"}; !slices.Equal(paths, want) {
		t.Errorf("got %q, want %q", paths, want)
	}
	if got, want := m.sum(gone), (sum{packages: 3, compiled: 26e6, zipped: 1e6, unpacked: 3e6}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// Symbols belong to the package before their first dot after the last slash, also those of generic types;
// zeros and type data belong to none.
func TestLink(t *testing.T) {
	m := small()
	m.link(`  4f0000       100 T example.com/own/db.Open
  4f0100        20 T example.com/own/db.(*DB).Get
  4f0200         3 R type:*example.com/own/db.DB
  4f0300      1000 B example.com/own/db.cache
  4f0400         7 t fmt.init.0
  4f0500   9000000 R runtime.pclntab
           U puts
`)
	if got := m.packages["example.com/own/db"].linked; got != 120 {
		t.Errorf("example.com/own/db has %d linked bytes, want 120", got)
	}
	if got := m.packages["fmt"].linked; got != 7 {
		t.Errorf("fmt has %d linked bytes, want 7", got)
	}
	if got := m.packages["runtime"].linked; got != 0 {
		t.Errorf("runtime has %d linked bytes, want 0: the linker's table is about all packages", got)
	}
}

func TestPrint(t *testing.T) {
	var out bytes.Buffer
	small().print(&out)
	for _, want := range []string{
		"| backend/pebble | 3 | 0.0 | 26.0 | 1.0 | 3.0 |\n",
		"| example.com/shared | 2 | 0.0 | 48.0 | 2.0 | 4.0 |\n",
		"downloaded 3.0 MB, unpacked 7.0 MB",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("got no %q in:\n%s", want, out.String())
		}
	}
}
