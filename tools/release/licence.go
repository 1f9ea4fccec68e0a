package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// licenceFile matches the files that a licence asks to pass on.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-_.].*)?$`)

// A linked module has packages in a binary.
type linked struct {
	name  string   // path and version
	dir   string   // of the module
	files []string // its licences, sorted
}

// linkedModules lists the modules of all packages that the target's binary imports, sorted by name, without
// countmill itself. The files of a module are those of its linked packages' directories and of all
// directories above them: some modules have parts with another licence.
func (b build) linkedModules(t target) ([]linked, error) {
	list := `{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{"\t"}}{{.Dir}}{{"\t"}}{{$.Dir}}{{end}}{{end}}`
	out, err := t.goTool(b.source, b.cache, "list", "-deps", "-tags=grpcnotrace", "-f", list, program)
	if err != nil {
		return nil, err
	}
	modules := map[string]*linked{}
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) != 3 {
			continue // of the standard library, or of countmill
		}
		m := modules[fields[0]]
		if m == nil {
			m = &linked{name: fields[0], dir: fields[1]}
			modules[m.name] = m
		}
		if err := m.collect(fields[2]); err != nil {
			return nil, err
		}
	}
	return sorted(t, modules)
}

func sorted(t target, modules map[string]*linked) ([]linked, error) {
	var all []linked
	for _, m := range modules {
		if len(m.files) == 0 {
			return nil, fmt.Errorf("%s: %s is linked and has no licence file", t, m.name)
		}
		slices.Sort(m.files)
		all = append(all, *m)
	}
	slices.SortFunc(all, func(a, b linked) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// collect adds the licences of a package's directory and of the directories above it, up to the module's.
func (m *linked) collect(dir string) error {
	for ; strings.HasPrefix(dir, m.dir); dir = filepath.Dir(dir) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			file := filepath.Join(dir, e.Name())
			if e.Type().IsRegular() && licenceFile.MatchString(e.Name()) && !slices.Contains(m.files, file) {
				m.files = append(m.files, file)
			}
		}
	}
	return nil
}

// licences is the text of LICENCES.txt: every licence file of every linked module, and Go's own.
func licences(goroot string, modules []linked) ([]byte, error) {
	var text strings.Builder
	add := func(name, title, file string) error {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "==== %s: %s\n\n%s\n\n", name, filepath.ToSlash(title), strings.TrimSpace(strings.ReplaceAll(string(data), "\r\n", "\n")))
		return nil
	}
	if err := add("the Go standard library", "LICENSE", filepath.Join(goroot, "LICENSE")); err != nil {
		return nil, err
	}
	for _, m := range modules {
		for _, file := range m.files {
			title, err := filepath.Rel(m.dir, file)
			if err == nil {
				err = add(m.name, title, file)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return []byte(text.String()), nil
}

// moduleList is the text of MODULES.txt: the modules that the binary itself names, with their hashes. Their
// names are those of the linked modules, or it is an error.
func moduleList(t target, binary string, modules []linked) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s\n", info.Path, info.GoVersion)
	var named, known []string
	for _, d := range info.Deps {
		if d.Replace != nil {
			return nil, fmt.Errorf("%s: %s is replaced: go install refuses such a module", t, d.Path)
		}
		named = append(named, d.Path+" "+d.Version)
		fmt.Fprintf(&text, "%s %s %s\n", d.Path, d.Version, d.Sum)
	}
	for _, m := range modules {
		known = append(known, m.name)
	}
	slices.Sort(named)
	if !slices.Equal(named, known) {
		return nil, fmt.Errorf("%s: the binary names the modules %q, its packages come from %q", t, named, known)
	}
	return []byte(text.String()), nil
}
