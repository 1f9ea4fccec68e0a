package archtest

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// A handwritten client has its paths, parameters and fields as text.
type handwritten struct {
	file   string
	params *regexp.Regexp // the parameters of one request
	param  *regexp.Regexp
	fields *regexp.Regexp // of answers
}

var handwrittenClients = []handwritten{
	{"client/python/countmill/__init__.py", regexp.MustCompile(`_query\((.*)`), regexp.MustCompile(`\b([a-z_]+)=|"([a-z_]+)":`), regexp.MustCompile(`\b(?:answer|a|t|r|e|x)(?:\["|\.get\(")([a-z_]+)"`)},
	{"client/js/countmill.mjs", regexp.MustCompile(`query\(\{(.*?)\}\)`), regexp.MustCompile(`([a-z_]+)\s*(?::|,|$)`), regexp.MustCompile(`\b(?:answer|a|t|x)\.([a-z]+(?:_[a-z]+)+)\b`)},
}

// The clients that are written by hand name nothing that the document does not have.
func TestHandwrittenClients(t *testing.T) {
	t.Parallel()
	var doc apiDocument
	if err := json.Unmarshal([]byte(read(t, openAPI)), &doc); err != nil {
		t.Fatal(err)
	}
	for _, c := range handwrittenClients {
		for _, problem := range doc.unknown(c, read(t, c.file)) {
			t.Errorf("%s: %s", c.file, problem)
		}
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
