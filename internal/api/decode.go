package api

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/countmill/countmill"
	"github.com/countmill/countmill/internal/httpserver"
)

// A body is a JSON object that a route takes. Increments are no body: package wire reads them,
// as strictly.
type body struct {
	name   string            // of its schema
	empty  func() any        // a pointer to the struct to fill in; its fields are text, integer, flag and texts
	max    int               // bytes
	want   string            // the object in words
	fields map[string]string // the limit of a field, if want does not say it
}

// takes is a small body of that type.
func takes[T any](name, want string, fields map[string]string) *body {
	return &body{name: name, empty: func() any { return new(T) }, max: smallBody, want: want, fields: fields}
}

// How long a body may take to arrive.
const (
	smallBodyTimeout = 10 * time.Second
	largeBodyTimeout = 30 * time.Second
)

// readObject reads the request's body, which h accounts for, and returns its size too.
func (a *API) readObject(c call, b *body, h *hold) (any, int, error) {
	if _, err := httpserver.ContentType(c.r, typeJSON); err != nil {
		return nil, 0, err
	}
	timeout := smallBodyTimeout
	if b.max > smallBody {
		timeout = largeBodyTimeout
	}
	v := b.empty()
	small := a.buffers.Get().(*[pooled]byte)
	defer a.buffers.Put(small)
	text, err := httpserver.BodyReader{Max: b.max, Timeout: timeout, Grow: func(n int) error {
		return a.pools.reserve(h, n)
	}}.Read(c.w, c.r, small[:])
	if err != nil {
		return nil, 0, err
	}
	return v, len(text), b.decode(text, v)
}

// decode fills v in, strictly: no unknown, repeated or differently-cased fields, no values of
// other types, no null, no lone surrogates, nothing after the end.
func (b *body) decode(text []byte, v any) error {
	if jsontext.Value(text).Kind() == 'n' {
		return b.wrong("body", "is not an object")
	}
	err := json.Unmarshal(text, v, json.RejectUnknownMembers(true))
	if err == nil {
		return b.complete(v)
	}
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		field := firstOf(semantic.JSONPointer)
		misfit, ok := errors.AsType[misfit](err)
		switch {
		case errors.Is(err, json.ErrUnknownName):
			return &countmill.FieldError{Field: field, Problem: "is not a field", Limit: b.want}
		case ok && field != "":
			return b.wrong(field, string(misfit))
		}
		return b.wrong("body", "is not an object")
	}
	problem := "is not JSON"
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return b.wrong(cmp.Or(firstOf(syntactic.JSONPointer), "body"), "is given more than once")
		}
		problem += fmt.Sprintf(" at byte %d: %v", syntactic.ByteOffset, syntactic.Err)
	}
	return b.wrong("body", problem)
}

func (b *body) wrong(field, problem string) error {
	return &countmill.FieldError{Field: field, Problem: problem, Limit: cmp.Or(b.fields[field], b.want)}
}

// complete refuses a body without a field that is not omitzero.
func (b *body) complete(v any) error {
	of := reflect.ValueOf(v).Elem()
	for i := range of.NumField() {
		name, optional, _ := strings.Cut(of.Type().Field(i).Tag.Get("json"), ",")
		if f, ok := of.Field(i).Interface().(interface{ isGiven() bool }); ok && optional == "" && !f.isGiven() {
			return b.wrong(name, "is missing")
		}
	}
	return nil
}

// firstOf is the field of the body that a pointer leads into; empty for the body itself.
func firstOf(p jsontext.Pointer) string {
	for token := range p.Tokens() {
		return token
	}
	return ""
}

// A misfit describes the wrong value of a field. Fields have types of their own, because
// package json accepts null for any other type.
type misfit string

func (m misfit) Error() string { return string(m) }

const (
	notText    misfit = "is not a string"
	notInteger misfit = "is not an integer"
	notFlag    misfit = "is not true or false"
	notTexts   misfit = "is not an array of strings"
	tooMany    misfit = "holds too many"
)

// text is a JSON string and nothing else.
type text struct {
	value string
	given bool
}

func (t text) isGiven() bool { return t.given }

// UnmarshalJSONFrom takes a string.
func (t *text) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	token, err := take(dec, '"', notText)
	if err == nil {
		*t = text{token.String(), true}
	}
	return err
}

// integer is a JSON number of digits only; a number that does not fit is out of any range.
type integer struct {
	value int
	given bool
}

func (i integer) isGiven() bool { return i.given }

// UnmarshalJSONFrom refuses 40.0 and 4e1.
func (i *integer) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	token, err := take(dec, '0', notInteger)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(token.String())
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return notInteger
	}
	*i = integer{n, true}
	return nil
}

// flag is true or false.
type flag bool

// UnmarshalJSONFrom takes true and false.
func (f *flag) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if kind := dec.PeekKind(); kind == 't' || kind == 'f' {
		token, err := dec.ReadToken()
		*f = flag(err == nil && token.Bool())
		return err
	}
	_, err := take(dec, 't', notFlag)
	return err
}

// take reads a token of that kind.
func take(dec *jsontext.Decoder, kind jsontext.Kind, otherwise misfit) (jsontext.Token, error) {
	if got := dec.PeekKind(); got != kind && got != 0 { // 0: the text is not JSON, and ReadToken says why
		return jsontext.Token{}, otherwise
	}
	return dec.ReadToken()
}

// maxTexts is the most strings of an array in a body.
const maxTexts = maxBodyCounters

// texts is an array of strings. It ends at the limit: millions of "" fit into a body.
type texts []string

// UnmarshalJSONFrom takes an array of strings.
func (t *texts) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if _, err := take(dec, '[', notTexts); err != nil {
		return err
	}
	for dec.PeekKind() != ']' {
		token, err := take(dec, '"', notTexts)
		switch {
		case err != nil:
			return err
		case len(*t) == maxTexts:
			return tooMany
		}
		*t = append(*t, token.String())
	}
	_, err := dec.ReadToken()
	return err
}
