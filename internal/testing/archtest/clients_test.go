package archtest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A handwritten client has its paths, parameters and fields as text.
type handwritten struct {
	name, file string
	params     *regexp.Regexp // the parameters of one request
	param      *regexp.Regexp
	fields     *regexp.Regexp // of answers
}

var handwrittenClients = []handwritten{
	{"Python", "client/python/countmill/__init__.py", regexp.MustCompile(`_query\((.*)`), regexp.MustCompile(`\b([a-z_]+)=|"([a-z_]+)":`), regexp.MustCompile(`\b(?:answer|a|t|r|e|x)(?:\["|\.get\(")([a-z_]+)"`)},
	{"JavaScript", "client/js/countmill.mjs", regexp.MustCompile(`query\(\{(.*?)\}\)`), regexp.MustCompile(`([a-z_]+)\s*(?::|,|$)`), regexp.MustCompile(`\b(?:answer|a|t|x)\.([a-z]+(?:_[a-z]+)+)\b`)},
}

const lackingFile = "testdata/clients.txt"

// The clients that are written by hand name nothing that the document does not have. testdata/clients.txt has what they lack of it:
// `go test ./internal/testing/archtest -run TestHandwrittenClients -update` writes it.
func TestHandwrittenClients(t *testing.T) {
	t.Parallel()
	var doc apiDocument
	if err := json.Unmarshal([]byte(read(t, openAPI)), &doc); err != nil {
		t.Fatal(err)
	}
	var lacking strings.Builder
	for _, c := range handwrittenClients {
		text := read(t, c.file)
		for _, problem := range doc.unknown(c, text) {
			t.Errorf("%s: %s", c.file, problem)
		}
		doc.lacking(&lacking, c, text)
	}
	want := lacking.String()
	if *update {
		if err := os.WriteFile(lackingFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(filepath.Clean(lackingFile))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not what the clients lack; add it to them, or run this test with -update (-lacking +listed):\n%s", lackingFile, diff)
	}
}

var pathInCode = regexp.MustCompile("[\"`](/(?:v1|readyz|healthz|metrics|badge)[a-z/0-9-]*)")

// unknown are the names of a client that the document does not have.
func (d *apiDocument) unknown(c handwritten, text string) (problems []string) {
	params, fields := d.names()
	for _, m := range pathInCode.FindAllStringSubmatch(text, -1) {
		path := strings.TrimSuffix(m[1], "/")
		if _, ok := d.Paths.of[path]; !ok && d.Paths.of[path+"/{name}"].of == nil {
			problems = append(problems, "there is no path "+m[1])
		}
	}
	for _, call := range c.params.FindAllStringSubmatch(text, -1) {
		for _, m := range c.param.FindAllStringSubmatch(call[1], -1) {
			if name := m[1] + strings.Join(m[2:], ""); !params[name] && strings.Contains(name, "_") {
				problems = append(problems, "there is no parameter "+name)
			}
		}
	}
	for _, m := range c.fields.FindAllStringSubmatch(text, -1) {
		if !fields[m[1]] {
			problems = append(problems, "there is no field "+m[1])
		}
	}
	return problems
}

// names are all parameters and all fields.
func (d *apiDocument) names() (params, fields map[string]bool) {
	params, fields = make(map[string]bool), make(map[string]bool)
	for _, path := range d.Paths.of {
		for _, op := range path.of {
			for _, name := range d.paramsOf(op) {
				params[name] = true
			}
		}
	}
	for _, s := range d.Components.Schemas.of {
		for _, name := range s.Properties.names {
			fields[name] = true
		}
	}
	return params, fields
}

func (d *apiDocument) paramsOf(op apiOperation) (names []string) {
	for _, p := range op.Parameters {
		if p.Ref != "" {
			p = d.Components.Parameters[last(p.Ref)]
		}
		if p.In != "path" {
			names = append(names, p.Name)
		}
	}
	return names
}

// lacking writes what a client lacks: operations, and of the others parameters and fields.
func (d *apiDocument) lacking(b *strings.Builder, c handwritten, text string) {
	has := func(name string) bool {
		return regexp.MustCompile(`(?:^|[^A-Za-z_])` + regexp.QuoteMeta(name) + `(?:$|[^A-Za-z_])`).MatchString(text)
	}
	for _, path := range d.Paths.names {
		literal := strings.TrimSuffix(path, "{name}")
		called := strings.Contains(text, `"`+literal+`"`) || strings.Contains(text, literal+"?") || strings.Contains(text, "`"+literal)
		for _, method := range d.Paths.of[path].names {
			op := d.Paths.of[path].of[method]
			call := strings.ToUpper(method) + " " + path
			if !called {
				fmt.Fprintf(b, "%s: %s\n", c.name, call)
				continue
			}
			missing := make(map[string]bool)
			for _, name := range append(d.paramsOf(op), d.fieldsOf(op)...) {
				missing[name] = !has(name)
			}
			for _, name := range slices.Sorted(maps.Keys(missing)) {
				if missing[name] {
					fmt.Fprintf(b, "%s: %s: %s\n", c.name, call, name)
				}
			}
		}
	}
}

// fieldsOf are the fields of the answer, and of its fields.
func (d *apiDocument) fieldsOf(op apiOperation) (names []string) {
	for status, r := range op.Responses.of {
		if strings.HasPrefix(status, "2") {
			for _, c := range r.Content.of {
				names = append(names, d.within(c.Schema, nil)...)
			}
		}
	}
	return names
}

func (d *apiDocument) within(s apiSchema, above []string) (names []string) {
	if name := last(s.Ref); s.Ref != "" {
		if slices.Contains(above, name) {
			return nil
		}
		return d.within(d.Components.Schemas.of[name], append(above, name))
	}
	if s.Items != nil {
		names = d.within(*s.Items, above)
	}
	for _, one := range append(s.OneOf, s.AllOf...) {
		names = append(names, d.within(one, above)...)
	}
	for _, name := range s.Properties.names {
		names = append(append(names, name), d.within(s.Properties.of[name], above)...)
	}
	return names
}
