package api

import (
	"bytes"
	"cmp"
	_ "embed"
	stdjson "encoding/json"
	"errors"
	cli "flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/countmill/countmill/client"
	"github.com/countmill/countmill/internal/auth"
)

var update = cli.Bool("update", false, "write the OpenAPI document anew")

// documentBase has the parts of the document that no route has.
//
//go:embed testdata/document.json
var documentBase []byte

const documentFile = "../httpserver/openapi.json"

// The OpenAPI document is made of the table of routes: `go test ./internal/api -run TestDocument -update` writes it.
func TestDocument(t *testing.T) {
	t.Parallel()
	d, err := documentOf(routes)
	if err != nil {
		t.Fatal(err)
	}
	line, err := json.Marshal(d, jsontext.SpaceAfterColon(true), jsontext.SpaceAfterComma(true))
	if err != nil {
		t.Fatal(err)
	}
	want := append(appendValue(nil, line, ""), '\n')
	if *update {
		if err := os.WriteFile(documentFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
		t.Errorf("%s is not what the routes say; run this test with -update (-said +is):\n%s", documentFile, diff)
	}
}

// The page about tokens has what each scope allows, between two comments.
func TestScopesOfThePage(t *testing.T) {
	t.Parallel()
	const file, begin, end = "../../docs/howto/secure.md", "<!-- The scopes: go test ./internal/api -run TestScopesOfThePage -update -->\n\n", "\n<!-- End of the scopes -->"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no %q and %q", file, begin, end)
	}
	want := before + begin + scopeTable() + end + after
	if *update {
		err = os.WriteFile(file, []byte(want), 0o644)
	} else if diff := gocmp.Diff(want, string(text)); diff != "" {
		t.Errorf("%s is not what the routes say; run this test with -update (-said +is):\n%s", file, diff)
	}
	if err != nil {
		t.Error(err)
	}
}

func scopeTable() string {
	table := "| scope | allows | and, without `--prefix` alone |\n| --- | --- | --- |\n"
	for _, scope := range auth.Scopes() {
		var some, all []string
		for i := range routes {
			switch call := "`" + routes[i].method + " " + routes[i].path + "`"; {
			case routes[i].need == auth.PerCounter(scope):
				some = append(some, call)
			case routes[i].need == auth.Whole(scope):
				all = append(all, call)
			}
		}
		table += fmt.Sprintf("| `%s` | %s | %s |\n", scope, strings.Join(some, ", "), strings.Join(all, ", "))
	}
	return table
}

// documentOf is the document of the routes.
func documentOf(all []route) (object, error) {
	d := membersOf(documentBase)
	var paths, params, failures object
	for i := range all {
		to := &all[i]
		if to.op == "" || to.says == "" || to.out.says == "" {
			return nil, fmt.Errorf("%s %s lacks its name, a title, or what it answers", to.method, to.path)
		}
		of, _ := paths.get(to.path).(object)
		paths = paths.with(to.path, of.with(strings.ToLower(to.method), to.operation()))
		for _, p := range to.in {
			if p.shared != "" {
				params = params.with(p.shared, p.document())
			}
		}
	}
	for _, p := range problems {
		failures = failures.with(p.name, p.document())
	}
	components := membersOf(d.get("components").(jsontext.Value))
	schemas, err := typesOf(all)
	if err != nil {
		return nil, err
	}
	components = components.with("schemas", append(membersOf(components.get("schemas").(jsontext.Value)), schemas...))
	components = components.with("parameters", params).with("responses", failures)
	return d.with("paths", paths).with("components", components), nil
}

// operation is the route in the document.
func (to *route) operation() object {
	op := object{
		{"tags", []any{to.tag}}, {"operationId", to.op}, {"security", []any{}}, {"summary", to.says},
	}
	if !to.need.ForAnyone() {
		op = op.with("security", []any{object{{"bearer", []any{string(to.need.Scope())}}}})
	}
	if to.more != "" {
		op = op.with("description", to.more)
	}
	var params []any
	for _, p := range to.in {
		if p.shared != "" {
			params = append(params, refTo("parameters", p.shared))
		} else {
			params = append(params, p.document())
		}
	}
	if params != nil {
		op = op.with("parameters", params)
	}
	if takes, most := to.request(); takes != nil {
		op = op.with("requestBody", object{{"required", true}, {"description", "At most " + most + "."}, {"content", contentOf(takes)}})
	}
	return op.with("responses", to.responses())
}

// request is the types of the body, and the largest one in words.
func (to *route) request() ([]media, string) {
	if to.body == nil {
		return to.takes, to.most
	}
	most := fmt.Sprintf("%d KiB", to.body.max>>10)
	if to.body.max >= 1<<20 {
		most = fmt.Sprintf("%d MiB", to.body.max>>20)
	}
	return []media{{kind: typeJSON, of: to.body.name}}, most
}

// responses are the success, and the problems by status.
func (to *route) responses() object {
	fails := fails{405: "MethodNotAllowed"}
	if !to.free {
		maps.Copy(fails, map[int]string{400: "Invalid", 500: "Internal", 503: "Unavailable"})
	}
	if !to.need.ForAnyone() {
		maps.Copy(fails, map[int]string{401: "Unauthorized", 403: "Forbidden"})
	}
	if to.role.roles != "any" {
		fails[404] = "NotFound"
	}
	takes, _ := to.request()
	if takes != nil {
		maps.Copy(fails, map[int]string{408: "Timeout", 413: "TooLarge", 415: "UnsupportedMediaType"})
	}
	if takes != nil || to.share != 0 {
		fails[429] = "Overloaded"
	}
	maps.Copy(fails, to.fails)
	all := object{{strconv.Itoa(max(to.out.status, http.StatusOK)), to.out.document()}}
	for _, status := range slices.Sorted(maps.Keys(fails)) {
		if name := fails[status]; strings.Contains(name, " ") {
			all = all.with(strconv.Itoa(status), success{says: name, as: []media{{kind: "text/plain"}}}.document())
		} else {
			all = all.with(strconv.Itoa(status), refTo("responses", name))
		}
	}
	return all
}

func (s success) document() object {
	o := object{{"description", s.says}}
	var headers object
	for _, h := range s.headers {
		headers = headers.with(h.name, h.document())
	}
	if headers != nil {
		o = o.with("headers", headers)
	}
	return o.with("content", contentOf(s.as))
}

func (h header) document() object {
	return object{{"description", h.says}, {"schema", schemaOf(h.kind, "string")}}
}

// words are the schema of the media.
func (m media) words() string {
	if words, ok := m.of.(string); ok || m.of == nil {
		return words
	}
	return schemaName(reflect.TypeOf(m.of))
}

func contentOf(types []media) (content object) {
	for _, m := range types {
		o := object{{"schema", schemaOf(m.words(), "string")}}
		if m.with != "" {
			o = append(o, membersOf([]byte("{"+m.with+"}"))...)
		}
		content = content.with(m.kind, o)
	}
	return content
}

func (p *param) document() object {
	o := object{{"name", p.name}, {"in", "query"}}
	if p.in != "" {
		o = o.with("in", p.in)
	}
	if p.required || p.in == "path" {
		o = o.with("required", true)
	}
	o = o.with("description", p.says)
	if p.often {
		return append(o, object{{"style", "form"}, {"explode", true}, {"schema", schemaOf("[] #1..100 "+p.schema, "string")}}...)
	}
	var schema object
	switch {
	case p.most > 0:
		schema = object{{"type", "integer"}, {"minimum", jsontext.Value("1")}, {"maximum", jsontext.Value(strconv.Itoa(p.most))}}
	case p.oneOf != nil:
		schema = schemaOf("="+strings.Join(p.oneOf, "|"), "string")
	default:
		schema = schemaOf(p.schema, "string")
	}
	if p.fallback != nil {
		schema = schema.with("default", p.fallback)
	}
	return o.with("schema", schema)
}

// A failure is a problem that several routes answer with.
type failure struct{ name, header, says string }

var failureHeaders = map[string]header{
	"Retry-After":      {"Retry-After", "integer 1..", "Seconds to wait before the repeat."},
	"Allow":            {"Allow", "", "The methods that are."},
	"WWW-Authenticate": {"WWW-Authenticate", "", "Bearer, with the error (RFC 6750)."},
}

func (f failure) document() object {
	s := success{says: f.says, as: []media{{kind: "application/problem+json", of: "Problem"}}}
	if f.header != "" {
		s.headers = []header{failureHeaders[f.header]}
	}
	return s.document()
}

var problems = []failure{
	{"Invalid", "", "invalid: the request can never succeed. `field` and `limit` name the mistake, `index` or `line` its place."},
	{"NotCountedYet", "Retry-After", "not-counted-yet: some increments of the receipt in `after` were not counted within `wait`. Ask again later. Or not-serving: the index of a group is being built, with `progress`, or deleted."},
	{"NoValues", "", "other-count: the id came with another count before. exhausted: the sequence has fewer values left. Nothing was given."},
	{"IdExpired", "", "id-expired: the time of the request is before the deduplication window, so the values of its id are forgotten. Nothing was given."},
	{"ReceiptGone", "", "receipt-expired: the receipt is beyond the deduplication window, so it is unknown whether its increments were counted. other-database: the receipt is of another database than this reader's."},
	{"Unauthorized", "WWW-Authenticate", "unauthorized: the token is missing, unknown or expired. Nothing was done."},
	{"Forbidden", "", "forbidden: the token lacks the scope, or may not see and change this counter, which `field`, `limit`, and `index` or `line` name. Or a web page of an origin sent it that `--cors-origin` does not list. Or the server has no tokens and the request names a host that is neither localhost nor an address. Nothing was done."},
	{"NotFound", "", "not-found: no such path or dead letter, the name is not one path segment, or this process does not run the role that has the path. `detail` names its roles, and that role."},
	{"MethodNotAllowed", "Allow", "method-not-allowed: use one of the methods in `Allow`."},
	{"Timeout", "", "timeout: the body did not arrive in time. Nothing was done."},
	{"TooLarge", "", "too-large: the body is over the limit. Nothing was done."},
	{"UnsupportedMediaType", "", "unsupported-media-type: Content-Type, charset or Content-Encoding is not supported."},
	{"IdReused", "", "id-reused: the Idempotency-Key was used with another body. Nothing of this one was counted. ids-reused: the increments in `conflicts` were not counted, because another delta was counted under their ids. All others of the request were counted, and a repeat gets the same answer. Only servers whose publisher and aggregator are one process (`countmill up`) answer ids-reused; others answer 202, and such increments become dead letters."},
	{"Overloaded", "Retry-After", "overloaded: a bound was reached. Nothing was done; repeat later."},
	{"OverloadedOrQuota", "Retry-After", "overloaded: a bound was reached. quota: the token has reached one of its limits, which `field` names. Nothing was done; repeat later."},
	{"InsufficientStorage", "Retry-After", "insufficient-storage: the disk of the counters is nearly full. Nothing was done; repeat later."},
	{"Lower", "", "lower: the counter has more shards. `limit` names the numbers that are allowed."},
	{"NoSeriesOfCounter", "", "no-series: no rule keeps a series of one of the counters. Or not-found: this process does not serve the path."},
	{"NoIndex", "", "no-index: there is no such index. Or not-found: this process does not serve the path."},
	{"NotServing", "Retry-After", "not-serving: the index of a group is being built, with `progress`, or deleted."},
	{"NoBoardOfIndex", "", "no-index: there is no such index. no-series: no rule keeps a series of all its counters; `detail` names the rule to add. Or not-found: this process does not serve the path."},
	{"NoBoards", "", "no-boards: the store charges for reads, and its operator has set no `--board-rate`. not-serving: the groups of the index are being built, and `Retry-After` has the seconds to wait."},
	{"NoRule", "", "no-rule: there is no such rule. Or not-found: this process does not serve the path."},
	{"Busy", "", "busy: another backup is under way."},
	{"NotSupported", "", "not-supported: this store, or this server without `--backup-root`, cannot do it."},
	{"Internal", "", "internal: the server's log has the text. Or backup-failed: there is no backup, and `detail` has the reason. Or overflow: a counter's total does not fit 64 bits, so there is no number."},
	{"Unavailable", "Retry-After", "unavailable: the bus or the store does not answer. Or closed: the process is stopping. Nothing was done; repeat later."},
	{"NotReady", "", "not-ready: with the reason."},
	{"OutcomeUnknown", "", "outcome-unknown: the request may have been done. Repeat increments only with the same ids or the same Idempotency-Key, and a reset with the same id."},
}

func refTo(kind, name string) object { return object{{"$ref", "#/components/" + kind + "/" + name}} }

// schemaOf is the schema that the words of a tag say, for a value of that type:
//
//	Name            the schema of that name
//	integer         the type
//	date-time       the format; also int64
//	=a|b+c          one of these texts, with + for a space
//	1..9  1..       a number in these bounds
//	len 1..9        a text of so many characters
//	pattern ^a$     a text like that
//	[] #1..9        an array of so many of the other words
//	default x       the value of an absent one
//	above 0         a number larger than that
//	like x          an example
func schemaOf(words, kind string) object {
	var o, array object
	list := strings.Fields(words)
	for i := 0; i < len(list); i++ {
		word := list[i]
		least, most, bounds := strings.Cut(strings.TrimLeft(word, "#"), "..")
		next := func() string { i++; return list[i] }
		switch {
		case word == "[]" || strings.HasPrefix(word, "[]"):
			array = object{{"type", "array"}}
			if rest := word[2:]; rest != "" {
				o = refTo("schemas", rest)
			}
		case word == "len":
			least, most, _ := strings.Cut(next(), "..")
			o = o.bounds("minLength", "maxLength", least, most)
		case word == "default":
			o = o.with("default", literal(next(), kind))
		case word == "like":
			examples, _ := o.get("examples").([]any)
			o = o.with("examples", append(examples, next()))
		case word == "pattern":
			o = o.with("pattern", next())
		case word == "above":
			o = o.with("exclusiveMinimum", literal(next(), "number"))
		case word == "integer" || word == "boolean":
			kind = word
		case word == "date-time" || word == "int64":
			o = o.with("format", word)
		case word[0] == '=':
			var all []any
			for _, one := range strings.Split(strings.ReplaceAll(word[1:], "+", " "), "|") {
				all = append(all, literal(one, kind))
			}
			o = o.with("enum", all)
		case bounds && word[0] == '#':
			array = array.bounds("minItems", "maxItems", least, most)
		case bounds:
			o = o.bounds("minimum", "maximum", least, most)
		default:
			o = append(refTo("schemas", word), o...)
		}
	}
	if o.get("$ref") == nil {
		o = append(object{{"type", kind}}, o...)
	}
	if array != nil {
		return array.with("items", o)
	}
	return o
}

func literal(text, kind string) any {
	if kind == "string" {
		return text
	}
	return jsontext.Value(text)
}

// A typeReader makes schemas of Go types and their comments.
type typeReader struct {
	schemas  object
	comments map[string]string // by TYPE and TYPE.FIELD
}

// typesOf are the schemas of all bodies and answers.
func typesOf(all []route) (object, error) {
	r := typeReader{comments: make(map[string]string)}
	for _, dir := range []string{".", "../../client", "../httpserver"} {
		if err := r.readComments(dir); err != nil {
			return nil, err
		}
	}
	for i := range all {
		to := &all[i]
		if to.body != nil {
			r.object(to.body.name, reflect.TypeOf(to.body.empty()).Elem(), true)
		}
		for _, m := range slices.Concat(to.takes, to.out.as) {
			if _, ok := m.of.(string); !ok && m.of != nil {
				r.add(reflect.TypeOf(m.of))
			}
		}
	}
	r.add(reflect.TypeFor[client.Row]()) // the routes of series and streams name their schemas
	r.add(reflect.TypeFor[client.WatchEvent]())
	return r.schemas, nil
}

func (r *typeReader) readComments(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range f.Decls {
			of, ok := d.(*ast.GenDecl)
			if !ok || of.Tok != token.TYPE {
				continue
			}
			for _, spec := range of.Specs {
				ts := spec.(*ast.TypeSpec)
				r.comments[ts.Name.Name] = textOf(cmp.Or(ts.Doc, of.Doc))
				st, ok := ts.Type.(*ast.StructType)
				if !ok {
					continue
				}
				for _, field := range st.Fields.List {
					for _, n := range field.Names {
						r.comments[ts.Name.Name+"."+n.Name] = textOf(cmp.Or(field.Doc, field.Comment))
					}
				}
			}
		}
	}
	return nil
}

func textOf(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }

// schemaName is the name of the schema of a type.
func schemaName(t reflect.Type) string {
	if t == reflect.TypeFor[client.Row]() {
		return "SeriesRow"
	}
	return t.Name()
}

// add makes the schema of an answer.
func (r *typeReader) add(t reflect.Type) {
	if name := schemaName(t); r.schemas.get(name) == nil {
		r.object(name, t, false)
	}
}

// object makes the schema of a struct. Requests may have no other fields.
func (r *typeReader) object(name string, t reflect.Type, request bool) {
	at := len(r.schemas)
	r.schemas = append(r.schemas, field{name, nil}) // before those of its fields
	var required []any
	var properties object
	for i := range t.NumField() {
		f := t.Field(i)
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == "" || tag == "-" {
			continue
		}
		if options == "" {
			required = append(required, tag)
		}
		p := r.property(f, options != "")
		if text := r.comments[t.Name()+"."+f.Name]; text != "" {
			p = p.with("description", text)
		}
		properties = properties.with(tag, p)
	}
	o := object{{"type", "object"}}
	if text := r.comments[t.Name()]; text != "" && !request {
		o = o.with("description", text)
	}
	if required != nil {
		o = o.with("required", required)
	}
	if request {
		o = o.with("additionalProperties", false)
	}
	r.schemas[at].value = o.with("properties", properties)
}

// property is the schema of a field. A pointer that is never absent may be null, and so may a value whose tag says so.
func (r *typeReader) property(f reflect.StructField, optional bool) object {
	t, words := f.Type, f.Tag.Get("schema")
	words, null := strings.CutSuffix(words, "null")
	if t.Kind() == reflect.Pointer {
		null = null || !optional && words != "Lag"
		t = t.Elem()
	}
	o := r.value(t, strings.TrimSpace(words))
	if t.Kind() == reflect.Bool && optional && f.Type != reflect.TypeFor[flag]() {
		o = o.with("const", true)
	}
	switch {
	case null && o.get("$ref") != nil:
		return object{{"oneOf", []any{object{{"type", "null"}}, o}}}
	case null:
		return o.with("type", []any{o.get("type"), "null"})
	}
	return o
}

// value is the schema of a type, with the words of a tag.
func (r *typeReader) value(t reflect.Type, words string) object {
	switch t {
	case reflect.TypeFor[time.Time]():
		return schemaOf(cmp.Or(words, "Time"), "string")
	case reflect.TypeFor[client.Sum]():
		return object{{"oneOf", []any{refTo("schemas", "Integer"), schemaOf(words, "string")}}}
	case reflect.TypeFor[[]byte]():
		return object{{"type", "string"}, {"contentEncoding", "base64"}}
	case reflect.TypeFor[stdjson.RawMessage]():
		return object{}
	case reflect.TypeFor[text]():
		return schemaOf(words, "string")
	case reflect.TypeFor[integer]():
		return schemaOf(words, "integer")
	case reflect.TypeFor[flag]():
		return object{{"type", "boolean"}, {"default", false}}
	}
	switch t.Kind() {
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Struct && words != "DeadLetterRefs" {
			r.add(t.Elem())
			words = schemaName(t.Elem()) + " " + words
		}
		if words == "DeadLetterRefs" {
			r.add(t.Elem())
			return schemaOf(words, "")
		}
		return schemaOf("[] "+words, "string")
	case reflect.Map:
		return object{{"type", "object"}, {"additionalProperties", r.value(t.Elem(), "")}}
	case reflect.Struct:
		r.add(t)
		return refTo("schemas", schemaName(t))
	case reflect.Bool:
		return schemaOf(words, "boolean")
	case reflect.Float64:
		return schemaOf(words, "number")
	case reflect.String:
		return schemaOf(words, "string")
	}
	return schemaOf(words, "integer")
}

// An object is a JSON object that keeps its order.
type object []field

type field struct {
	name  string
	value any
}

func (o object) get(name string) any {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// with sets a member.
func (o object) with(name string, value any) object {
	for i := range o {
		if o[i].name == name {
			o[i].value = value
			return o
		}
	}
	return append(o, field{name, value})
}

func (o object) bounds(lower, upper, least, most string) object {
	if least != "" {
		o = o.with(lower, jsontext.Value(least))
	}
	if most != "" {
		o = o.with(upper, jsontext.Value(most))
	}
	return o
}

// membersOf are the members of a JSON object.
func membersOf(text []byte) (o object) {
	dec := jsontext.NewDecoder(bytes.NewReader(text))
	_, err := dec.ReadToken()
	for err == nil && dec.PeekKind() == '"' {
		var name jsontext.Token
		var value jsontext.Value
		if name, err = dec.ReadToken(); err == nil {
			key := name.String()
			value, err = dec.ReadValue()
			o = append(o, field{key, value.Clone()})
		}
	}
	if err == nil {
		_, err = dec.ReadToken()
	}
	if err != nil {
		panic(err)
	}
	return o
}

func (o object) MarshalJSONTo(enc *jsontext.Encoder) error {
	err := enc.WriteToken(jsontext.BeginObject)
	for _, m := range o {
		err = errors.Join(err, enc.WriteToken(jsontext.String(m.name)), json.MarshalEncode(enc, m.value))
	}
	return errors.Join(err, enc.WriteToken(jsontext.EndObject))
}

// lineWidth is how long a line of the document may be before it is broken.
const lineWidth = 140

// appendValue appends a value: in one line if that is short.
func appendValue(b []byte, v jsontext.Value, indent string) []byte {
	open := v.Kind()
	if len(indent)+len(v) <= lineWidth || open != '{' && open != '[' {
		return append(b, v...)
	}
	dec := jsontext.NewDecoder(bytes.NewReader(v))
	_, err := dec.ReadToken()
	within := indent + "  "
	for before := string(open); err == nil && dec.PeekKind() != '}' && dec.PeekKind() != ']'; before = "," {
		b = append(b, before+"\n"+within...)
		var name, value jsontext.Value
		if open == '{' {
			name, err = dec.ReadValue()
			b = append(b, string(name)+": "...)
		}
		if err == nil {
			value, err = dec.ReadValue()
			b = appendValue(b, value, within)
		}
	}
	if err != nil {
		panic(err)
	}
	return append(b, "\n"+indent+string(open+2)...)
}
