package wire

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/countmill/countmill"
)

// The fields of an increment, as bits of those seen.
type jsonFields uint8

const (
	jsonCounter jsonFields = 1 << iota
	jsonDelta
	jsonID
	jsonTime
)

func jsonField(name string) jsonFields {
	switch name {
	case "counter":
		return jsonCounter
	case "delta":
		return jsonDelta
	case "id":
		return jsonID
	case "time":
		return jsonTime
	}
	return 0
}

// object reads one increment into inc. It checks each value at once, so that an empty id or a
// zero time is not mistaken for an absent one.
func (r *jsonReader) object(inc *countmill.Increment) *countmill.FieldError {
	if kind := r.dec.PeekKind(); kind != '{' {
		return r.unexpected("increment", wantObject, kind)
	}
	if _, err := r.dec.ReadToken(); err != nil {
		return syntaxError("body", wantObject, err)
	}
	inc.Delta = 1
	var seen jsonFields
	for {
		name, err := r.dec.ReadToken()
		if err != nil {
			return syntaxError("body", wantObject, err)
		}
		if name.Kind() == '}' {
			break
		}
		field := jsonField(name.String())
		if field == 0 {
			return unknownField(name.String())
		}
		if seen&field != 0 {
			return &countmill.FieldError{Field: name.String(), Problem: "is given more than once", Limit: "each field once"}
		}
		seen |= field
		if ferr := r.value(field, inc); ferr != nil {
			return ferr
		}
	}
	if seen&jsonCounter == 0 {
		return &countmill.FieldError{Field: "counter", Problem: "is missing", Limit: wantCounter}
	}
	return nil
}

func (r *jsonReader) value(field jsonFields, inc *countmill.Increment) (ferr *countmill.FieldError) {
	switch field {
	case jsonCounter:
		if inc.Counter, ferr = r.text("counter", wantCounter); ferr == nil {
			ferr = fieldError(countmill.CheckCounter(inc.Counter))
		}
	case jsonDelta:
		if inc.Delta, ferr = r.integer("delta", wantDelta); ferr == nil {
			ferr = fieldError(countmill.CheckDelta(inc.Delta))
		}
	case jsonID:
		if inc.ID, ferr = r.text("id", wantID); ferr == nil {
			ferr = fieldError(countmill.CheckID("id", inc.ID))
		}
	case jsonTime:
		if inc.Time, ferr = r.time("time", wantTime); ferr == nil {
			ferr = fieldError(countmill.CheckTime(inc.Time, r.now, r.window))
		}
	}
	return ferr
}

func (r *jsonReader) text(field, want string) (string, *countmill.FieldError) {
	if kind := r.dec.PeekKind(); kind != '"' {
		return "", r.unexpected(field, want, kind)
	}
	token, err := r.dec.ReadToken()
	if err != nil {
		return "", syntaxError(field, want, err)
	}
	return token.String(), nil
}

func (r *jsonReader) time(field, want string) (time.Time, *countmill.FieldError) {
	text, ferr := r.text(field, want)
	if ferr != nil {
		return time.Time{}, ferr
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || !strictTime(text) {
		return time.Time{}, &countmill.FieldError{Field: field, Problem: "is not a time", Limit: want}
	}
	return t.UTC(), nil
}

// strictTime refuses three forms that time.Parse accepts (go.dev/issue/54580): one-digit hours, a
// comma before the fraction, and zones beyond 23:59.
func strictTime(text string) bool {
	if text[len("2006-01-02T15")] != ':' || strings.Contains(text, ",") {
		return false
	}
	zone := text[len(text)-len("07:00"):]
	return strings.HasSuffix(text, "Z") || zone[:2] <= "23" && zone[3:] <= "59"
}

// integer reads -?[0-9]+. It returns a number beyond the limit for every number beyond the limit.
func (r *jsonReader) integer(field, want string) (int64, *countmill.FieldError) {
	if kind := r.dec.PeekKind(); kind != '0' {
		return 0, r.unexpected(field, want, kind)
	}
	literal, err := r.dec.ReadValue()
	if err != nil {
		return 0, syntaxError(field, want, err)
	}
	digits := []byte(literal)
	negative := digits[0] == '-'
	if negative {
		digits = digits[1:]
	}
	switch next := r.next(); {
	case next >= '0' && next <= '9':
		return 0, &countmill.FieldError{Field: field, Problem: "begins with 0", Limit: want}
	case !strings.ContainsRune(" \t\r\n,}]", rune(next)):
		return 0, &countmill.FieldError{Field: field, Problem: "is not an integer literal", Limit: want}
	}
	var n int64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, &countmill.FieldError{Field: field, Problem: "is not an integer literal", Limit: want}
		}
		n = min(n, countmill.MaxDelta)*10 + int64(c-'0') // stays beyond the limit, and cannot wrap
	}
	if negative {
		n = -n
	}
	return n, nil
}

// next is the byte after the literal that was just read, a space at the end. JSON reads 01 and 0x1 as
// a 0 and a syntax error.
func (r *jsonReader) next() byte {
	if rest := r.dec.UnreadBuffer(); len(rest) > 0 {
		return rest[0]
	}
	return ' '
}

// unexpected is the error for a value of the wrong kind, or for a syntax error at its beginning.
func (r *jsonReader) unexpected(field, want string, kind jsontext.Kind) *countmill.FieldError {
	var is string
	switch kind {
	case '{':
		is = "an object"
	case '[':
		is = "an array"
	case '"':
		is = "a string"
	case '0':
		is = "a number"
	case 't', 'f':
		is = "a boolean"
	case 'n':
		is = "null"
	default:
		_, err := r.dec.ReadToken()
		return syntaxError(field, want, err)
	}
	return &countmill.FieldError{Field: field, Problem: "is " + is, Limit: want}
}

// syntaxError is the decoder's error while it read field.
func syntaxError(field, want string, err error) *countmill.FieldError {
	if errors.Is(err, io.EOF) {
		return &countmill.FieldError{Field: "body", Problem: "is empty", Limit: wantSome}
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &countmill.FieldError{Field: "body", Problem: "ends too early", Limit: "complete JSON"}
	}
	problem := "is not valid JSON"
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		problem += " near byte " + strconv.FormatInt(s.ByteOffset, 10)
		if s.Err != nil {
			problem += ": " + s.Err.Error()
		}
	}
	return &countmill.FieldError{Field: field, Problem: problem, Limit: want}
}

// maxFieldShown is the number of bytes of an unknown field's name in an error.
const maxFieldShown = 64

func unknownField(name string) *countmill.FieldError {
	problem := "is not a field"
	if lower := strings.ToLower(name); jsonField(lower) != 0 {
		problem = "is not a field: write " + lower
	}
	if len(name) > maxFieldShown {
		cut := maxFieldShown
		for !utf8.RuneStart(name[cut]) {
			cut--
		}
		name = name[:cut] + "..."
	}
	if name == "" {
		name = `""`
	}
	return &countmill.FieldError{Field: name, Problem: problem, Limit: wantFields}
}

// fieldError returns the *FieldError in err. The checks of an increment return no other errors.
func fieldError(err error) *countmill.FieldError {
	if err == nil {
		return nil
	}
	if ferr, ok := errors.AsType[*countmill.FieldError](err); ok {
		return ferr
	}
	return &countmill.FieldError{Problem: err.Error()}
}
