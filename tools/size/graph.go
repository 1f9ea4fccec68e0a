package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A pkg is one package of the program, as `go list` describes it.
type pkg struct {
	ImportPath string
	Export     string // its compiled form
	Imports    []string
	Module     *struct {
		Path, Version, Dir string
		Main               bool
	}
	compiled, linked int64
}

func (p *pkg) module() string {
	if p.Module == nil {
		return "the standard library"
	}
	return p.Module.Path
}

// measured is the packages of countmill, and the bytes of the modules that they come from.
type measured struct {
	packages map[string]*pkg
	zipped   map[string]int64 // by module
	unpacked map[string]int64
	built    int64 // the build cache
	binary   int64
}

// measure looks at the caches and the binary after a build.
func (c caches) measure() (*measured, error) {
	m := &measured{packages: map[string]*pkg{}, zipped: map[string]int64{}, unpacked: map[string]int64{}}
	info, err := os.Stat(c.binary())
	if err != nil {
		return nil, err
	}
	m.binary = info.Size()
	if m.built, err = bytesBelow(c.builds(), ""); err != nil {
		return nil, err
	}
	listed, err := c.goTool("list", "-deps", "-export", "-json=ImportPath,Export,Imports,Module", program)
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(strings.NewReader(listed)); ; {
		p := &pkg{}
		if err := d.Decode(p); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		m.packages[p.ImportPath] = p
	}
	symbols, err := c.goTool("tool", "nm", "-size", c.binary())
	if err != nil {
		return nil, err
	}
	m.link(symbols)
	return m, m.weigh(c)
}

// sections are symbols of the linker that span a part of the binary, or its tables about all packages.
var sections = map[string]bool{
	"runtime.text": true, "runtime.rodata": true, "runtime.noptrdata": true, "runtime.data": true, "runtime.types": true,
	"runtime.pclntab": true, "runtime.findfunctab": true, "runtime.gcdata": true, "runtime.gcbss": true, "runtime.itablink": true,
}

// link adds the bytes of each symbol to its package. Data about types, and other symbols of no package,
// belong to none.
func (m *measured) link(symbols string) {
	for lines := bufio.NewScanner(strings.NewReader(symbols)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 {
			continue
		}
		size, err := strconv.ParseInt(fields[1], 10, 64)
		zeros := strings.EqualFold(fields[2], "b") // which are not in the file
		if err != nil || zeros || sections[fields[3]] {
			continue
		}
		slash := strings.LastIndex(fields[3], "/")
		if dot := strings.Index(fields[3][slash+1:], "."); dot >= 0 {
			if p := m.packages[fields[3][:slash+1+dot]]; p != nil {
				p.linked += size
			}
		}
	}
}

// weigh reads the sizes of compiled packages and of modules.
func (m *measured) weigh(c caches) error {
	var problems []error
	note := func(err error) { problems = append(problems, err) }
	for _, p := range m.packages {
		if p.Export != "" {
			info, err := os.Stat(p.Export)
			note(err)
			if err == nil {
				p.compiled = info.Size()
			}
		}
		if p.Module == nil || p.Module.Main || m.unpacked[p.Module.Path] > 0 {
			continue
		}
		var err error
		m.unpacked[p.Module.Path], err = bytesBelow(p.Module.Dir, "")
		note(err)
		zip := strings.TrimPrefix(p.Module.Dir, c.modules()+string(filepath.Separator))
		name, version, _ := strings.Cut(zip, "@")
		info, err := os.Stat(filepath.Join(c.modules(), "cache", "download", name, "@v", version+".zip"))
		note(err)
		if err == nil {
			m.zipped[p.Module.Path] = info.Size()
		}
	}
	return errors.Join(problems...)
}

// An import that could go, with the packages that it begins with.
type removable struct {
	name     string
	prefixes []string
}

var removables = []removable{
	{"Google: Pub/Sub, Datastore, adopt", []string{module + "/backend/gcppubsub", module + "/backend/datastore", module + "/internal/transfer/appengine"}},
	{"backend/gcppubsub", []string{module + "/backend/gcppubsub"}},
	{"backend/datastore", []string{module + "/backend/datastore"}},
	{"internal/transfer/appengine", []string{module + "/internal/transfer/appengine"}},
	{"backend/memcached", []string{module + "/backend/memcached"}},
	{"backend/pebble", []string{module + "/backend/pebble"}},
	{"Prometheus's client", []string{"github.com/prometheus"}},
	{"Watermill", []string{"github.com/ThreeDotsLabs/watermill/"}},
	{"cobra", []string{"github.com/spf13/cobra"}},
}

// without returns the packages that nothing imports any longer without some packages.
func (m *measured) without(r removable) (gone []*pkg) {
	reached := map[string]bool{}
	var visit func(path string)
	visit = func(path string) {
		p := m.packages[path]
		removed := slices.ContainsFunc(r.prefixes, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
		if p == nil || removed || reached[path] {
			return
		}
		reached[path] = true
		for _, i := range p.Imports {
			visit(i)
		}
	}
	visit(module + strings.TrimPrefix(program, "."))
	for path, p := range m.packages {
		if !reached[path] {
			gone = append(gone, p)
		}
	}
	return gone
}

// sum is the bytes of some packages, and of the modules that have no other package.
type sum struct {
	packages                           int
	linked, compiled, zipped, unpacked int64
}

func (m *measured) sum(of []*pkg) (s sum) {
	total, some := map[string]int{}, map[string]int{}
	for _, p := range m.packages {
		total[p.module()]++
	}
	for _, p := range of {
		s.packages++
		s.linked += p.linked
		s.compiled += p.compiled
		some[p.module()]++
	}
	for name, n := range some {
		if n == total[name] {
			s.zipped += m.zipped[name]
			s.unpacked += m.unpacked[name]
		}
	}
	return s
}

func mb(n int64) string { return fmt.Sprintf("%.1f", float64(n)/1e6) }

func (m *measured) print(w io.Writer) {
	all := m.sum(slices.Collect(maps.Values(m.packages)))
	fmt.Fprintf(w, "binary %s MB, %d packages; downloaded %s MB, unpacked %s MB, build cache %s MB\n\n", mb(m.binary), all.packages, mb(all.zipped), mb(all.unpacked), mb(m.built))
	const row = "| %s | %d | %s | %s | %s | %s |\n"
	head := func(what string) {
		fmt.Fprintf(w, "| %s | packages | linked, MB | compiled, MB | downloaded, MB | unpacked, MB |\n| --- | ---: | ---: | ---: | ---: | ---: |\n", what)
	}
	head("only for")
	for _, r := range removables {
		s := m.sum(m.without(r))
		fmt.Fprintf(w, row, r.name, s.packages, mb(s.linked), mb(s.compiled), mb(s.zipped), mb(s.unpacked))
	}
	fmt.Fprintln(w)
	head("module")
	byModule := map[string][]*pkg{}
	for _, p := range m.packages {
		byModule[p.module()] = append(byModule[p.module()], p)
	}
	names := slices.SortedFunc(maps.Keys(byModule), func(a, b string) int {
		return cmp.Compare(m.sum(byModule[b]).linked+m.unpacked[b], m.sum(byModule[a]).linked+m.unpacked[a])
	})
	for _, name := range names[:min(20, len(names))] {
		s := m.sum(byModule[name])
		fmt.Fprintf(w, row, name, s.packages, mb(s.linked), mb(s.compiled), mb(s.zipped), mb(s.unpacked))
	}
}
