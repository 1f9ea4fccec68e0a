package apitest

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/countmill/countmill/internal/httpserver"
)

// A Fault is a request with one thing wrong in it. Its route must refuse it.
type Fault struct {
	What                             string
	Method, Query, ContentType, Body string
	Status                           int
	Field                            string // that the problem must name; empty: any
}

const jsonType = "application/json"

// Faults returns requests that a route must refuse according to the document: parameters and
// fields that are unknown, missing or given twice, values out of range, fields that are null or of
// another type, a body that goes on behind its end, another method, another type of body. good is a
// body that the route accepts, as an object; nil if the route has no body.
func (d *Document) Faults(tb testing.TB, route httpserver.Route, good map[string]any) []Fault {
	tb.Helper()
	op := at(d.raw, "paths", route.Pattern, strings.ToLower(route.Method))
	schema := at(op, "requestBody", "content", jsonType, "schema")
	if (schema == nil) != (good == nil) {
		tb.Fatalf("%s %s: a body is documented: %t, and the test has one: %t", route.Method, route.Pattern, schema != nil, good != nil)
	}
	text := encode(tb, good)
	var faults []Fault
	add := func(f Fault) {
		if f.Method == "" {
			f.Method = route.Method
		}
		if good != nil && f.ContentType == "" {
			f.ContentType = jsonType
		}
		faults = append(faults, f)
	}
	add(Fault{What: "wrong method", Method: http.MethodPut, Body: text, Status: http.StatusMethodNotAllowed})
	add(Fault{What: "unknown parameter", Query: "zzz=1", Body: text, Status: http.StatusBadRequest, Field: "zzz"})
	params := d.queryParameters(route)
	required := make(url.Values)
	for _, p := range params {
		if p["required"] == true {
			required.Set(p["name"].(string), "a")
		}
	}
	for _, p := range params {
		name, schema := p["name"].(string), at(p, "schema")
		others := maps.Clone(required)
		others.Del(name)
		query := func(what, query string) {
			add(Fault{What: what, Query: strings.Trim(others.Encode()+"&"+query, "&"), Body: text, Status: http.StatusBadRequest, Field: name})
		}
		if schema["type"] != "array" {
			query("parameter given twice", name+"=a&"+name+"=a")
		}
		if most, ok := schema["maximum"].(json.Number); ok {
			query("parameter below its range", name+"=0")
			query("parameter beyond its range", name+"="+most.String()+"0")
			query("no number", name+"=1.0")
		}
		if schema["enum"] != nil {
			query("parameter of another value", name+"=zzz")
		}
		if p["required"] == true {
			query("parameter left empty", name+"=")
			query("parameter missing", "")
		}
	}
	if good == nil {
		return faults
	}
	for _, other := range []string{"text/plain", "application/x-www-form-urlencoded", "application/jsonx", jsonType + "; charset=latin1"} {
		add(Fault{What: "type " + other, ContentType: other, Body: text, Status: http.StatusUnsupportedMediaType, Field: "Content-Type"})
	}
	bad := func(what, body, field string) {
		add(Fault{What: what, Body: body, Status: http.StatusBadRequest, Field: field})
	}
	bad("nothing", "", "")
	bad("null", "null", "")
	bad("a string", `"a"`, "")
	bad("trailing object", text+"{}", "")
	bad("trailing letter", text+"x", "")
	bad("cut off", text[:len(text)-1], "")
	bad("unknown field", with(text, "zzz", "1"), "zzz")
	properties, needed := d.fields(schema)
	for name, property := range properties {
		rest := maps.Clone(good)
		delete(rest, name)
		one := encode(tb, rest)
		if slices.Contains(needed, any(name)) {
			bad(name+" missing", one, name)
		}
		bad("field in another case", with(one, strings.ToUpper(name), wellTyped(property)), strings.ToUpper(name))
		bad(name+" null", with(one, name, "null"), name)
		bad(name+" of another type", with(one, name, "{}"), name)
		bad(name+" of another type", with(one, name, map[bool]string{true: "1", false: `"x"`}[property["type"] == "string" || property["type"] == nil]), name)
		bad(name+" given twice", with(with(one, name, wellTyped(property)), name, wellTyped(property)), name)
	}
	return faults
}

// queryParameters are the documented query parameters of a route.
func (d *Document) queryParameters(route httpserver.Route) (params []map[string]any) {
	list, _ := at(d.raw, "paths", route.Pattern, strings.ToLower(route.Method))["parameters"].([]any)
	for _, entry := range list {
		if p := d.resolve(entry.(map[string]any)); p["in"] == "query" {
			params = append(params, p)
		}
	}
	return params
}

// fields are the properties of a body, and the required ones; of one object if the body may be an array.
func (d *Document) fields(schema map[string]any) (fields map[string]map[string]any, required []any) {
	schema = d.resolve(schema)
	if some, ok := schema["oneOf"].([]any); ok {
		return d.fields(some[0].(map[string]any))
	}
	fields = make(map[string]map[string]any)
	for name, property := range at(schema, "properties") {
		fields[name] = d.resolve(property.(map[string]any))
	}
	required, _ = schema["required"].([]any)
	return fields, required
}

func (d *Document) resolve(v map[string]any) map[string]any {
	if ref, ok := v["$ref"].(string); ok {
		return at(d.raw, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
	return v
}

// wellTyped is a value of a property.
func wellTyped(property map[string]any) string {
	switch property["type"] {
	case "integer":
		return "1"
	case "boolean":
		return "true"
	case "array":
		return `["a"]`
	}
	return `"a"`
}

func encode(tb testing.TB, object map[string]any) string {
	tb.Helper()
	if object == nil {
		return ""
	}
	text, err := json.Marshal(object)
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// with adds a member to an object.
func with(object, name, value string) string {
	member := `"` + name + `":` + value + "}"
	if object == "{}" {
		return "{" + member
	}
	return strings.TrimSuffix(object, "}") + "," + member
}
