package archtest

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	openAPI       = "internal/httpserver/openapi.json"
	httpReference = "docs/reference/http.md"
)

var update = flag.Bool("update", false, "write the generated documents anew")

// The page of the HTTP API equals the OpenAPI document. `go test ./internal/testing/archtest
// -run TestHTTPReference -update` writes it.
func TestHTTPReference(t *testing.T) {
	t.Parallel()
	text := read(t, openAPI)
	var doc apiDocument
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	want := doc.page()
	if *update {
		if err := os.WriteFile(filepath.Join(root, httpReference), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(read(t, httpReference), "\n")); diff != "" {
		t.Errorf("%s is not what %s says; run this test with -update (-said +shown):\n%s", httpReference, openAPI, diff)
	}
}

// An inOrder is a JSON object whose members keep their order.
type inOrder[T any] struct {
	names []string
	of    map[string]T
}

func (o *inOrder[T]) UnmarshalJSON(text []byte) error {
	if err := json.Unmarshal(text, &o.of); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		o.names = append(o.names, name.(string))
		var skipped json.RawMessage
		if err := d.Decode(&skipped); err != nil {
			return err
		}
	}
	return nil
}

type apiDocument struct {
	Paths      inOrder[inOrder[apiOperation]] `json:"paths"`
	Tags       []struct{ Name, Description string }
	Components struct {
		Parameters map[string]apiParameter
		Responses  inOrder[apiResponse]
		Schemas    inOrder[apiSchema]
	}
}

type apiOperation struct {
	Tags                 []string
	Summary, Description string
	Security             []map[string][]string
	Parameters           []apiParameter
	RequestBody          *struct {
		Description string
		Content     inOrder[apiContent]
	}
	Responses inOrder[apiResponse]
}

type apiParameter struct {
	Ref                   string `json:"$ref"`
	Name, In, Description string
	Required              bool
	Schema                apiSchema
}

type apiContent struct{ Schema apiSchema }

type apiResponse struct {
	Ref         string `json:"$ref"`
	Description string
	Content     inOrder[apiContent]
}

type apiSchema struct {
	Ref                  string `json:"$ref"`
	Description          string
	Type                 any
	Format               string
	Pattern              string
	Enum                 []any
	Const, Default       any
	Minimum, Maximum     *json.Number
	MinItems, MaxItems   *int
	MinLength, MaxLength *int
	Items                *apiSchema
	OneOf, AllOf         []apiSchema
	Required             []string
	Properties           inOrder[apiSchema]
}

// page is the whole document.
func (d *apiDocument) page() string {
	var b strings.Builder
	b.WriteString(httpIntroduction)
	for _, path := range d.Paths.names {
		for _, method := range d.Paths.of[path].names {
			op := d.Paths.of[path].of[method]
			call := strings.ToUpper(method) + " " + path
			fmt.Fprintf(&b, "| [`%s`](#%s) | %s | %s | %s |\n", call, callAnchor(call), op.Summary, op.scope(), d.roles(op))
		}
	}
	for _, path := range d.Paths.names {
		for _, method := range d.Paths.of[path].names {
			d.operation(&b, strings.ToUpper(method)+" "+path, d.Paths.of[path].of[method])
		}
	}
	b.WriteString("\n## Error answers\n\nThe body is a [Problem](#problem). The first word of an explanation is the end of its `type`.\n")
	for _, name := range d.Components.Responses.names {
		fmt.Fprintf(&b, "\n### %s\n%s", name, paragraph(d.Components.Responses.of[name].Description))
	}
	b.WriteString("\n## Objects\n")
	for _, name := range d.Components.Schemas.names {
		s := d.Components.Schemas.of[name]
		fmt.Fprintf(&b, "\n### %s\n%s", name, paragraph(s.Description))
		if len(s.Properties.names) == 0 {
			fmt.Fprintf(&b, "\nJSON: %s.\n", s.kind())
			continue
		}
		b.WriteString("\n| field | type | |\n| --- | --- | --- |\n")
		d.fields(&b, s, "")
	}
	return b.String()
}

const httpIntroduction = `<!-- Generated from internal/httpserver/openapi.json: go test ./internal/testing/archtest -run TestHTTPReference -update -->

# HTTP

Every call of countmill's HTTP API. A running server has the same as OpenAPI 3.1 under ` + "`/openapi.json`" + `.

- A server serves the calls of the roles that it runs; ` + "`countmill up`" + ` serves all of them. Every GET takes HEAD too.
- With ` + "`--tokens`" + `, a call needs ` + "`Authorization: Bearer TOKEN`" + ` with the scope below: [secure](../howto/secure.md).
- Unknown parameters and fields are refused with 400. Answers may get new fields: ignore the ones you do not know.
- Errors are ` + "`application/problem+json`" + `: [errors](errors.md) has every type, and whether to repeat the request.
- Sizes and numbers are bounded: [limits](limits.md).

| call | | scope | role |
| --- | --- | --- | --- |
`

// callAnchor is what GitHub makes of a heading that is a call in backquotes.
func callAnchor(call string) string {
	for anchor := range anchors("## `" + call + "`") {
		return strings.TrimPrefix(anchor, "#")
	}
	return ""
}

func (op apiOperation) scope() string {
	for _, s := range op.Security {
		for _, scopes := range s {
			return "`" + strings.Join(scopes, "`, `") + "`"
		}
	}
	return "none"
}

func (d *apiDocument) roles(op apiOperation) string {
	for _, tag := range d.Tags {
		if slices.Contains(op.Tags, tag.Name) {
			_, roles, _ := strings.Cut(strings.ToLower(strings.TrimSuffix(tag.Description, ".")), " ")
			return strings.Replace(roles, "role", "every role", 1)
		}
	}
	return ""
}

func (d *apiDocument) operation(b *strings.Builder, call string, op apiOperation) {
	fmt.Fprintf(b, "\n## `%s`\n\n%s. Scope: %s.\n%s", call, strings.TrimRight(op.Summary, "?"), op.scope(), paragraph(op.Description))
	if len(op.Parameters) > 0 {
		b.WriteString("\n| parameter | in | type | |\n| --- | --- | --- | --- |\n")
	}
	for _, p := range op.Parameters {
		if p.Ref != "" {
			p = d.Components.Parameters[last(p.Ref)]
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", p.Name, p.In, p.Schema.kind()+mandatory(p.Required), cell(p.Description))
	}
	if body := op.RequestBody; body != nil {
		b.WriteString("\nBody:")
		for i, media := range body.Content.names {
			fmt.Fprintf(b, "%s `%s`, %s", map[bool]string{true: " or"}[i > 0], media, body.Content.of[media].Schema.kind())
		}
		fmt.Fprintf(b, ". %s\n", body.Description)
	}
	b.WriteString("\n")
	var failures []string
	for _, status := range op.Responses.names {
		r := op.Responses.of[status]
		if r.Ref != "" {
			failures = append(failures, fmt.Sprintf("[%s %s](#%s)", status, last(r.Ref), strings.ToLower(last(r.Ref))))
			continue
		}
		fmt.Fprintf(b, "- %s: %s%s\n", status, r.Description, r.holds())
	}
	fmt.Fprintf(b, "- Errors: %s.\n", strings.Join(failures, ", "))
}

// holds names the type of the body.
func (r apiResponse) holds() string {
	if len(r.Content.names) == 0 {
		return ""
	}
	media := r.Content.names[0]
	if media == "application/json" {
		return " Body: " + r.Content.of[media].Schema.kind() + "."
	}
	return " Body: `" + media + "`."
}

// fields writes a row for each field, and for the fields of a field.
func (d *apiDocument) fields(b *strings.Builder, s apiSchema, within string) {
	for _, name := range s.Properties.names {
		f := s.Properties.of[name]
		full := within + name
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", full, f.kind()+mandatory(slices.Contains(s.Required, name)), cell(f.Description))
		switch {
		case f.Items != nil:
			d.fields(b, *f.Items, full+"[].")
		case len(f.OneOf) > 0:
			d.fields(b, f.OneOf[len(f.OneOf)-1], full+".")
		default:
			d.fields(b, f, full+".")
		}
	}
}

// kind is a type with its bounds, in a few words.
func (s apiSchema) kind() string {
	switch {
	case s.Ref != "":
		name := last(s.Ref)
		return "[" + name + "](#" + strings.ToLower(name) + ")"
	case len(s.AllOf) > 0:
		return s.AllOf[0].kind()
	case len(s.OneOf) > 0:
		var all []string
		for _, one := range s.OneOf {
			all = append(all, one.kind())
		}
		return strings.Join(all, " or ")
	case s.Const != nil:
		return fmt.Sprintf("`%v`", s.Const)
	case len(s.Enum) > 0:
		var all []string
		for _, one := range s.Enum {
			all = append(all, fmt.Sprintf("`%v`", one))
		}
		return strings.Join(all, ", ") + s.fallback()
	}
	kind := fmt.Sprint(s.Type)
	if several, ok := s.Type.([]any); ok {
		kind = strings.Trim(strings.ReplaceAll(fmt.Sprint(several), " ", " or "), "[]")
	}
	if s.Items != nil {
		kind += " of " + s.Items.kind()
	}
	return kind + s.bounds() + s.fallback()
}

func (s apiSchema) bounds() string {
	between := func(least, most any, unit string) string { return fmt.Sprintf(", %v to %v%s", least, most, unit) }
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		return between(*s.Minimum, *s.Maximum, "")
	case s.MinItems != nil && s.MaxItems != nil:
		return between(*s.MinItems, *s.MaxItems, " of them")
	case s.MinLength != nil && s.MaxLength != nil:
		return between(*s.MinLength, *s.MaxLength, " bytes")
	}
	return ""
}

func (s apiSchema) fallback() string {
	if s.Default == nil {
		return ""
	}
	return fmt.Sprintf(", default `%v`", s.Default)
}

func mandatory(required bool) string {
	if required {
		return ", required"
	}
	return ""
}

func last(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// paragraph is text after an empty line.
func paragraph(text string) string {
	if text == "" {
		return ""
	}
	return "\n" + strings.ReplaceAll(text, "__x__", "\\_\\_x\\_\\_") + "\n"
}

// cell is text in a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "|", "\\|"), "\n\n", " ")
}
