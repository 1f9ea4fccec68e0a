// Package apitest holds what handlers serve and answer against the OpenAPI document,
// so that the document stays true. Tests only.
package apitest

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/countmill/countmill/internal/httpserver"
)

//go:embed openapi-3.1.schema.json
var metaSchema []byte

// A Document is the OpenAPI document as /openapi.json serves it.
type Document struct {
	raw map[string]any

	mu       sync.Mutex
	compiler *jsonschema.Compiler
}

var loaded = sync.OnceValues(load)

// Load reads the document. Every object in an answer is taken to have no properties
// but those documented, though clients must ignore others: a field that the document
// does not know is a mistake of ours.
func Load(tb testing.TB) *Document {
	tb.Helper()
	d, err := loaded()
	if err != nil {
		tb.Fatalf("openapi.json: %v", err)
	}
	return d
}

func load() (*Document, error) {
	rec := httptest.NewRecorder()
	httpserver.OpenAPI().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	parsed, err := jsonschema.UnmarshalJSON(rec.Body)
	if err != nil {
		return nil, err
	}
	d := &Document{raw: parsed.(map[string]any), compiler: jsonschema.NewCompiler()}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	return d, d.compiler.AddResource("openapi.json", closed(parsed))
}

// closed returns v with a change: every schema with properties refuses others.
func closed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v)+1)
		for key, val := range v {
			out[key] = closed(val)
		}
		if _, ok := v["properties"].(map[string]any); ok && v["type"] == "object" {
			out["additionalProperties"] = false
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = closed(v[i])
		}
		return out
	}
	return v
}

// CheckDocument holds the document against the OpenAPI Initiative's own schema, and
// compiles every schema in it.
func (d *Document) CheckDocument(tb testing.TB) {
	tb.Helper()
	meta, err := jsonschema.UnmarshalJSON(bytes.NewReader(metaSchema))
	if err != nil {
		tb.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("https://spec.openapis.org/oas/3.1/schema", meta); err != nil {
		tb.Fatal(err)
	}
	schema, err := c.Compile("https://spec.openapis.org/oas/3.1/schema")
	if err != nil {
		tb.Fatal(err)
	}
	if err := schema.Validate(any(d.raw)); err != nil {
		tb.Errorf("openapi.json is no OpenAPI 3.1 document: %v", err)
	}
	for name := range at(d.raw, "components", "schemas") {
		d.compile(tb, "components", "schemas", name)
	}
	d.checkReferences(tb, d.raw, "#")
	d.checkNames(tb)
	checkTypes(tb, d.raw, "#")
}

var operationID = regexp.MustCompile(`^[a-z]+([A-Z][a-z]+)+$`)

// checkNames makes sure that generated functions and types have names: an operation's is a verb and a
// noun, and bodies are named schemas.
func (d *Document) checkNames(tb testing.TB) {
	tb.Helper()
	seen := make(map[any]bool)
	for pattern := range at(d.raw, "paths") {
		for method := range at(d.raw, "paths", pattern) {
			op := at(d.raw, "paths", pattern, method)
			id, _ := op["operationId"].(string)
			if !operationID.MatchString(id) || seen[id] {
				tb.Errorf("%s %s: operationId %q is taken, or not a verb and a noun such as listCounters", method, pattern, id)
			}
			seen[id] = true
			for media := range at(op, "requestBody", "content") {
				if at(op, "requestBody", "content", media, "schema")["$ref"] == nil {
					tb.Errorf("%s %s: the body %s has no named schema", method, pattern, media)
				}
			}
		}
	}
	for name := range at(d.raw, "components", "schemas") {
		for property, v := range at(d.raw, "components", "schemas", name, "properties") {
			p := v.(map[string]any)
			if p["properties"] != nil || at(p, "items")["properties"] != nil {
				tb.Errorf("%s.%s is an object without a name", name, property)
			}
		}
	}
}

// checkTypes makes sure that every enum and constant has a type, and that nothing has two types besides
// null. Generators fail on both.
func checkTypes(tb testing.TB, v any, where string) {
	tb.Helper()
	switch v := v.(type) {
	case map[string]any:
		_, enum := v["enum"].([]any)
		constant := v["const"] != nil && !strings.HasSuffix(where, "/not")
		if _, ok := v["type"].(string); (enum || constant) && !ok {
			tb.Errorf("%s: an enum without a type", where)
		}
		if types, ok := v["type"].([]any); ok && (len(types) != 2 || types[1] != "null") {
			tb.Errorf("%s: types %v: name a schema of each, with oneOf", where, types)
		}
		for key, val := range v {
			checkTypes(tb, val, where+"/"+key)
		}
	case []any:
		for i, val := range v {
			checkTypes(tb, val, where+"/"+strconv.Itoa(i))
		}
	}
}

// checkReferences makes sure that every $ref leads somewhere.
func (d *Document) checkReferences(tb testing.TB, v any, where string) {
	tb.Helper()
	switch v := v.(type) {
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			if path, ok := strings.CutPrefix(ref, "#/"); !ok || at(d.raw, strings.Split(path, "/")...) == nil {
				tb.Errorf("%s: %s leads nowhere", where, ref)
			}
		}
		for key, val := range v {
			d.checkReferences(tb, val, where+"/"+key)
		}
	case []any:
		for i, val := range v {
			d.checkReferences(tb, val, where+"/"+strconv.Itoa(i))
		}
	}
}

// CheckAnswer holds an answer of the route against the document: its status, type,
// headers that must be there, and body.
func (d *Document) CheckAnswer(tb testing.TB, method, pattern string, status int, header http.Header, body []byte) {
	tb.Helper()
	where := fmt.Sprintf("%s %s answered %d", method, pattern, status)
	path := []string{"paths", pattern, strings.ToLower(method), "responses", strconv.Itoa(status)}
	response := at(d.raw, path...)
	if response == nil {
		tb.Errorf("%s: not documented", where)
		return
	}
	if ref, ok := response["$ref"].(string); ok {
		path = strings.Split(strings.TrimPrefix(ref, "#/"), "/")
		response = at(d.raw, path...)
	}
	for name := range at(response, "headers") {
		if header.Get(name) == "" {
			tb.Errorf("%s: no %s", where, name)
		}
	}
	media, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	if at(response, "content", media) == nil {
		tb.Errorf("%s: type %q is not documented, but %q is", where, media, slices.Collect(maps.Keys(at(response, "content"))))
		return
	}
	if media != "application/json" && media != "application/problem+json" {
		return
	}
	d.validate(tb, where, body, append(path, "content", media, "schema")...)
	if media == "application/problem+json" {
		checkProblem(tb, where, status, body)
	}
}

func checkProblem(tb testing.TB, where string, status int, body []byte) {
	tb.Helper()
	var p httpserver.Problem
	if err := json.Unmarshal(body, &p); err != nil || p.Status != status {
		tb.Errorf("%s: the problem says status %d (%v)", where, p.Status, err)
	}
}

// CheckSchema holds a JSON text against a schema of the document's components.
func (d *Document) CheckSchema(tb testing.TB, schema string, text []byte) {
	tb.Helper()
	d.validate(tb, schema, text, "components", "schemas", schema)
}

func (d *Document) validate(tb testing.TB, where string, text []byte, path ...string) {
	tb.Helper()
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		tb.Errorf("%s: %v", where, err)
		return
	}
	if err := d.compile(tb, path...).Validate(v); err != nil {
		tb.Errorf("%s: %s\n%v", where, text, err)
	}
}

func (d *Document) compile(tb testing.TB, path ...string) *jsonschema.Schema {
	tb.Helper()
	escape := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")
	var pointer strings.Builder
	for _, key := range path {
		pointer.WriteString("/" + escape.Replace(key))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	schema, err := d.compiler.Compile("openapi.json#" + pointer.String())
	if err != nil {
		tb.Fatalf("openapi.json#%s: %v", pointer.String(), err)
	}
	return schema
}

// at is the object under the path, nil if there is none.
func at(v map[string]any, path ...string) map[string]any {
	for _, key := range path {
		v, _ = v[key].(map[string]any)
	}
	return v
}
